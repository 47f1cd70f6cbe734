"""TensorBoard: event files in `tensorboard/ROLE` of the run; `tensorboard --logdir RUN/tensorboard` shows them.

A role is what TensorBoard calls a run. Points are means over ten seconds, at the train step that was the newest then.
"""

from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from quartet.config import Recipe
from quartet.observe.follow import News
from quartet.observe.sinks.base import StepCounter


class TensorBoardSink:
    """One event writer per role."""

    def __init__(self, recipe: Recipe, run_dir: Path) -> None:
        self._folder, self._writers, self._steps = run_dir / "tensorboard", dict[str, EventFileWriter](), StepCounter()

    def write(self, news: News) -> None:
        for sums in news.sums:
            step = self._steps.see(sums)
            means = {name: rollup.sum / rollup.count for name, rollup in sums.slot.series.items()}
            summary = Summary(value=[Summary.Value(tag=name, simple_value=mean) for name, mean in means.items()])
            self._writer(sums.role).add_event(Event(wall_time=sums.slot.begin, step=step, summary=summary))
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def _writer(self, role: str) -> EventFileWriter:
        if role not in self._writers:
            self._writers[role] = EventFileWriter(str(self._folder / role))
        return self._writers[role]
