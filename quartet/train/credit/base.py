"""The interface of credit: what each sampled token of a batch is worth."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from quartet.part import Part
from quartet.train.passes import require_passes

if TYPE_CHECKING:
    from quartet.config import Recipe
    from quartet.train.credit_batch import CreditBatch


class Credit(Part):
    """How the rewards of a batch become advantages, returns and a mask of its tokens."""

    needs: ClassVar[frozenset[str]] = frozenset()
    """Forward passes that come first: names of `quartet.train.passes.PASSES`. `CreditBatch` then has their results."""

    @abstractmethod
    def assign(self, batch: "CreditBatch") -> None:
        """Write `advantages_T`, and where it differs from the defaults `returns_T` and `mask_T`, of the whole batch."""

    @classmethod
    def check(cls, knobs: Any, recipe: "Recipe") -> None:
        require_passes(f"the credit {cls.__name__}", cls.needs)
