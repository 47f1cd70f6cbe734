"""A trainer of two ranks, one of which is killed in mid-step, and which two processes or one resume."""

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from benchmarks.bandit import bandit_recipe
from quartet.config import Recipe, Runtime
from quartet.errors import QuartetError
from quartet.free_port import HOST, free_port
from quartet.policy.weights import read_weights
from quartet.recipe.file import to_toml
from quartet.runtime.start_ranks import StartedRanks, start_ranks
from quartet.train.trainer import run_trainer
from tests.faults import loses_a_rank
from tests.faults.fed_run import REPOSITORY, FedRun
from tests.warm_process import run_warm

STEPS = 4
MANY_STEPS = 40
"""More train steps than a run takes before a rank is stopped after its first."""
PAGE = REPOSITORY / "docs" / "decisions" / "0026-ranks-follow-rank-0.md"


def recipe_of(policy: Path, *, processes: int, steps: int = STEPS) -> Recipe:
    train = {"groups_per_batch": 1, "max_train_steps": steps, "processes": processes, "max_tokens_per_microbatch": 512}
    lag = {"max_lag": MANY_STEPS}  # version 0 sampled all groups
    return bandit_recipe(policy, train=train, engine={"max_context_tokens": 256}, admission=lag)


def by_torchrun(run: FedRun, log: Path, module: str = "quartet.runtime.module") -> int:
    """Start the trainer by the command of the page about ranks, with `module` in place of Quartet's own; return the
    exit code."""
    command, _ = (line for line in PAGE.read_text().splitlines() if line.startswith("torchrun "))
    _, *arguments = shlex.split(command.replace("RUN_DIR", str(run.run_dir)).replace("quartet.runtime.module", module))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PET_MASTER_PORT": str(free_port())}
    launcher = [sys.executable, "-m", "torch.distributed.run", *arguments]
    with log.open("ab") as output:
        ended = subprocess.run(
            launcher, env=environment, cwd=REPOSITORY, stdout=output, stderr=output, timeout=300, check=False
        )
    return ended.returncode


def lose_a_rank_of_torchrun(run: FedRun, log: Path) -> None:
    assert by_torchrun(run, log, loses_a_rank.__name__) != 0


def lose_a_rank_of_two_processes(run: FedRun, log: Path) -> None:
    """Start the ranks with the variables that `torchrun` sets, and without its launcher."""
    together = {"MASTER_ADDR": HOST, "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}

    def end_of(rank: int) -> int:
        variables = together | {"RANK": str(rank)}
        return run_warm(log, loses_a_rank.main, "trainer", run.run_dir, variables=variables)

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(end_of, range(2))) == [QuartetError.exit_code, -signal.SIGKILL]


def resume_alone(run: FedRun, policy: Path) -> dict[str, torch.Tensor]:
    """Train to the last step in this process; return the weights."""
    asyncio.run(run_trainer(recipe_of(policy, processes=1), run.run_dir, asyncio.Event()))
    newest = run.ledger.policies.latest()
    assert newest.train_step == run.ledger.batches.train_step() == STEPS
    return read_weights(run.run_dir / newest.path)


def assert_trained_like_one_process(run: FedRun, policy: Path, folder: Path) -> None:
    alone = FedRun(folder, recipe_of(policy, processes=1))
    alone.feed(STEPS)
    ours, theirs = resume_alone(run, policy), resume_alone(alone, policy)
    for name, weights in theirs.items():
        torch.testing.assert_close(ours[name], weights, atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "lose_a_rank", [lose_a_rank_of_two_processes, pytest.param(lose_a_rank_of_torchrun, marks=pytest.mark.campaign)]
)
def test_a_step_whose_rank_is_killed_is_not_committed_and_one_process_goes_on(
    tmp_path: Path, bandit_policy: Path, lose_a_rank: Callable[[FedRun, Path], None]
) -> None:
    run, log = FedRun(tmp_path / "run", recipe_of(bandit_policy, processes=2)), tmp_path / "log"
    run.feed(STEPS)
    lose_a_rank(run, log)
    assert "lost the connection to another rank" in log.read_text(), log.read_text()
    assert run.ledger.batches.train_step() == 1
    assert_trained_like_one_process(run, bandit_policy, tmp_path / "alone")


@pytest.mark.campaign
def test_a_rank_that_hangs_is_reported_before_the_supervisor_would_kill_all(
    tmp_path: Path, bandit_policy: Path
) -> None:
    """The rank is stopped, not killed, so its connections stay open. Nothing is committed after that."""
    recipe = recipe_of(bandit_policy, processes=2, steps=MANY_STEPS)
    recipe = recipe.model_copy(update={"runtime": Runtime(heartbeat_timeout_seconds=24.0)})
    run, log = FedRun(tmp_path / "run", recipe), tmp_path / "log"
    run.feed(MANY_STEPS)
    ranks = start_ranks("spawn", "trainer", run.run_dir, log, threads=1, ranks=2)
    assert isinstance(ranks, StartedRanks)
    try:
        while run.ledger.batches.train_step() < 1:
            assert ranks.poll() is None, log.read_text()
            time.sleep(0.05)
        os.kill(ranks.pids[1], signal.SIGSTOP)
        while ranks.poll() is None:
            time.sleep(0.05)
        assert run.ledger.batches.train_step() < MANY_STEPS
        assert "rank 0 (of ranks 0 to 1) lost the connection to another rank" in log.read_text()
    finally:
        ranks.kill()


@pytest.mark.campaign
def test_two_ranks_end_by_themselves_and_resume_what_one_process_has_trained(
    tmp_path: Path, bandit_policy: Path
) -> None:
    """Two ranks and one process as the supervisor starts them, then two by torchrun, each to its step; then one."""
    run, log = FedRun(tmp_path / "run", recipe_of(bandit_policy, processes=2)), tmp_path / "log"
    run.feed(STEPS)
    for steps, processes in ((1, 2), (2, 1)):
        write_recipe(run, recipe_of(bandit_policy, processes=processes, steps=steps))
        ranks = start_ranks("forkserver", "trainer", run.run_dir, log, threads=1, ranks=processes)
        try:
            assert ranks.wait(200) == 0, log.read_text()
        finally:
            ranks.kill()
        assert run.ledger.batches.train_step() == steps
    write_recipe(run, recipe_of(bandit_policy, processes=2, steps=3))
    assert by_torchrun(run, log) == 0, log.read_text()
    assert run.ledger.batches.train_step() == 3
    assert_trained_like_one_process(run, bandit_policy, tmp_path / "alone")


def write_recipe(run: FedRun, recipe: Recipe) -> None:
    (run.run_dir / "config.toml").write_text(to_toml(recipe))


@pytest.mark.campaign
def test_ranks_of_two_launchers_train_what_one_process_trains(tmp_path: Path, bandit_policy: Path) -> None:
    """As on two nodes, by the page's command for each; both ranks are one trainer with one checkpoint of shards."""
    steps = STEPS - 1
    run = FedRun(tmp_path / "run", recipe_of(bandit_policy, processes=2, steps=steps))
    run.feed(STEPS)
    _, command = (line for line in PAGE.read_text().splitlines() if line.startswith("torchrun "))
    for name, value in (("HOST", HOST), ("PORT", str(free_port())), ("RUN_DIR", str(run.run_dir))):
        command = command.replace(name, value)
    agents = [
        subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *shlex.split(command.replace(" N ", f" {node} "))[1:]],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            cwd=REPOSITORY,
        )
        for node in range(2)
    ]
    try:
        assert [agent.wait(300) for agent in agents] == [0, 0]
    finally:
        for agent in agents:
            agent.kill()
    assert run.ledger.batches.train_step() == steps
    shards = {file.name.partition("-model")[0] for file in run.run_dir.glob("trainer/*/shard-*.safetensors")}
    assert shards == {"shard-00001", "shard-00002"}, "each rank has written its own"
    assert_trained_like_one_process(run, bandit_policy, tmp_path / "alone")
