"""Several processes of a module that count as one, and recipes that cannot have them."""

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.bandit import bandit_recipe
from quartet.errors import ConfigError
from quartet.runtime import start_ranks
from quartet.runtime.check.training import check_training
from quartet.runtime.start_ranks import StartedRanks
from quartet.train.ranks.fsdp import joined_ranks


def processes(*commands: str) -> list[subprocess.Popen[bytes]]:
    return [subprocess.Popen(["sh", "-c", command], start_new_session=True) for command in commands]


def test_ranks_end_with_the_exit_code_of_the_first() -> None:
    ranks = StartedRanks(first := processes("exit 4", "exit 0"))
    assert ranks.pid == first[0].pid
    assert ranks.wait() == ranks.poll() == 4


def test_a_dead_rank_is_reported_if_the_first_one_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = StartedRanks(both := processes("exec sleep 600", "exit 3"))
    both[1].wait()
    assert ranks.poll() is None
    monkeypatch.setattr(start_ranks, "LAST_WORDS_SECONDS", -1.0)
    assert ranks.poll() == 3
    ranks.kill()
    assert ranks.wait() == -signal.SIGKILL


def start_shells(monkeypatch: pytest.MonkeyPatch, script: str, *, fails_at: int = 9) -> list[subprocess.Popen[bytes]]:
    """Let modules be shells that run `script` with the variables that a module gets; return those started."""
    started: list[subprocess.Popen[bytes]] = []

    def shell(*place: object, variables: Mapping[str, str], threads: int) -> subprocess.Popen[bytes]:
        if len(started) == fails_at:
            raise OSError("no process can be started")
        started.append(subprocess.Popen(["sh", "-c", script], env=os.environ | variables, start_new_session=True))
        return started[-1]

    monkeypatch.setattr(start_ranks, "start_process", shell)
    return started


def test_variables_of_a_launcher_do_not_reach_the_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("RANK", "5")
    start_shells(monkeypatch, "exit $((10 * WORLD_SIZE + RANK))")
    assert start_ranks.start_ranks("spawn", "env", Path(), Path(), threads=1).wait() == 10
    both = start_ranks.start_ranks("spawn", "trainer", Path(), Path(), threads=1, ranks=2)
    assert both.wait() == 20


def test_if_a_rank_cannot_be_started_those_before_it_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    started = start_shells(monkeypatch, "exec sleep 600", fails_at=2)
    with pytest.raises(OSError, match="no process can be started"):
        start_ranks.start_ranks("spawn", "trainer", Path(), Path(), threads=1, ranks=3)
    assert [each.wait(60) for each in started] == [-signal.SIGKILL] * 2


def test_only_the_first_rank_is_asked_to_stop_and_all_are_killed() -> None:
    ranks = StartedRanks(both := processes("exec sleep 600", "exec sleep 600"))
    ranks.terminate()
    assert both[0].wait() == -signal.SIGTERM
    with pytest.raises(subprocess.TimeoutExpired):
        ranks.wait(0.0)
    ranks.kill()
    assert [each.wait() for each in both] == [-signal.SIGTERM, -signal.SIGKILL]


Sections = dict[str, dict[str, object]]


def test_a_run_in_one_process_refuses_several_ranks(bandit_policy: Path) -> None:
    def check(processes: int) -> None:
        synchronous = {"kind": "synchronous"}
        check_training(bandit_recipe(bandit_policy, runtime=synchronous, train={"processes": processes}))

    check(1)
    with pytest.raises(ConfigError, match="the synchronous runtime is a single process"):
        check(2)


def test_a_run_whose_rollouts_fill_no_batch_is_refused(bandit_policy: Path) -> None:
    def check(max_rollouts: int) -> None:
        groups = {"groups_per_batch": 2, "max_rollouts": max_rollouts}
        check_training(bandit_recipe(bandit_policy, train=groups, control={"rollouts_per_group": 4}))

    check(5)  # the last group may exceed the number
    with pytest.raises(ConfigError, match=r"train\.max_rollouts = 4 fills no batch"):
        check(4)


def test_a_moving_reference_needs_a_user_and_a_share_needs_a_move(bandit_policy: Path) -> None:
    def check(**sections: object) -> None:
        check_training(bandit_recipe(bandit_policy, **sections))

    moving = {"train_steps_per_move": 5, "move_share": 0.5}
    check(reference=moving, loss={"terms": ["ppo_clip", "kl"]})
    check(reference=moving, credit={"name": "reinforce_plus_plus"})
    with pytest.raises(ConfigError, match="no loss term and no credit uses the reference"):
        check(reference=moving)
    with pytest.raises(ConfigError, match=r"set reference\.train_steps_per_move"):
        check(reference={"move_share": 0.5}, loss={"terms": ["ppo_clip", "kl"]})
    with pytest.raises(ConfigError, match=r"reference\.max_moves has no effect"):
        check(reference={"max_moves": 1}, loss={"terms": ["ppo_clip", "kl"]})


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"engine": {"name": "vllm", "url": "http://x"}}, "loads whole weights"),
        ({"train": {"publish_dtype": "bfloat16"}}, "train.publish_dtype has no effect"),
        ({"reference": {"train_steps_per_move": 1}, "loss": {"terms": ["ppo_clip", "kl"]}}, "the frozen base"),
    ],
)
def test_settings_that_do_not_go_with_an_adapter_are_refused(
    bandit_policy: Path, sections: Sections, reason: str
) -> None:
    check_training(bandit_recipe(bandit_policy, lora={"rank": 4}))
    check_training(bandit_recipe(bandit_policy, lora={"rank": 4, "publish": "merged"}, engine={"name": "transformers"}))
    with pytest.raises(ConfigError, match=reason):
        check_training(bandit_recipe(bandit_policy, lora={"rank": 4}, **sections))


def test_a_trainer_started_as_another_number_of_processes_says_how_to_start_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with (
        pytest.raises(ConfigError, match="torchrun --nproc-per-node 2 "),
        joined_ranks(bandit_recipe(Path("unused"), train={"processes": 2})),
    ):
        pass
    with joined_ranks(bandit_recipe(Path("unused"))) as ranks:
        assert (ranks.rank, ranks.size) == (0, 1)
