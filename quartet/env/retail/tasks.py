"""Generated tasks of the shop: what the customer wants, what the customer knows, and the calls that do it."""

import random
from collections.abc import Callable

from msgspec import Struct

from quartet import config
from quartet.env.retail.shop import REASONS, Customer, Order, Shop
from quartet.errors import ConfigError, nearest
from quartet.types import Task, ToolCall

FIRST_HELD_OUT_SEED: int = config.Evaluation().first_seed
FIRST_NAMES = ("Ana", "Bob", "Carl", "Dora", "Eva", "Finn", "Gina", "Hugo", "Iris", "Jon", "Kara", "Leo")
LAST_NAMES = ("Berg", "Cole", "Diaz", "Frey", "Hall", "Kim", "Lund", "Moor", "Nagy", "Ross", "Stone", "Wolf")
ITEMS = ("lamp", "chair", "clock", "mirror", "vase", "bench", "basket", "carpet", "shelf", "stool")
STREETS = ("Oak Street", "Mill Lane", "Park Road", "Lake Avenue", "Hill Way")


class Scenario(Struct, frozen=True):
    """A task: the shop at its start, the customer's wish, and the way to fulfil it."""

    shop: Shop
    opening: str
    """The customer's first message."""
    facts: dict[str, str]
    """Answers of the customer, by the word that asks for them."""
    calls: list[ToolCall]
    """Calls that change the shop as the customer wants."""
    outputs: list[str] = []
    """Texts that a message to the customer must contain."""

    @property
    def goal(self) -> Shop:
        """The shop in which the wish is fulfilled."""
        shop = self.shop.copy()
        for call in self.calls:
            shop.call(call.name, call.arguments)
        return shop


def scenario_of(task: Task) -> Scenario:
    """Return the scenario of a task; held-out seeds have customers whom no training seed has. Raise `ConfigError` for
    an unknown family."""
    if task.family not in FAMILIES:
        raise ConfigError(f"unknown family {task.family!r} of retail", nearest(task.family, FAMILIES))
    draw = random.Random(f"retail/{task.family}/{task.seed}")
    shop = _shop(draw, held_out=task.seed >= FIRST_HELD_OUT_SEED)
    customer = shop.customers[draw.choice([*shop.customers])]
    return FAMILIES[task.family](draw, shop, customer)


def _shop(draw: random.Random, *, held_out: bool) -> Shop:
    """Return a shop with four customers, each with a pending and a delivered order."""
    pairs = [(first, last) for first in FIRST_NAMES for last in LAST_NAMES]
    mine = [pair for pair in pairs if (random.Random("".join(pair)).random() < 0.25) == held_out]
    numbers = draw.sample(range(1000, 10000), 8)
    customers, orders = {}, {}
    for place, (first, last) in enumerate(draw.sample(mine, 4)):
        names = [f"W{number}" for number in numbers[2 * place : 2 * place + 2]]
        zip_code = str(draw.randrange(10000, 100000))
        customers[f"C{place}"] = Customer(name=f"{first} {last}", zip=zip_code, orders=draw.sample(names, 2))
        for name, status in zip(names, ("pending", "delivered"), strict=True):
            orders[name] = Order(items=draw.sample(ITEMS, 3), address=_address(draw), status=status)
    return Shop(customers=customers, orders=orders)


def _address(draw: random.Random) -> str:
    return f"{draw.randrange(1, 99)} {draw.choice(STREETS)}"


def _order(shop: Shop, customer: Customer, status: str) -> str:
    return next(order for order in customer.orders if shop.orders[order].status == status)


def _known(customer: Customer, order: str, **facts: str) -> dict[str, str]:
    who = {"name": f"My name is {customer.name}.", "zip": f"My zip code is {customer.zip}."}
    return {**who, "order": f"The order is {order}.", **facts}


def _call(name: str, **arguments: object) -> ToolCall:
    return ToolCall(name=name, arguments=dict(arguments))


def _cancel(draw: random.Random, shop: Shop, customer: Customer) -> Scenario:
    order, reason = _order(shop, customer, "pending"), draw.choice(REASONS)
    facts = _known(customer, order, reason=f"It is {reason}." if reason == REASONS[0] else f"It was {reason}.")
    calls = [_call("cancel_order", order=order, reason=reason)]
    return Scenario(shop, "Hello, I want to cancel an order.", facts, calls)


def _address_change(draw: random.Random, shop: Shop, customer: Customer) -> Scenario:
    order, address = _order(shop, customer, "pending"), _address(draw)
    facts = _known(customer, order, address=f"The new address is {address}.")
    return Scenario(
        shop, "Hello, please send my order elsewhere.", facts, [_call("change_address", order=order, address=address)]
    )


def _return(draw: random.Random, shop: Shop, customer: Customer) -> Scenario:
    order = _order(shop, customer, "delivered")
    item = draw.choice(shop.orders[order].items)
    facts = _known(customer, order, item=f"It is the {item}.")
    return Scenario(shop, "Hi, I want to return something.", facts, [_call("return_items", order=order, items=[item])])


def _question(draw: random.Random, shop: Shop, customer: Customer) -> Scenario:
    order = draw.choice(customer.orders)
    return Scenario(shop, "Hi, where does my order go?", _known(customer, order), [], [shop.orders[order].address])


def _cancel_or_return(draw: random.Random, shop: Shop, customer: Customer) -> Scenario:
    order, reason = draw.choice(customer.orders), draw.choice(REASONS)
    item = draw.choice(shop.orders[order].items)
    facts = _known(customer, order, reason=f"It is {reason}.", item=f"Then the {item}.")
    pending = shop.orders[order].status == "pending"
    cancel, back = _call("cancel_order", order=order, reason=reason), _call("return_items", order=order, items=[item])
    opening = "Hello, cancel my order, or if that is too late, I return one item of it."
    return Scenario(shop, opening, facts, [cancel if pending else back])


def _both(draw: random.Random, shop: Shop, customer: Customer) -> Scenario:
    pending, delivered = (_order(shop, customer, status) for status in ("pending", "delivered"))
    address, item = _address(draw), draw.choice(shop.orders[delivered].items)
    facts = _known(
        customer,
        f"{pending} for the address and {delivered} for the return",
        address=f"The new address is {address}.",
        item=f"I return the {item}.",
    )
    calls = [
        _call("change_address", order=pending, address=address),
        _call("return_items", order=delivered, items=[item]),
    ]
    return Scenario(shop, "Hello, I have a new address for one order, and return an item of another.", facts, calls)


FAMILIES: dict[str, Callable[[random.Random, Shop, Customer], Scenario]] = {
    "cancel_1": _cancel,
    "address_1": _address_change,
    "return_1": _return,
    "question_1": _question,
    "cancel_or_return_2": _cancel_or_return,
    "both_3": _both,
}
"""Families of tasks, easy ones first. The number is the level."""
