"""A whole run of separate processes whose policy reads pictures: rolled out, stored, trained on and published."""

from pathlib import Path

import pytest
import sqlalchemy as sa

from benchmarks.bandit import bandit_recipe
from quartet.config import Engine
from quartet.errors import ConfigError
from quartet.ledger import Ledger
from quartet.ledger.pictures import pictures_of
from quartet.ledger.schema import groups, rollouts, trajectories
from quartet.policy.load import load_policy, read_weights
from quartet.recipe.file import to_toml
from quartet.report.check import check_ledger
from quartet.runtime.plan import check_training
from quartet.types import GroupState
from tests.command import quartet
from tests.vision_policy import make_vision_policy

pytestmark = pytest.mark.slow

SQUARES = '''
"""Coloured squares. An untrained policy says nothing of use, so a text decides about its reward by its checksum."""

import zlib
from io import BytesIO

from PIL import Image

from quartet.env.base import Environment
from quartet.types import Observation, Picture, StepResult


def square(colour):
    file = BytesIO()
    Image.new("RGB", (48, 32), colour).save(file, "PNG")
    return file.getvalue()


PICTURES = [Picture(data=square(colour)) for colour in ("red", "green")]


class Session:
    async def reset(self, task):
        self.turn = 0
        return Observation(goal="Which colour?", text="", pictures=PICTURES[:1])

    async def step(self, action):
        self.turn += 1
        shown = Observation(goal="", text="And now?", pictures=PICTURES[1:])
        reward = zlib.crc32(action.encode()) % 2 / 2
        return StepResult(observation=shown, reward=reward, terminated=self.turn == 2)

    async def close(self): ...


class Squares(Environment):
    """Coloured squares."""

    def families(self):
        return ["colour"]

    def session(self):
        return Session()
'''


def test_a_policy_that_reads_pictures_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_vision_policy(["Which colour?", "red green"] * 2, tmp_path / "policy", hidden_size=32)
    assert policy.pictures is not None
    (tmp_path / "squares.py").write_text(SQUARES)
    monkeypatch.syspath_prepend(tmp_path)
    recipe = bandit_recipe(
        tmp_path / "policy",
        env={"name": "squares:Squares", "families": ["colour"], "sessions": 2},
        engine={"name": "transformers"},
        rollout={"loop": "append", "max_tokens": 4, "lease_seconds": 20.0},
        control={"rollouts_per_group": 4},
        train={"groups_per_batch": 1, "max_train_steps": 2, "max_seconds": 400.0},
        evaluation={"before_and_after": False},
    )
    (tmp_path / "recipe.toml").write_text(to_toml(recipe))
    check_training(recipe)
    with pytest.raises(ConfigError, match="reads pictures"):
        check_training(recipe.model_copy(update={"engine": Engine(max_context_tokens=1024)}))
    ended = quartet("train", "recipe.toml", "--run-dir", "run", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr[-3000:]
    ledger = Ledger.open(tmp_path / "run")
    assert check_ledger(ledger).findings == []
    trained = (
        sa.select(rollouts.c.id, trajectories.c.id)
        .join(groups, rollouts.c.group_id == groups.c.id)
        .join(trajectories, trajectories.c.rollout_id == rollouts.c.id)
        .where(groups.c.state == GroupState.TRAINED, trajectories.c.counted)
    )
    with ledger.read() as connection:
        rows = connection.execute(trained).all()
        stored = pictures_of(connection, [trajectory_id for _, trajectory_id in rows])
    assert len(rows) == 2 * 4
    for rollout_id, trajectory_id in rows:
        record = ledger.trajectories.load_final(rollout_id)
        assert record is not None
        assert [len(call.media) for call in record.calls] == [1, 2], "the second prompt shows both"
        named = {one.content_hash for call in record.calls for one in call.media}
        assert named == set(stored[trajectory_id])
        assert {one.processor for call in record.calls for one in call.media} == {policy.pictures.fingerprint}
    assert len({digest for digests in stored.values() for digest in digests}) == 2, "each picture is stored once"
    latest = ledger.policies.latest()
    ledger.close()
    assert latest.version == 2
    published = load_policy(latest.path)
    assert published.pictures is not None and published.pictures.fingerprint == policy.pictures.fingerprint
    first, last = read_weights(tmp_path / "policy"), read_weights(latest.path)
    changed = {name for name, weights in last.items() if not weights.equal(first[name])}
    assert any("visual" in name for name in changed) and any("language_model" in name for name in changed)
