"""A trainer of two ranks, one of which is killed in mid-step, and which two processes or one resume."""

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from benchmarks.bandit import bandit_recipe
from quartet.config import Recipe, Runtime
from quartet.free_port import free_port
from quartet.policy.load import read_weights
from quartet.recipe.file import to_toml
from quartet.runtime.start_ranks import StartedRanks, start_ranks
from quartet.train.trainer import run_trainer
from tests.faults.fed_run import REPOSITORY, FedRun

STEPS = 4
MANY_STEPS = 40
"""More train steps than a run takes before a rank is stopped after its first."""
PAGE = REPOSITORY / "docs" / "decisions" / "0026-ranks-follow-rank-0.md"


def recipe_of(policy: Path, *, processes: int, steps: int = STEPS) -> Recipe:
    train = {"groups_per_batch": 1, "max_train_steps": steps, "processes": processes, "max_tokens_per_microbatch": 512}
    lag = {"max_lag": MANY_STEPS}  # version 0 sampled all groups
    return bandit_recipe(policy, train=train, engine={"max_context_tokens": 256}, admission=lag)


def by_torchrun(run: FedRun, module: str = "quartet.runtime.module") -> subprocess.CompletedProcess[str]:
    """Start the trainer by the command of the page about ranks, with `module` in place of Quartet's own."""
    (command,) = (line for line in PAGE.read_text().splitlines() if line.startswith("torchrun "))
    _, *arguments = shlex.split(command.replace("RUN_DIR", str(run.run_dir)).replace("quartet.runtime.module", module))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PET_MASTER_PORT": str(free_port())}
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *arguments],
        env=environment,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


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
def test_a_step_whose_rank_is_killed_is_not_committed_and_one_process_goes_on(
    tmp_path: Path, bandit_policy: Path
) -> None:
    run = FedRun(tmp_path / "run", recipe_of(bandit_policy, processes=2))
    run.feed(STEPS)
    lost = by_torchrun(run, "tests.faults.loses_a_rank")
    assert lost.returncode and "lost the connection to another rank" in lost.stderr, lost.stderr
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
    ended = by_torchrun(run)
    assert ended.returncode == 0, ended.stderr
    assert run.ledger.batches.train_step() == 3
    assert_trained_like_one_process(run, bandit_policy, tmp_path / "alone")


def write_recipe(run: FedRun, recipe: Recipe) -> None:
    (run.run_dir / "config.toml").write_text(to_toml(recipe))
