"""Settings of a run on a Ray cluster: the cluster, and the resources that modules need."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from quartet.config.section import PositiveFloat, Section


def _label(text: str) -> str:
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise ValueError(f"{text!r} is not a label -> write KEY=VALUE, such as zone=a")
    return text


def _whole_or_shared(gpus: float) -> float:
    if gpus > 1 and gpus != int(gpus):
        raise ValueError(f"{gpus:g} GPUs cannot be reserved -> give a whole number, or less than 1 to share a GPU")
    return gpus


Label = Annotated[str, AfterValidator(_label)]
"""Label of a node, `KEY=VALUE`."""


class Needs(Section):
    """Resources of each module process of one role. All ranks of a trainer count as one process."""

    cpus: Annotated[float, Field(ge=0)] | None = None
    """CPU cores. If unset: one for each PyTorch thread of the process."""
    gpus: Annotated[float, Field(ge=0), AfterValidator(_whole_or_shared)] | None = None
    """GPUs; less than 1 shares a GPU. If unset: `engine.tensor_parallel` for an engine that starts vLLM (set 0 if vLLM
    computes on the CPU), 1 if the recipe names a CUDA device for this role, otherwise 0. The process sees only its own
    GPUs, so the device is `cuda`, without a number."""
    memory_gigabytes: Annotated[float, Field(ge=0)] = 0.0
    """Memory, in GB of 10^9 bytes, that is reserved on the node; 0 reserves none."""
    labels: list[Label] = []
    """Labels that the node must have, each `KEY=VALUE`."""


class Placement(Section):
    """Cluster of `runtime.kind = "ray"`, and the resources of the modules. Also used by `quartet deploy`."""

    address: str = "local"
    """Ray cluster. `local` starts one on this machine, which ends with the run. `auto` is the cluster that this machine
    belongs to, or that RAY_ADDRESS names; `HOST:PORT` is that of a head node."""
    strategy: Literal["pack", "spread"] = "pack"
    """`pack` uses as few nodes as possible, `spread` as many."""
    wait_seconds: PositiveFloat = 60.0
    """Maximum wait for missing resources, for instance until an autoscaler has added a node. Then the run ends with a
    list of what is missing. A `local` cluster is never waited for, since it does not grow."""
    engine: Needs = Needs()
    """Resources of each engine."""
    worker: Needs = Needs()
    """Resources of each rollout worker."""
    env: Needs = Needs()
    """Resources of each environment host."""
    manager: Needs = Needs()
    """Resources of the data manager."""
    trainer: Needs = Needs()
    """Resources of each trainer."""
    sink: Needs = Needs(cpus=0.1)
    """Resources of each sink."""
