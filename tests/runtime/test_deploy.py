"""Manifests made from a recipe's placement plan: valid by the schedulers' schemas, with the plan's resources."""

import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from quartet.access.place import HOST_NAME
from tests.command import quartet

RECIPE = ("first", "--set", "ledger.url=postgresql://quartet@db/runs", "--set", "engine.replicas=3")
GPUS = ("--set", "placement.engine.gpus=1", "--set", 'placement.engine.labels=["zone=a"]')
RAY_LABEL = 'placement.engine.labels=["ray.io/accelerator-type=H200"]'
MORE = ("--set", "placement.trainer.memory_gigabytes=64", "--set", "rollout.workers=2")
TASK_FIELDS = {"name", "num_nodes", "resources", "setup", "volumes", "envs", "secrets", "run"}
RESOURCE_FIELDS = {"cpus", "memory", "accelerators"}
"""Of https://docs.skypilot.co/en/latest/reference/yaml-spec.html"""


def deploy(*arguments: str) -> list[dict]:
    shown = quartet("deploy", *RECIPE, *GPUS, *MORE, *arguments)
    assert shown.returncode == 0, shown.stderr
    return list(yaml.safe_load_all(shown.stdout))


@pytest.fixture(scope="module")
def manifests() -> list[dict]:
    return deploy("--to", "kubernetes", "--image", "registry.example/quartet:1", "--storage-class", "nfs")


def test_manifests_of_kubernetes_fit_its_schemas(manifests) -> None:
    for manifest in manifests:
        kubernetes_validate.validate(manifest, "1.31", strict=True)
    manifests[-1]["spec"]["replica"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifests[-1], "1.31", strict=True)


def test_manifests_have_a_node_for_each_module_with_its_resources(manifests) -> None:
    sets = {one["metadata"]["name"]: one["spec"] for one in manifests if one["kind"] == "StatefulSet"}
    assert {name: spec["replicas"] for name, spec in sets.items()} == {
        "first-env": 1,
        "first-engine": 3,
        "first-worker": 2,
        "first-manager": 1,
        "first-trainer": 1,
    }
    engine, trainer = (sets[f"first-{role}"]["template"]["spec"] for role in ("engine", "trainer"))
    assert engine["nodeSelector"] == {"zone": "a"}
    assert engine["containers"][0]["resources"] == {
        "requests": {"cpu": "1000m", "nvidia.com/gpu": "1"},
        "limits": {"nvidia.com/gpu": "1"},
    }
    assert "--num-gpus=1 --labels=zone=a" in engine["containers"][0]["command"][2]
    assert trainer["containers"][0]["resources"] == {"requests": {"cpu": "1000m", "memory": "64G"}}


def test_every_node_of_the_cluster_requires_a_token(manifests) -> None:
    pods = [one["spec"]["template"]["spec"] for one in manifests if "template" in one["spec"]]
    assert len(pods) == 6
    for pod in pods:
        mode, token = (one for one in pod["containers"][0]["env"] if one["name"].startswith("RAY_"))
        assert mode == {"name": "RAY_AUTH_MODE", "value": "token"}
        assert token["valueFrom"]["secretKeyRef"] == {"name": "first", "key": "RAY_AUTH_TOKEN"}
    _, *tasks = deploy("--to", "skypilot", "--gpu", "H100")
    for task in tasks:
        assert task["envs"] == {"RAY_AUTH_MODE": "token"} and task["secrets"] == {"RAY_AUTH_TOKEN": None}


def test_pods_announce_a_name_that_others_resolve_and_linux_allows_as_a_host_name(manifests) -> None:
    """Full names, with namespace and cluster, exceed Linux' 64 characters for a run with a name of 14."""
    for one in manifests:
        if "template" in one["spec"]:
            pod, role = one["spec"]["template"]["spec"], one["metadata"]["name"].removeprefix("first-")
            env = {entry["name"]: entry for entry in pod["containers"][0]["env"]}
            assert env["POD"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
            host = "head" if role == "head" else "$(POD)"
            assert env[HOST_NAME]["value"] == f"{host}.first" and pod["subdomain"] == "first"
            assert list(env).index("POD") < list(env).index(HOST_NAME), "Kubernetes expands earlier variables only"
            assert "setHostnameAsFQDN" not in pod


def test_processes_of_a_pod_can_share_more_memory_than_64_megabytes(manifests) -> None:
    for one in manifests:
        if "template" in one["spec"]:
            pod = one["spec"]["template"]["spec"]
            assert {"name": "shm", "emptyDir": {"medium": "Memory"}} in pod["volumes"]
            assert {"name": "shm", "mountPath": "/dev/shm"} in pod["containers"][0]["volumeMounts"]


def test_the_head_trains_and_resumes_after_its_pod_was_replaced(manifests, tmp_path: Path) -> None:
    (head,) = (one for one in manifests if one["kind"] == "Job")
    command = head["spec"]["template"]["spec"]["containers"][0]["command"]
    programs = 'ray() { :; }; exec() { printf "%s " "$@"; }; '
    script = [*command[:2], programs + command[2].replace("/runs/first", str(tmp_path)), *command[3:]]
    before = subprocess.run(script, capture_output=True, text=True).stdout
    (tmp_path / "config.toml").touch()
    after = subprocess.run(script, capture_output=True, text=True).stdout
    assert before.startswith(f"quartet train first --run-dir {tmp_path} --set ") and "--resume" not in before
    assert after == before + "--resume "
    assert "--set runtime.kind=ray --set placement.address=auto" in before


def test_a_job_group_of_skypilot_has_documented_fields_and_ends_with_the_head() -> None:
    header, *tasks = deploy("--to", "skypilot", "--gpu", "H100")
    assert header == {"name": "first", "execution": "parallel", "primary_tasks": ["head"]}
    assert [task["name"] for task in tasks] == ["head", "env", "engine", "worker", "manager", "trainer"]
    assert all(task.keys() <= TASK_FIELDS and task["resources"].keys() <= RESOURCE_FIELDS for task in tasks)
    engine = tasks[2]
    assert (engine["num_nodes"], engine["resources"]) == (3, {"cpus": "1+", "accelerators": "H100:1"})
    assert engine["run"].startswith("exec ray start --address=head-0.first:6379 ")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("first", "--to", "kubernetes"), "the ledger is a SQLite file"),
        ((*RECIPE, *GPUS, "--to", "skypilot"), "SkyPilot must know their type"),
        ((*RECIPE, "--to", "kubernetes", "--set", "name=päge"), "cannot name services"),
        ((*RECIPE, "--to", "kubernetes", "--set", "name=2nd"), "cannot name services"),
        ((*RECIPE, "--to", "kubernetes", "--set", RAY_LABEL), "given to nodes by Ray"),
        ((*RECIPE, "--to", "kubernetes"), "needs an image"),
        ((*RECIPE, "--to", "kubernetes", "--set", "placement.engine.gpus=1.5"), "1.5 GPUs cannot be reserved"),
    ],
)
def test_a_recipe_that_no_cluster_can_run_is_refused(arguments, reason) -> None:
    told = quartet("deploy", *arguments)
    assert told.returncode == 2 and reason in told.stderr
