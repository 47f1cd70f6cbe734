"""Modules on a Ray cluster: a placement group reserves the plan, and an actor keeps each module (`keeper.py`).

Ray finds the nodes, reserves their resources, moves the reservation of a lost node, reports lost actors, and ends all
of them with this process. The supervisor decides about restarts as on one machine, since only it knows the exit codes
after which a restart is useless; so the actors have no restarts of their own.
"""

import logging
import math
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import ray  # pyright: ignore[reportMissingImports]
from ray._private.state import available_resources_per_node  # pyright: ignore[reportMissingImports]
from ray.exceptions import RayError  # pyright: ignore[reportMissingImports]
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group  # pyright: ignore[reportMissingImports]
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy  # pyright: ignore[reportMissingImports]

from quartet import __version__
from quartet.config import Recipe
from quartet.errors import SetupError
from quartet.runtime.placement import GIGABYTE, Node, Placed, bundles, check_placement, placement_plan, shortage
from quartet.runtime.placer.base import Placer
from quartet.runtime.placer.keeper import Ended, Keeper
from quartet.runtime.start_ranks import Together
from quartet.terminal.say import say

KILL_SECONDS = 5.0
"""Maximum wait for the answer of an actor that kills its module. A lost node does not answer."""
OBJECT_STORE_BYTES = 80_000_000
"""Memory of a local cluster's object store, which holds exit codes only. Ray requires at least 75 MiB."""
_ADVICE = (
    'start one with `ray start --head`, or set placement.address="local" for one on this machine; if the cluster '
    "requires a token, set RAY_AUTH_MODE=token in the environment"
)
_ADVICE_HERE = 'try again when this machine is less busy, or `ray start --head` and set placement.address="auto"'


class OnRay(Placer):
    """Starts modules as actors of one placement group."""

    def __init__(self, recipe: Recipe, run_dir: Path) -> None:
        super().__init__(recipe, run_dir.resolve())
        self._plan = placement_plan(recipe)
        self._bundles = bundles(self._plan)
        self._group: Any = None

    def __enter__(self) -> Self:
        """Reserve the plan. Raises `SetupError` if the cluster does not answer or lacks resources."""
        _connect(self._recipe, self._plan)
        try:
            self._group = self._reserved()
            self._check_nodes()
        except BaseException:
            ray.shutdown()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the resources back; a cluster of this run ends."""
        remove_placement_group(self._group)
        ray.shutdown()

    def start(self, module: str, log: Path) -> "OnNode | OnNodes":
        """Start a module on the node of its bundle, with the GPUs that Ray assigns to it; a trainer over several nodes
        on all of them."""
        parts = [(self._actor(one), one) for one in self._plan if one.module == module]
        if len(parts) == 1:
            return OnNode(*parts[0], log.resolve())
        size, meet_at = sum(one.ranks for _, one in parts), parts[0][0].address.remote()
        return OnNodes([OnNode(actor, one, log.resolve(), size, meet_at) for actor, one in parts])

    def _actor(self, one: Placed) -> Any:
        bundles = [(bundle.module, bundle.first_rank) for bundle in self._bundles]
        index = bundles.index((one.beside or one.module, one.first_rank))
        actor = ray.remote(Keeper).options(
            num_cpus=one.cpus,
            num_gpus=one.gpus,
            memory=one.memory_gigabytes * GIGABYTE or None,
            scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=index),
        )
        return actor.remote(self._run_dir)

    def _reserved(self) -> Any:
        """Return the placement group once it is reserved. Raises `SetupError` with what is missing."""
        placement = self._recipe.placement
        seconds = placement.wait_seconds
        missing = shortage(self._plan, _nodes())
        if missing and placement.address != "local":
            said = "\n  ".join(missing)
            say(f"the cluster lacks resources; waiting up to {seconds:g} s for them\n  {said}", fg="yellow", err=True)
        group = placement_group(
            [_bundle(one) for one in self._bundles],
            strategy=placement.strategy.upper(),
            bundle_label_selector=[one.labels for one in self._bundles],
        )
        if (missing and placement.address == "local") or not group.wait(math.ceil(seconds)):
            raise self._short(shortage(self._plan, _nodes()))
        return group

    def _short(self, missing: Sequence[str]) -> SetupError:
        what = "\n  ".join(missing) or "Ray reserved no nodes, although the sums of free resources suffice"
        if self._recipe.placement.address == "local":
            advice = 'lower [placement], or place the run on a cluster with placement.address = "auto"'
        else:
            advice = "add nodes, end other jobs (`ray status` lists what is used), or lower [placement]"
        return SetupError(f"the Ray cluster lacks resources:\n  {what}", advice)

    def _check_nodes(self) -> None:
        """Check a placement on several machines, and print it."""
        nodes = placement_group_table(self._group)["bundles_to_node_id"]
        if set(nodes.values()) <= {ray.get_runtime_context().get_node_id()}:
            return
        check_placement(self._recipe)
        names = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes()}
        placed = (f"{one.module} on {names[nodes[index]]}" for index, one in enumerate(self._bundles))
        say(f"placed: {', '.join(placed)}", err=True)


class OnNode:
    """A module's process on some node of the cluster, with the interface of `subprocess.Popen`."""

    def __init__(self, actor: Any, one: Placed, log: Path, size: int = 1, meet_at: Any = None) -> None:
        """Run the module in the actor; of a trainer over several nodes the ranks there, of `size`, which meet at an
        address."""
        self._actor, self._one, self._log = actor, one, log
        self._ended = actor.run.remote(one, log, __version__, size, meet_at)
        self._started = actor.pid.remote()
        self._pid: int | None = None
        self._code: int | None = None
        self._killed = False

    @property
    def pid(self) -> int | None:
        if self._pid is None and _is_ready(self._started, 0.0):
            self._pid = _result(self._started, None)
        return self._pid

    def poll(self) -> int | None:
        if self._code is None and _is_ready(self._ended, 0.0):
            self._code = self._read_end()
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        if not _is_ready(self._ended, timeout):
            raise subprocess.TimeoutExpired(self._one.module, timeout or 0.0)
        code = self.poll()
        assert code is not None
        return code

    def terminate(self) -> None:
        self._actor.terminate.remote()

    def kill(self) -> None:
        """Kill the module and end its actor, so that the resources are free for another one."""
        self._killed = True
        _is_ready(self._actor.kill.remote(), KILL_SECONDS)
        ray.kill(self._actor)

    def _read_end(self) -> int:
        """Return the exit code. An error of Ray or of the keeper becomes the last words in the module's log."""
        try:
            ended: Ended = ray.get(self._ended)
        except RayError as error:
            ended = Ended(-signal.SIGKILL, "" if self._killed else f"Ray lost {self._one.module}: {_first_line(error)}")
        if ended.error:
            with self._log.open("a") as log:
                print(ended.error, file=log)
        return ended.code


class OnNodes(Together[OnNode]):
    """Ranks of a trainer over several nodes."""

    @property
    def pid(self) -> int | None:
        """Process id of rank 0 on its node."""
        return self._processes[0].pid


def _connect(recipe: Recipe, plan: Sequence[Placed]) -> None:
    """Connect to the cluster, or start one on this machine that has enough logical CPUs: its modules share the
    processors, as without Ray."""
    address, more = recipe.placement.address, {}
    if address == "local":
        cpus = max(math.ceil(sum(one.cpus for one in plan)), os.cpu_count() or 1)
        more = {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    found = [os.environ.get("PYTHONPATH", ""), str(Path.cwd())]  # a recipe may name a part in a local file
    variables = {"PYTHONPATH": os.pathsep.join(filter(None, found))}
    try:
        ray.init(
            address, runtime_env={"env_vars": variables}, log_to_driver=False, logging_level=logging.WARNING, **more
        )
    except Exception as error:  # Ray has no class for the error of a node that starts too slowly
        raise SetupError(
            f"cannot use the Ray cluster at placement.address = {address!r}: {_first_line(error)}",
            _ADVICE_HERE if address == "local" else _ADVICE,
        ) from error


def _nodes() -> list[Node]:
    """Return the nodes of the cluster with their free resources; a node that has not reported yet is free."""
    reported = available_resources_per_node()  # a function for developers: Ray has no public one by node
    nodes = []
    for node in ray.nodes():
        free = reported.get(node["NodeID"], node["Resources"])
        memory = free.get("memory", 0.0) / GIGABYTE
        if node["Alive"]:
            nodes.append(
                Node(
                    cpus=free.get("CPU", 0.0),
                    gpus=free.get("GPU", 0.0),
                    memory_gigabytes=memory,
                    labels=node.get("Labels") or {},
                )
            )
    return nodes


def _bundle(one: Placed) -> dict[str, float]:
    needs = {"CPU": one.cpus, "GPU": one.gpus, "memory": one.memory_gigabytes * GIGABYTE}
    return {name: amount for name, amount in needs.items() if amount}


def _is_ready(ref: Any, timeout: float | None) -> bool:
    return bool(ray.wait([ref], timeout=timeout)[0])


def _result(ref: Any, default: Any) -> Any:
    """Return the result of a call that has ended, or `default` if its actor was lost."""
    try:
        return ray.get(ref)
    except RayError:
        return default


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
