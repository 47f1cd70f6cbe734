"""Interface of credit: the advantage of each sampled token of a batch."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from quartet.errors import ConfigError
from quartet.part import Part
from quartet.registry import find
from quartet.train.passes import require_passes

if TYPE_CHECKING:
    from quartet.config import Recipe
    from quartet.train.credit_batch import CreditBatch


class Credit(Part):
    """Method that computes advantages, returns and a mask for the tokens of a batch from its rewards."""

    needs: frozenset[str] = frozenset()
    """Forward passes to run first: names of `quartet.train.passes.PASSES`. `CreditBatch` holds their results. A credit
    that needs the pass `teacher` has a setting `teacher`, the folder of that policy. Settings may add passes: the
    constructor then replaces the class's value."""
    compares_totals: bool = True
    """True if all advantages of a group with equal rewards of rollouts are 0, so that the filter `mixed_outcome` drops
    groups without a gradient only."""

    @abstractmethod
    def assign(self, batch: "CreditBatch") -> None:
        """Write `advantages_T` of the whole batch, and `returns_T` and `mask_T` where they differ from the defaults."""

    @classmethod
    def reads_rewards(cls, settings: Any) -> bool:
        """Return whether the advantages depend on the rewards. If they do not, a data set needs none."""
        return True

    @classmethod
    def check(cls, settings: Any, recipe: "Recipe") -> None:
        require_passes(f"the credit {cls.__name__}", cls.needs)
        terms: list[Any] = [find("loss_term", term.name) for term in recipe.loss.terms]
        if "values" in cls.needs and not any("values" in term.needs for term in terms):
            what = f"the credit {cls.__name__} needs values, but no loss term trains a critic"
            raise ConfigError(what, "add 'value' to loss.terms")
        if "teacher" in cls.needs and not getattr(settings, "teacher", ""):
            raise ConfigError(f"the credit {cls.__name__} has no teacher", "set credit.teacher to a policy's folder")
        if not cls.reads_rewards(settings):
            _check_without_rewards(f"which the credit {recipe.credit.name} does not read", recipe)
        elif not cls.compares_totals and "filters" not in recipe.model_fields_set:
            raise ConfigError(
                "the default filter mixed_outcome drops groups with equal rewards, and the credit "
                f"{recipe.credit.name} gives these a gradient too",
                "set filters = [] to train them, or filters = ['mixed_outcome'] to drop them",
            )


def _check_without_rewards(unread: str, recipe: "Recipe") -> None:
    """Raise `ConfigError` for a penalty on rewards, which would have no effect, and for a filter that reads rewards:
    without rewards it would drop all groups, and with them the credit would not be free of labels."""
    if recipe.train.overlong_max_tokens is not None:
        raise ConfigError(f"train.overlong_max_tokens lowers rewards, {unread}", "remove it")
    parts: dict[str, Any] = {choice.name: find("filter", choice.name) for choice in recipe.filters}
    reading = [name for name, part in parts.items() if part.reads_rewards]
    if reading:
        raise ConfigError(f"the filter {reading[0]} drops groups by rewards, {unread}", "set filters = []")
