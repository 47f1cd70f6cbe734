"""Placement plan of a run: the resources that each module process needs, and what a cluster lacks for them.

`quartet train` reserves the plan on Ray, and `quartet deploy` writes it as manifests. Nothing here imports either.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, structs

from quartet.access.rules import is_loopback
from quartet.config import Recipe
from quartet.config.placement import Needs
from quartet.errors import ConfigError
from quartet.registry import find, own_settings
from quartet.report.show import counted

LEAST_CPUS = 0.01
"""CPUs of a module that asks for none: a cluster cannot place a process without any resource."""
GIGABYTE = 10**9


class Placed(Struct, frozen=True, kw_only=True):
    """One module process, or all ranks of a trainer on one node together, and the resources that it needs."""

    module: str
    cpus: float
    gpus: float = 0.0
    memory_gigabytes: float = 0.0
    labels: dict[str, str] = {}
    ranks: int = 1
    first_rank: int = 0
    threads: int = 1
    """PyTorch threads of each rank."""
    beside: str = ""
    """Module whose device this one shares; it is placed with that module."""

    @property
    def role(self) -> str:
        """Role of the module: `engine` for `engine-2`."""
        return self.module.partition("-")[0]

    def described(self) -> str:
        """Return the resources in words, such as `2 CPUs, 1 GPU on a node with zone=a`."""
        parts = [counted(self.cpus, "CPU")]
        parts += [counted(self.gpus, "GPU")] if self.gpus else []
        parts += [f"{self.memory_gigabytes:g} GB"] if self.memory_gigabytes else []
        labels = " and ".join(f"{key}={value}" for key, value in self.labels.items())
        parts[-1] += f" on a node with {labels}" if labels else ""
        parts[-1] += f" beside the {self.beside}" if self.beside else ""
        return ", ".join(parts)


class Node(Struct, kw_only=True):
    """One node of a cluster: the resources that are free on it, and its labels."""

    cpus: float
    gpus: float = 0.0
    memory_gigabytes: float = 0.0
    labels: dict[str, str] = {}


def placement_plan(recipe: Recipe) -> list[Placed]:
    """Return the module processes of training with their resources, in the order in which they are started. A trainer
    over several nodes has one entry for each."""
    return [part for module in recipe.modules for part in _parts(placed(recipe, module), recipe.train.nodes)]


def bundles(plan: Sequence[Placed]) -> list[Placed]:
    """Return what is reserved together on one node: each module, with those that share its device."""
    hosts = [one for one in plan if not one.beside]
    return [
        _with_guests(host, [one for one in plan if one.beside == host.module and not host.first_rank]) for host in hosts
    ]


def placement_table(plan: Sequence[Placed]) -> str:
    """Return the plan as text: a line per module and the sum."""
    width = max(len(one.module) for one in plan)
    rows = [f"  {one.module:{width}}  {one.described()}" for one in plan]
    total = Placed(
        module="total",
        cpus=sum(one.cpus for one in plan),
        gpus=sum(one.gpus for one in plan),
        memory_gigabytes=sum(one.memory_gigabytes for one in plan),
    )
    return "\n".join(["placement", *rows, f"  {'total':{width}}  {total.described()}"])


def shortage(plan: Sequence[Placed], nodes: Sequence[Node]) -> list[str]:
    """Return the modules that fit on no node beside the others, each with the reason; empty if all fit.

    Modules that need labels are placed first, then the largest, each on the node with room that has the fewest free
    GPUs and CPUs (best fit). Ray may find a placement where this one fails, so a shortage on several nodes is reported
    and not refused.
    """
    free = [Node(cpus=n.cpus, gpus=n.gpus, memory_gigabytes=n.memory_gigabytes, labels=n.labels) for n in nodes]
    missing = []
    for one in sorted(bundles(plan), key=lambda one: (not one.labels, -one.gpus, -one.cpus)):
        labelled = [node for node in free if one.labels.items() <= node.labels.items()]
        if fitting := [node for node in labelled if _fits(one, node)]:
            node = min(fitting, key=lambda node: (node.gpus, node.cpus))
            node.cpus -= one.cpus
            node.gpus -= one.gpus
            node.memory_gigabytes -= one.memory_gigabytes
        else:
            missing.append(f"{one.module} needs {one.described()}: {_reason(one, labelled, nodes)}")
    return missing


def check_placement(recipe: Recipe) -> None:
    """Raise `ConfigError` if a cluster of several machines cannot run the recipe: its ledger is a file, or its servers
    listen on the loopback address only."""
    if not recipe.ledger.url:
        raise ConfigError(
            "the ledger is a SQLite file, which only one machine can use, and the modules are placed on several",
            'set ledger.url = "postgresql://USER@HOST/DATABASE"',
        )
    for setting in ("engine_host", "env_host"):
        host = getattr(recipe.runtime, setting)
        if is_loopback(host):
            raise ConfigError(
                f"runtime.{setting} = {host!r} cannot be reached from other machines, on which modules are placed",
                f'set runtime.{setting} = "0.0.0.0", and runtime.tls unless the network is private',
            )


def placed(recipe: Recipe, module: str) -> Placed:
    """Return the resources of one module process of the run, all ranks of a trainer together."""
    role = module.partition("-")[0]
    needs: Needs = getattr(recipe.placement, role)
    threads = {"engine": recipe.engine.threads, "trainer": recipe.train.threads}.get(role, 1)
    ranks = recipe.train.processes if role == "trainer" else 1
    gpus = _gpus(recipe, module) if needs.gpus is None else needs.gpus
    is_guest = module in recipe.guest_modules
    return Placed(
        module=module,
        cpus=max(threads * ranks if needs.cpus is None else needs.cpus, LEAST_CPUS),
        gpus=gpus,
        beside=recipe.host_trainer if is_guest else "",
        memory_gigabytes=needs.memory_gigabytes,
        labels=dict(label.split("=", 1) for label in needs.labels),
        ranks=ranks,
        threads=threads,
    )


def _gpus(recipe: Recipe, module: str) -> float:
    """Return the number of GPUs of a module, if the recipe does not state it. A trainer and the engines that share its
    GPU take equal parts of it."""
    role, guests = module.partition("-")[0], recipe.guest_modules
    if guests and (module in guests or module == recipe.host_trainer):
        return 1 / (1 + len(guests)) if recipe.train.device.startswith("cuda") else 0
    if role == "engine":
        backend: Any = find(recipe.engine.kind, recipe.engine.name)
        return backend.gpus(own_settings(recipe.engine), recipe)
    return recipe.train.processes if role == "trainer" and recipe.train.device.startswith("cuda") else 0


def _parts(one: Placed, nodes: int) -> list[Placed]:
    """Return a trainer's equal parts on the nodes over which its ranks are dealt; any other module as it is."""
    if one.role != "trainer" or nodes == 1:
        return [one]
    ranks = one.ranks // nodes
    return [
        structs.replace(
            one,
            cpus=one.cpus / nodes,
            gpus=one.gpus / nodes,
            memory_gigabytes=one.memory_gigabytes / nodes,
            ranks=ranks,
            first_rank=node * ranks,
        )
        for node in range(nodes)
    ]


def _with_guests(one: Placed, guests: Sequence[Placed]) -> Placed:
    together = [one, *guests]
    return structs.replace(
        one,
        cpus=sum(each.cpus for each in together),
        gpus=round(sum(each.gpus for each in together), 3),
        memory_gigabytes=sum(each.memory_gigabytes for each in together),
    )


def _fits(one: Placed, node: Node) -> bool:
    return one.cpus <= node.cpus and one.gpus <= node.gpus and one.memory_gigabytes <= node.memory_gigabytes


def _reason(one: Placed, labelled: Sequence[Node], nodes: Sequence[Node]) -> str:
    """Return why no node has room, from the free resources beside modules that were placed before."""
    if not labelled:
        return f"none of {counted(len(nodes), 'node')} has these labels"
    free = max(labelled, key=lambda node: (node.gpus, node.cpus))
    left = Placed(module="", cpus=max(free.cpus, 0.0), gpus=free.gpus, memory_gigabytes=free.memory_gigabytes)
    return f"the most that a node has left is {left.described()}"
