"""Check that an existing run of the recipe can be resumed."""

from collections.abc import Iterator
from contextlib import closing

from quartet.doctor.base import Doctor, Finding, Place, ok, refused
from quartet.errors import QuartetError
from quartet.ledger import Ledger
from quartet.ledger.recovery import points_to_go_on_from


class Resumable(Doctor):
    """Check that an existing run of the recipe can be resumed."""

    def examine(self, place: Place) -> Iterator[Finding]:
        if place.recipe is None:
            return
        run_dir = place.runs / place.recipe.name
        try:
            if not Ledger.exists(run_dir):
                return
            with closing(Ledger.view(run_dir)) as ledger:
                point = points_to_go_on_from(ledger, place.recipe.train.train_steps_per_checkpoint)[0]
        except QuartetError as error:
            yield refused(error)
        else:
            yield ok(f"{run_dir} can be resumed from train step {point.train_step}")
