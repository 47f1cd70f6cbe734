"""The Ray cluster that manifests describe: a head with the supervisor, and one node for each module.

A node has exactly the resources of its module, so Ray places every module on its own node, and the scheduler that made
the nodes decides about machines, images and restarts.
"""

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from quartet.config import Recipe
from quartet.errors import ConfigError
from quartet.runtime.placement import GIGABYTE, Placed, bundles, check_placement, placement_plan

PORT = 6379
"""Port of the cluster's head."""
OBJECT_STORE_BYTES = 80_000_000
RUNS = "/runs"
"""Folder that all nodes share."""
PATIENT = "placement.wait_seconds=1800"
"""Setting that --set can override: machines are started, and images loaded, before their nodes join."""
FIXED = ("runtime.kind=ray", "placement.address=auto", "runtime.engine_host=0.0.0.0", "runtime.env_host=0.0.0.0")
"""Settings of a run on such a cluster."""
AUTH_MODE, AUTH_TOKEN = {"RAY_AUTH_MODE": "token"}, "RAY_AUTH_TOKEN"
"""Variables of all nodes: without a token, any program that reaches Ray's ports can run code on all nodes."""
NAME = re.compile("[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
"""DNS label of a service (RFC 1035), short enough for `NAME-ROLE-NUMBER`."""
Manifest = dict[str, Any]


class Nodes(Struct, frozen=True, kw_only=True):
    """Equal nodes, one for each module of a role."""

    role: str
    count: int
    needs: Placed

    def join(self, head: str) -> str:
        """Return the command that joins a node to the cluster of the host `head`."""
        one = self.needs
        options = [f"--address={head}:{PORT}", f"--num-cpus={math.ceil(one.cpus)}", f"--num-gpus={math.ceil(one.gpus)}"]
        options += [f"--memory={math.ceil(one.memory_gigabytes * GIGABYTE)}"] if one.memory_gigabytes else []
        options += [f"--labels={','.join(f'{key}={value}' for key, value in one.labels.items())}"] if one.labels else []
        return shlex.join(["ray", "start", *options, f"--object-store-memory={OBJECT_STORE_BYTES}", "--block"])


class Deployment(Struct, frozen=True, kw_only=True):
    """Input of the writers of manifests."""

    name: str
    """Name of the run, as a DNS label."""
    nodes: Sequence[Nodes]
    train: str
    """Shell command of the head: start Ray, then train, or resume a run that began before."""


def deployment(recipe: Recipe, written: str, overrides: Sequence[str]) -> Deployment:
    """Return the cluster of a recipe. `written` names the recipe where the head runs; `overrides` are its settings.

    Raises `ConfigError` if the recipe can run on one machine only, its name is no DNS label, or its placement has a
    label that Ray itself gives to nodes.
    """
    check_placement(recipe)
    name = recipe.name.replace("_", "-").lower()
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"the name {recipe.name!r} cannot name services",
            "use at most 40 letters, digits and inner dashes, a letter first: --set name=...",
        )
    plan = bundles(placement_plan(recipe))
    if given := [key for one in plan for key in one.labels if key.startswith("ray.io/")]:
        raise ConfigError(
            f"the label {given[0]} of [placement] is given to nodes by Ray, which no scheduler knows before Ray runs",
            "use a label that the cluster's nodes have",
        )
    run_dir = f"{RUNS}/{recipe.name}"
    settings = [part for override in (PATIENT, *overrides, *FIXED) for part in ("--set", override)]
    train = shlex.join(["quartet", "train", written, "--run-dir", run_dir, *settings])
    head = f"ray start --head --port={PORT} --num-cpus=0 --num-gpus=0 --object-store-memory={OBJECT_STORE_BYTES}"
    resume = f"[ -e {shlex.quote(run_dir)}/config.toml ] && set -- --resume"
    return Deployment(name=name, nodes=_nodes(plan), train=f'{head}; {resume}; exec {train} "$@"')


def _nodes(plan: Sequence[Placed]) -> list[Nodes]:
    by_role: Mapping[str, list[Placed]] = {one.role: [] for one in plan}
    for one in plan:
        by_role[one.role].append(one)
    return [Nodes(role=role, count=len(same), needs=same[0]) for role, same in by_role.items()]
