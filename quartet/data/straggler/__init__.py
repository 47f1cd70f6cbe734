"""Stragglers: what becomes of rollouts that take much longer than the others. Each rule is a one-class file."""

from quartet.config import Recipe
from quartet.data.straggler.april import April
from quartet.data.straggler.base import KeepGoing, StragglerRule
from quartet.data.straggler.early_stop import EarlyStop
from quartet.data.straggler.redundancy import Redundancy
from quartet.registry import lookup

STRAGGLER_RULES: dict[str, type[StragglerRule]] = {
    "continue": KeepGoing,
    "redundancy": Redundancy,
    "early_stop": EarlyStop,
    "april": April,
}


def make_straggler_rule(recipe: Recipe) -> StragglerRule:
    """The recipe's rule. Raises `ConfigError` for an unknown name."""
    return lookup("straggler rule", recipe.stragglers.rule, STRAGGLER_RULES)(recipe)
