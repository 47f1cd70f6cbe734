"""Manifest for SkyPilot: a job group with a task for the head and one for each role. The group ends with the head.

https://docs.skypilot.co/en/latest/examples/job-groups.html: tasks of a group find each other by `TASK-NODE.GROUP`.
"""

from quartet.errors import ConfigError
from quartet.runtime.deploy.base import AUTH_MODE, AUTH_TOKEN, RUNS, Deployment, Manifest, Nodes

HEAD = "head"


def skypilot(one: Deployment, *, setup: str, volume: str, gpu: str | None) -> list[Manifest]:
    """Return the documents of the job group: a header, then the tasks.

    `setup` is the shell command that installs Quartet, `volume` a SkyPilot volume that all nodes can mount, and `gpu`
    the type of GPUs. `sky jobs launch --secret` must give Ray's token. Raises `ConfigError` if the plan has GPUs and
    their type is missing.
    """
    common = {"setup": setup, "volumes": {RUNS: volume}, "envs": AUTH_MODE, "secrets": {AUTH_TOKEN: None}}
    head = {"name": HEAD, "resources": {"cpus": "1+"}, **common, "run": one.train}
    return [
        {"name": one.name, "execution": "parallel", "primary_tasks": [HEAD]},
        head,
        *(_task(one, nodes, gpu) | common for nodes in one.nodes),
    ]


def _task(one: Deployment, nodes: Nodes, gpu: str | None) -> Manifest:
    needs = nodes.needs
    resources: Manifest = {"cpus": f"{needs.cpus:g}+"}
    resources |= {"memory": f"{needs.memory_gigabytes:g}+"} if needs.memory_gigabytes else {}
    if needs.gpus:
        if gpu is None:
            raise ConfigError(
                f"{nodes.role} needs GPUs, and SkyPilot must know their type", "add --gpu, such as --gpu H100"
            )
        resources["accelerators"] = f"{gpu}:{needs.gpus:g}"
    run = f"exec {nodes.join(f'{HEAD}-0.{one.name}')}"
    return {"name": nodes.role, "num_nodes": nodes.count, "resources": resources, "run": run}
