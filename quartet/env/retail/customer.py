"""Customers of the shop: a script that answers what it is asked, and the instructions of a policy in its place."""

from quartet.env.retail.tasks import Scenario

STOP = "###STOP###"
"""Text with which a policy as customer ends the dialogue, as in tau-bench."""
WORDS = {
    "name": ("name",),
    "zip": ("zip",),
    "order": ("order", "number"),
    "reason": ("reason", "why"),
    "item": ("item", "product", "which"),
    "address": ("address", "where"),
}
"""Words of a question that ask for each fact."""


def scripted_answer(scenario: Scenario, message: str) -> str | None:
    """Return the answer to a message of the agent: each fact that it asks for, in order. None ends the dialogue: the
    message asks nothing that the customer knows, or has no question mark.

    >>> from quartet.types import Task
    >>> from quartet.env.retail.tasks import scenario_of
    >>> scripted_answer(scenario_of(Task(env="retail", family="cancel_1", seed=0)), "It is done.") is None
    True
    """
    if "?" not in message:
        return None
    asked = message.lower()
    facts = [text for name, text in scenario.facts.items() if any(word in asked for word in WORDS[name])]
    return " ".join(facts) or None


def instructions(scenario: Scenario) -> str:
    """Return the instructions of a policy that speaks as the customer."""
    return "\n".join(
        [
            "You are a customer of a shop and write to its agent. You only know this:",
            *scenario.facts.values(),
            "Answer only what the agent asks, in one sentence. Do not invent anything.",
            f"When the agent has done what you want, or cannot do it, write {STOP}",
        ]
    )
