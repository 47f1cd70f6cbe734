"""A whole run of separate processes whose policy reads pictures: rolled out, stored, trained on and published."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from benchmarks.bandit import bandit_recipe
from quartet.config import Recipe
from quartet.errors import ConfigError
from quartet.ledger import Ledger
from quartet.ledger.pictures import pictures_of
from quartet.ledger.schema import groups, rollouts, trajectories
from quartet.policy.kind.find import load_pictures
from quartet.policy.load import load_policy
from quartet.policy.make_vision import make_vision_policy
from quartet.policy.weights import read_weights
from quartet.recipe.file import to_toml
from quartet.report.check import check_ledger
from quartet.runtime.check.training import check_training
from quartet.runtime.run import run_recipe
from quartet.types import GroupState
from tests.command import quartet

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


TRAIN: dict[str, object] = {"groups_per_batch": 1, "max_train_steps": 2, "max_seconds": 400.0}


@pytest.fixture
def squares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Recipe]:
    """Recipe of a policy that reads pictures, in an environment that shows them."""
    make_vision_policy(["Which colour?", "red green"] * 2, tmp_path / "policy", hidden_size=32)
    (tmp_path / "squares.py").write_text(SQUARES)
    monkeypatch.syspath_prepend(tmp_path)
    defaults = {
        "env": {"name": "squares:Squares", "families": ["colour"], "sessions": 2},
        "rollout": {"loop": "append", "max_tokens": 4, "lease_seconds": 20.0},
        "control": {"rollouts_per_group": 4},
        "train": TRAIN,
        "evaluation": {"before_and_after": False},
    }

    def recipe(**sections: dict[str, object]) -> Recipe:
        return bandit_recipe(tmp_path / "policy", **(defaults | sections))

    return recipe


def changed_weights(first: Path, last: Path) -> set[str]:
    before, after = read_weights(first), read_weights(last)
    return {name for name, weights in after.items() if not weights.equal(before[name])}


def test_settings_that_a_policy_cannot_use_are_refused(squares: Callable[..., Recipe], bandit_policy: Path) -> None:
    with pytest.raises(ConfigError, match="reads pictures"):
        check_training(squares(engine={"name": "openai", "url": "http://127.0.0.1:1"}))
    with pytest.raises(ConfigError, match="no vision tower"):
        check_training(bandit_recipe(bandit_policy, model={"freeze_vision": True}))


def test_guided_rollouts_with_pictures_are_refused_at_the_start(squares: Callable[..., Recipe]) -> None:
    guidance = {"name": "text", "texts": {"colour": "Say red."}}
    rollout = {"loop": "append", "max_tokens": 4, "lease_seconds": 20.0, "guidance": guidance}
    env: dict[str, object] = {"name": "squares:Squares", "families": ["colour"], "sessions": 2}
    for allocator in ("guided", "xrpo"):
        chosen = {"control": {"rollouts_per_group": 8, "allocator": allocator}, "rollout": rollout}
        with pytest.raises(ConfigError, match=f"'{allocator}' guides rollouts, and the model in .* reads pictures"):
            check_training(squares(**chosen, env=env | {"screenshots": True}))
        check_training(squares(**chosen, env=env | {"screenshots": False}))
    check_training(squares(rollout=rollout, env=env | {"screenshots": True}))


def test_the_decoder_alone_is_trained_in_one_process(squares: Callable[..., Recipe], tmp_path: Path) -> None:
    recipe = squares(runtime={"kind": "synchronous"}, admission={"max_lag": 0}, model={"freeze_vision": True})
    check_training(recipe)
    run_recipe(recipe, tmp_path / "run", resume=False, fresh=False, quiet=True)
    with closing(Ledger.open(tmp_path / "run")) as ledger:
        policy = ledger.policies.latest()
    assert policy.version == 2
    changed = changed_weights(tmp_path / "policy", tmp_path / "run" / policy.path)
    assert changed and not any("visual" in name for name in changed)


def test_a_policy_that_reads_pictures_is_trained_by_two_ranks(squares: Callable[..., Recipe], tmp_path: Path) -> None:
    recipe, pictures = squares(train=TRAIN | {"processes": 2}), load_pictures(tmp_path / "policy")
    assert pictures is not None
    check_training(recipe)
    (tmp_path / "recipe.toml").write_text(to_toml(recipe))
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
        assert {one.processor for call in record.calls for one in call.media} == {pictures.fingerprint}
    assert len({digest for digests in stored.values() for digest in digests}) == 2, "each picture is stored once"
    latest = ledger.policies.latest()
    ledger.close()
    assert latest.version == 2
    published = load_policy(latest.path)
    assert published.pictures is not None and published.pictures.fingerprint == pictures.fingerprint
    changed = changed_weights(tmp_path / "policy", Path(latest.path))
    assert any("visual" in name for name in changed) and any("language_model" in name for name in changed)
