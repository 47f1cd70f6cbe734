"""Database of a shop, and the tools with which an agent reads and changes it."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from quartet.types import Function, Tool

REASONS = ("no longer needed", "ordered by mistake")


class RefusedError(Exception):
    """A call is wrong or against the rules of the shop; the text tells the agent why."""


class Customer(Struct):
    """A customer, who is found by name and zip code."""

    name: str
    zip: str
    orders: list[str]


class Order(Struct):
    """An order. Only a pending one can be cancelled or sent elsewhere, only a delivered one returned."""

    items: list[str]
    address: str
    status: str = "pending"
    reason: str = ""
    returned: list[str] = []


class Shop(Struct):
    """The database: two shops with the same customers and orders are equal."""

    customers: dict[str, Customer]
    orders: dict[str, Order]

    def copy(self) -> "Shop":
        return msgspec.convert(msgspec.to_builtins(self), Shop)

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the result of a tool as text. Raise `RefusedError` for a wrong call. Null arguments are ignored."""
        tools: dict[str, Callable[..., str]] = {
            "find_customer": self._find_customer,
            "get_order": self._get_order,
            "cancel_order": self._cancel_order,
            "change_address": self._change_address,
            "return_items": self._return_items,
        }
        schema = next((one.function.parameters for one in TOOLS if one.function.name == name), None)
        if schema is None:
            raise RefusedError(f"no tool {name:.30}: {', '.join(tools)}")
        given = {key: value for key, value in arguments.items() if value is not None}
        texts = [key for key, one in schema["properties"].items() if one["type"] == "string"]
        if given.keys() != schema["properties"].keys() or not all(isinstance(given[key], str) for key in texts):
            raise RefusedError(f"{name} takes {', '.join(schema['properties'])}")
        return tools[name](**given)

    def _find_customer(self, name: str, zip: str) -> str:
        for key, one in self.customers.items():
            if (one.name.lower(), one.zip) == (name.strip().lower(), zip.strip()):
                return json.dumps({"customer": key, "orders": one.orders})
        raise RefusedError("no customer with this name and zip code")

    def _get_order(self, order: str) -> str:
        one = self._order(order)
        return json.dumps({"status": one.status, "items": one.items, "address": one.address})

    def _cancel_order(self, order: str, reason: str) -> str:
        one = self._order(order, needed="pending")
        if reason not in REASONS:
            raise RefusedError(f"the reason is one of: {', '.join(REASONS)}")
        one.status, one.reason = "cancelled", reason
        return f"{order} is cancelled"

    def _change_address(self, order: str, address: str) -> str:
        one = self._order(order, needed="pending")
        one.address = address.strip()
        return f"{order} goes to {one.address}"

    def _return_items(self, order: str, items: Any) -> str:
        one = self._order(order, needed="delivered")
        if not isinstance(items, list) or not items or any(item not in one.items for item in items):
            raise RefusedError(f"items of {order}: {', '.join(one.items)}")
        one.status, one.returned = "returned", sorted(items)
        return f"{', '.join(one.returned)} of {order} can be sent back"

    def _order(self, order: str, needed: str = "") -> Order:
        """Return an order. Raise `RefusedError` if it does not exist, or does not have the needed status."""
        if (one := self.orders.get(order)) is None:
            raise RefusedError(f"no order {order:.20}")
        if needed and one.status != needed:
            raise RefusedError(f"{order} is {one.status}, not {needed}")
        return one


def _tool(name: str, description: str, /, **properties: Any) -> Tool:
    parameters = {"type": "object", "properties": properties, "required": [*properties]}
    return Tool(function=Function(name=name, description=description, parameters=parameters))


_TEXT = {"type": "string"}
TOOLS = [
    _tool("find_customer", "Find a customer's orders.", name=_TEXT, zip=_TEXT),
    _tool("get_order", "Read status, items and address of an order.", order=_TEXT),
    _tool("cancel_order", "Cancel a pending order.", order=_TEXT, reason={"type": "string", "enum": [*REASONS]}),
    _tool("change_address", "Send a pending order to another address.", order=_TEXT, address=_TEXT),
    _tool("return_items", "Return items of a delivered order.", order=_TEXT, items={"type": "array", "items": _TEXT}),
]
