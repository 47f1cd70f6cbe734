"""Display of a fine-tuning's progress, by steps, or by time if only the time limit ends the training."""

from collections.abc import Callable

from quartet.config import Sft
from quartet.terminal.progress import Watched
from quartet.train.sft import SftStep


def step_watcher(watched: Watched, sft: Sft) -> Callable[[SftStep], None]:
    """Return the `on_step` callback for `run_sft`."""

    def on_step(step: SftStep) -> None:
        note = f"{step.phase}  loss {step.loss:.3f}  accuracy {step.accuracy:.3f}"
        if step.total_steps:
            watched(step.step, step.total_steps, note)
        else:
            watched(round(step.seconds), round(sft.max_seconds), f"s  step {step.step}  {note}")

    return on_step
