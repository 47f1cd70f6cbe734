"""Weights & Biases sink: log means over ten seconds, to be drawn against the train step or the time.

wandb's own environment variables set the project and other options. `WANDB_MODE=offline` writes into the run's
`wandb/`, for a later `wandb sync`.
"""

import secrets
from pathlib import Path
from typing import Any

from quartet.config import Recipe
from quartet.errors import SetupError
from quartet.report.follow import News
from quartet.report.sinks.base import Sink, shown_name


class WandbSink(Sink):
    """Logger to one W&B run per run folder. A restarted sink resumes the same W&B run."""

    package = "wandb"

    def __init__(self, settings: Any, recipe: Recipe, run_dir: Path) -> None:
        """Start or resume the W&B run. Raise `SetupError` if W&B reports an error, such as a missing API key."""
        import wandb

        super().__init__(settings, recipe, run_dir)
        try:
            self._run = wandb.init(
                name=recipe.name,
                id=_run_id(run_dir),
                resume="allow",
                dir=str(run_dir),
                config=recipe.model_dump(mode="json"),
                settings=wandb.Settings(console="off", disable_git=True),
            )
        except wandb.Error as error:
            raise SetupError(
                f"W&B cannot be used: {str(error).splitlines()[0]}",
                "run `wandb login`, export WANDB_API_KEY=…, or set WANDB_MODE=offline to write into the run",
            ) from error
        self._run.define_metric("*", step_metric="newest_train_step")

    def write(self, news: News) -> None:
        for sums in news.sums:
            means = {
                shown_name(name, sums.role): rollup.sum / rollup.count for name, rollup in sums.slot.series.items()
            }
            self._run.log({"time": sums.slot.begin, "newest_train_step": sums.train_step, **means})

    def close(self) -> None:
        self._run.finish()


def _run_id(run_dir: Path) -> str:
    """Return the W&B run's id: random, since two runs may have the same name, and stored in the run's folder."""
    file = run_dir / "sinks" / "wandb.id"
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        file.write_text(secrets.token_hex(4))
    return file.read_text()
