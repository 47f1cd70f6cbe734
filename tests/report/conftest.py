"""A recorded minute."""

from pathlib import Path

import pytest

from benchmarks.bandit import bandit_recipe
from quartet.config import Recipe
from quartet.recipe.file import to_toml
from quartet.telemetry.record import Recorder

NOON = 1_699_999_200.0


class Clock:
    """Unix seconds, as set."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


class RecordedRun:
    """A run directory into which a worker and a trainer record as the clock is turned."""

    def __init__(self, folder: Path, clock: Clock, recipe: Recipe) -> None:
        self.folder, self.clock, self.recipe = folder, clock, recipe
        folder.mkdir()
        (folder / "config.toml").write_text(to_toml(recipe))
        self.worker, self.trainer = (Recorder(folder, role, clock=clock) for role in ("worker", "trainer"))

    def go_on(self, seconds: int) -> None:
        """Every second a rollout of reward 1, every ten seconds a train step."""
        for _ in range(seconds):
            number = round(self.clock.now - NOON)
            about = {"lane": "session 0", "trace": f"rollout {number}.1"}
            with self.worker.span("rollout", **about, family="left"):
                self.clock.now += 0.25
                with self.worker.span("generate", **about):
                    self.clock.now += 0.5
                self.worker.metric("rollout", rollout_id=number, reward=1.0, generate_seconds=0.5)
            if number % 10 == 9:
                self.trainer.metric("train", step=number // 10 + 1, version=number // 10 + 1, loss=0.5)
            self.clock.now += 0.25
        for recorder in (self.worker, self.trainer):
            recorder.flush()

    def close(self) -> None:
        for recorder in (self.worker, self.trainer):
            recorder.close()


@pytest.fixture
def run(tmp_path: Path, clock: Clock):
    recorded = RecordedRun(tmp_path / "run", clock, bandit_recipe(tmp_path / "policy"))
    yield recorded
    recorded.close()
