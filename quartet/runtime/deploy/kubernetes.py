"""Manifests for Kubernetes: a headless service, a shared volume, a job for the head, a stateful set for each role.

Only built-in kinds are used, so the cluster needs no operator.
"""

import math

from quartet.access.place import HOST_NAME
from quartet.runtime.deploy.base import AUTH_MODE, AUTH_TOKEN, PORT, RUNS, Deployment, Manifest, Nodes

HEAD = "head"
HEAD_RESOURCES = {"cpu": "1", "memory": "2Gi"}


def kubernetes(one: Deployment, *, image: str, storage: str, storage_class: str | None) -> list[Manifest]:
    """Return the manifests. The image has Quartet with the extras `ray` and `postgresql`.

    The secret with the run's name must have Ray's token; other variables in it, such as PGPASSWORD, are set too.
    """
    return [
        _service(one),
        _volume(one, storage, storage_class),
        _head(one, image),
        *(_stateful_set(one, nodes, image) for nodes in one.nodes),
    ]


def _service(one: Deployment) -> Manifest:
    """The service that gives every pod a name."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": _labels(one),
        "ports": [{"name": "ray", "port": PORT}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(one, one.name), "spec": spec}


def _volume(one: Deployment, storage: str, storage_class: str | None) -> Manifest:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": storage}}}
    spec |= {"storageClassName": storage_class} if storage_class else {}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": _metadata(one, one.name), "spec": spec}


def _head(one: Deployment, image: str) -> Manifest:
    """The job with the supervisor. A pod that fails is replaced, and resumes the run."""
    pod = _pod(one, HEAD, image, one.train, {"requests": HEAD_RESOURCES}, hostname=HEAD)
    pod["spec"] |= {"hostname": HEAD, "restartPolicy": "Never"}
    spec = {"backoffLimit": 6, "template": pod}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(one, f"{one.name}-{HEAD}"), "spec": spec}


def _stateful_set(one: Deployment, nodes: Nodes, image: str) -> Manifest:
    needs = {"cpu": f"{round(1000 * nodes.needs.cpus)}m"}
    needs |= {"memory": f"{nodes.needs.memory_gigabytes:g}G"} if nodes.needs.memory_gigabytes else {}
    gpus = {"nvidia.com/gpu": f"{math.ceil(nodes.needs.gpus)}"} if nodes.needs.gpus else {}
    resources = {"requests": needs | gpus} | ({"limits": gpus} if gpus else {})
    command = f"exec {nodes.join(f'{HEAD}.{one.name}')}"
    pod = _pod(one, nodes.role, image, command, resources, hostname="$(POD)")
    pod["spec"] |= {"nodeSelector": nodes.needs.labels} if nodes.needs.labels else {}
    role = _labels(one) | {"app.kubernetes.io/component": nodes.role}
    spec = {
        "serviceName": one.name,
        "replicas": nodes.count,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": role},
        "template": pod,
    }
    metadata = _metadata(one, f"{one.name}-{nodes.role}")
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}


def _pod(one: Deployment, role: str, image: str, command: str, resources: Manifest, *, hostname: str) -> Manifest:
    """A pod, which other pods find as HOSTNAME.NAME. Its full name with namespace and cluster would be too long for a
    host name, which Linux limits to 64 characters."""
    container = {
        "name": role,
        "image": image,
        "command": ["bash", "-c", command, role],
        "resources": resources,
        "env": [{"name": name, "value": value} for name, value in AUTH_MODE.items()]
        + [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
        + [{"name": HOST_NAME, "value": f"{hostname}.{one.name}"}]
        + [{"name": AUTH_TOKEN, "valueFrom": {"secretKeyRef": {"name": one.name, "key": AUTH_TOKEN}}}],
        "envFrom": [{"secretRef": {"name": one.name}}],
        "volumeMounts": [{"name": "runs", "mountPath": RUNS}, {"name": "shm", "mountPath": "/dev/shm"}],
    }
    spec = {
        "subdomain": one.name,
        "containers": [container],
        "volumes": [
            {"name": "runs", "persistentVolumeClaim": {"claimName": one.name}},
            # Processes that share GPUs exchange tensors there, and 64 MB, the usual size, are too few.
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
        ],
    }
    return {"metadata": {"labels": _labels(one) | {"app.kubernetes.io/component": role}}, "spec": spec}


def _labels(one: Deployment) -> dict[str, str]:
    return {"app.kubernetes.io/name": "quartet", "app.kubernetes.io/instance": one.name}


def _metadata(one: Deployment, name: str) -> Manifest:
    return {"name": name, "labels": _labels(one)}
