"""Modules on a real Ray cluster of this machine."""

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from benchmarks.bandit import bandit_recipe
from benchmarks.crashes.processes import everybody
from quartet.errors import SetupError
from quartet.ledger import Ledger
from quartet.recipe.file import to_toml
from quartet.report.check import check_ledger
from quartet.runtime.placer.base import make_placer
from tests.faults.fed_run import FedRun
from tests.live_runs import died, finish, promises_hold, slow_learner, start_run, train_step, train_while
from tests.postgresql import needs_postgresql, server_url
from tests.waiting import wait_until

if TYPE_CHECKING:  # `make test-ray` installs Ray; without it these tests are collected, and not run
    from quartet.runtime.placer.on_ray import OnNode, OnRay

ON_RAY = {"runtime": {"kind": "ray"}, "placement": {"env": {"cpus": 0.5}}}
HEAD = ("gcs_server", "raylet")
"""Processes of a cluster's head."""
pytestmark = [pytest.mark.slow, pytest.mark.release]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run whose environment host can serve."""
    folder = tmp_path / "run"
    with closing(Ledger.create(folder)):
        (folder / "config.toml").write_text(to_toml(bandit_recipe(Path("unused"), **ON_RAY)))
    (folder / "logs").mkdir()
    return folder


def serve(placer: "OnRay", run_dir: Path) -> "OnNode":
    """Start the environment host and wait until it serves."""
    from quartet.runtime.placer.on_ray import OnNode

    with closing(Ledger.open(run_dir)) as ledger:
        ledger.modules.end_all()
        host = placer.start("env", run_dir / "logs" / "env.stderr")
        assert isinstance(host, OnNode)
        wait_until(lambda: host.poll() is None and host.pid in [row.pid for row in ledger.modules.all() if row.url])
    return host


def test_a_module_on_ray_stops_fails_and_dies_as_on_one_machine(run_dir: Path) -> None:
    from quartet.runtime.placer.on_ray import OnRay

    log = run_dir / "logs" / "env.stderr"
    with make_placer(bandit_recipe(Path("unused"), **ON_RAY), run_dir) as placer:
        assert isinstance(placer, OnRay)
        stopped = serve(placer, run_dir)
        with pytest.raises(subprocess.TimeoutExpired):
            stopped.wait(0.01)
        stopped.terminate()
        assert stopped.wait(240) == stopped.poll() == 0
        stopped.kill()  # frees the bundle, as the supervisor does

        killed = serve(placer, run_dir)
        assert killed.pid is not None
        os.kill(killed.pid, signal.SIGKILL)
        assert killed.wait(240) == -signal.SIGKILL and log.read_text() == ""
        killed.kill()

        (run_dir / "config.toml").rename(run_dir / "moved")
        lacking = placer.start("env", log)
        assert lacking.wait(240) == SetupError.exit_code
        assert "does not have the run's folder" in log.read_text()
        lacking.kill()
        (run_dir / "moved").rename(run_dir / "config.toml")

        orphan = serve(placer, run_dir)
        assert orphan.pid is not None
        actor = psutil.Process(orphan.pid).parent()
        assert actor is not None
        actor.kill()
        assert orphan.wait(240) == -signal.SIGKILL
        assert "Ray lost env: " in log.read_text()
        wait_until(lambda: not psutil.pid_exists(orphan.pid or 0))


def test_a_cluster_that_lacks_a_gpu_says_for_which_module(run_dir: Path) -> None:
    recipe = bandit_recipe(Path("unused"), runtime={"kind": "ray"}, placement={"engine": {"gpus": 1}})
    with pytest.raises(SetupError, match=r"engine needs 1 CPU, 1 GPU: the most that a node has left is"):
        make_placer(recipe, run_dir).__enter__()


def test_a_run_on_ray_outlasts_a_killed_worker_and_keeps_its_promises(tmp_path: Path, bandit_policy: Path) -> None:
    sections = {"runtime": {"kind": "ray"}, "rollout": {"workers": 2}, "engine": {"replicas": 2}, "env": {"hosts": 2}}
    recipe = bandit_recipe(bandit_policy, **sections, evaluation={"before_and_after": False})

    def kill(ledger: Ledger, wait: Callable[[Callable[[], object]], object]) -> None:
        pid = next(row.pid for row in ledger.modules.all() if row.module == "worker-2")
        os.kill(pid, signal.SIGKILL)
        wait(lambda: died(ledger) == ["worker-2"])
        step = ledger.batches.train_step()
        wait(lambda: ledger.batches.train_step() > step)

    summary = train_while(tmp_path / "run", recipe, kill)
    promises_hold(tmp_path / "run", summary)


@needs_postgresql
@pytest.mark.timeout(900)
def test_ranks_of_a_trainer_on_two_nodes_are_one_module(tmp_path: Path, bandit_policy: Path) -> None:
    """Two nodes of Ray on this machine, neither of which has logical CPUs for both ranks."""
    from ray.cluster_utils import Cluster  # pyright: ignore[reportMissingImports]

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 9, "num_gpus": 0})
    cluster.add_node(num_cpus=5, num_gpus=0)
    train = {"processes": 2, "nodes": 2, "groups_per_batch": 1, "max_train_steps": 3, "max_tokens_per_microbatch": 512}
    recipe = bandit_recipe(
        bandit_policy,
        runtime={"kind": "ray", "engine_host": "0.0.0.0", "env_host": "0.0.0.0"},
        placement={"address": cluster.address, "trainer": {"cpus": 10}},
        ledger={"url": server_url()},
        train=train,
        engine={"max_context_tokens": 256},
        admission={"max_lag": 3},  # version 0 sampled all groups
    )
    run = FedRun(tmp_path / "run", recipe)
    run.feed(3)
    log = run.run_dir / "logs" / "trainer.stderr"
    log.parent.mkdir(exist_ok=True)
    try:
        with make_placer(recipe, run.run_dir) as placer:
            trainer = placer.start("trainer", log)
            assert trainer.wait(800) == 0, log.read_text()
    finally:
        cluster.shutdown()
    assert run.ledger.batches.train_step() == 3
    shards = {file.name.partition("-model")[0] for file in run.run_dir.glob("trainer/*/shard-*.safetensors")}
    assert shards == {"shard-00001", "shard-00002"}, "each rank has written its own"


def test_a_run_whose_ray_head_is_killed_is_resumed(tmp_path: Path, bandit_policy: Path) -> None:
    """Without the cluster's head no module can be supervised: all of them end, and a new cluster continues the run."""
    recipe, run_dir = slow_learner(bandit_policy, 10_000, runtime={"kind": "ray"}), tmp_path / "run"
    process = start_run(tmp_path, recipe)
    wait_until(lambda: process.poll() is not None or train_step(run_dir) >= 2)
    assert process.poll() is None, process.communicate()[1]
    head = [one for one in psutil.Process(process.pid).children(recursive=True) if one.name() in HEAD]
    assert {one.name() for one in head} == set(HEAD)
    for one in head:
        one.kill()
    process.communicate(timeout=480)
    assert process.returncode
    wait_until(lambda: not everybody(run_dir))
    step = train_step(run_dir)
    summary = finish(start_run(tmp_path, recipe, "--resume", "--set", f"train.max_train_steps={step + 2}"))
    assert summary["train_steps"] == step + 2
    with closing(Ledger.view(run_dir)) as ledger:
        assert not check_ledger(ledger, recipe.admission.max_lag).findings
