"""TensorBoard sink: write event files into the run's `tensorboard/ROLE`.

View them with `tensorboard --logdir RUN/tensorboard`. Each role is a TensorBoard run. Each point is a mean over ten
seconds, placed at the newest train step of that time.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from quartet.config import Recipe
from quartet.report.follow import News
from quartet.report.sinks.base import Sink

if TYPE_CHECKING:
    from tensorboard.summary.writer.event_file_writer import EventFileWriter


class TensorBoardSink(Sink):
    """Writer of event files for TensorBoard, in one folder per role."""

    package = "tensorboard"

    def __init__(self, settings: Any, recipe: Recipe, run_dir: Path) -> None:
        super().__init__(settings, recipe, run_dir)
        self._folder = run_dir / "tensorboard"
        self._writers: dict[str, EventFileWriter] = {}

    def write(self, news: News) -> None:
        from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

        for sums in news.sums:
            means = {name: rollup.sum / rollup.count for name, rollup in sums.slot.series.items()}
            summary = Summary(value=[Summary.Value(tag=name, simple_value=mean) for name, mean in means.items()])
            self._writer(sums.role).add_event(Event(wall_time=sums.slot.begin, step=sums.train_step, summary=summary))
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def _writer(self, role: str) -> "EventFileWriter":
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        if role not in self._writers:
            self._writers[role] = EventFileWriter(str(self._folder / role))
        return self._writers[role]
