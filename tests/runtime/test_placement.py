"""The placement plan: what each module needs, and what a cluster lacks for it."""

from pathlib import Path

import pytest

from benchmarks.bandit import bandit_recipe
from quartet.errors import ConfigError
from quartet.runtime.placement import Node, bundles, check_placement, placement_plan, placement_table, shortage

ON_GPUS = {
    "engine": {"replicas": 2, "device": "cuda", "threads": 4},
    "train": {"device": "cuda", "processes": 1},
    "rollout": {"workers": 2},
    "placement": {"engine": {"labels": ["zone=a"]}, "trainer": {"cpus": 8, "gpus": 2, "memory_gigabytes": 64}},
}


def plan(**sections: dict) -> list:
    return placement_plan(bandit_recipe(Path("unused"), **sections))


def test_the_plan_names_every_module_with_what_it_needs() -> None:
    said = placement_table(plan(**ON_GPUS))
    assert said.splitlines() == [
        "placement",
        "  env       1 CPU",
        "  engine    4 CPUs, 1 GPU on a node with zone=a",
        "  engine-2  4 CPUs, 1 GPU on a node with zone=a",
        "  worker    1 CPU",
        "  worker-2  1 CPU",
        "  manager   1 CPU",
        "  trainer   8 CPUs, 2 GPUs, 64 GB",
        "  total     20 CPUs, 4 GPUs, 64 GB",
    ]


@pytest.mark.parametrize(
    ("engine", "gpus"),
    [({}, 1), ({"tensor_parallel": 4}, 4), ({"url": "http://127.0.0.1:8000"}, 0)],
    ids=["one GPU", "tensor parallel", "a server elsewhere"],
)
def test_a_vllm_engine_reserves_the_gpus_of_its_server(engine: dict, gpus: int) -> None:
    (placed,) = (one for one in plan(engine={"name": "vllm", **engine}) if one.module == "engine")
    assert placed.gpus == gpus
    stated = plan(engine={"name": "vllm", **engine}, placement={"engine": {"gpus": 0}})
    assert {one.gpus for one in stated} == {0}


def test_an_engine_beside_the_trainer_is_placed_with_it_and_shares_its_gpu() -> None:
    sections = {"engine": {"replicas": 2, "replicas_beside_trainer": 1, "device": "cuda"}, "train": {"device": "cuda"}}
    said = placement_table(plan(**sections)).splitlines()
    assert "  engine    1 CPU, 1 GPU" in said
    assert "  engine-2  1 CPU, 0.5 GPUs beside the trainer" in said
    assert "  trainer   1 CPU, 0.5 GPUs" in said
    together = {one.module: (one.cpus, one.gpus) for one in bundles(plan(**sections))}
    assert together["trainer"] == (2, 1) and "engine-2" not in together
    assert shortage(plan(**sections), [Node(cpus=4, gpus=1), Node(cpus=2, gpus=1)]) == []
    (missing,) = shortage(plan(**sections), [Node(cpus=9, gpus=1)])
    assert missing.startswith("engine needs 1 CPU, 1 GPU") or missing.startswith("trainer needs 2 CPUs, 1 GPU")


def test_a_trainer_over_two_nodes_has_an_equal_part_on_each() -> None:
    sections = {
        "runtime": {"kind": "ray"},
        "train": {"processes": 4, "nodes": 2},
        "placement": {"trainer": {"cpus": 8}},
    }
    parts = [one for one in plan(**sections) if one.module == "trainer"]
    assert [(one.cpus, one.ranks, one.first_rank) for one in parts] == [(4, 2, 0), (4, 2, 2)]
    assert shortage(plan(**sections), [Node(cpus=8), Node(cpus=4)]) == []
    with pytest.raises(ConfigError, match="cannot be dealt evenly"):
        plan(train={"processes": 3, "nodes": 2})
    with pytest.raises(ConfigError, match="start the ranks by torchrun"):
        plan(train={"processes": 2, "nodes": 2})


def test_one_engine_at_least_serves_while_the_trainer_computes() -> None:
    with pytest.raises(ConfigError, match=r"no engine would serve\n  -> set engine\.replicas above"):
        plan(engine={"replicas": 1, "replicas_beside_trainer": 1})


def test_a_cluster_with_room_for_all_modules_lacks_nothing() -> None:
    gpus = Node(cpus=8, gpus=2, memory_gigabytes=100, labels={"zone": "a"})
    assert shortage(plan(**ON_GPUS), [gpus, Node(cpus=12, gpus=2, memory_gigabytes=64)]) == []
    assert shortage(plan(), [Node(cpus=3), Node(cpus=2)]) == []


def test_a_module_that_fits_nowhere_is_named_with_what_is_left() -> None:
    one = Node(cpus=9, gpus=3, memory_gigabytes=100, labels={"zone": "a"})
    rest = Node(cpus=20, gpus=0, memory_gigabytes=100)
    assert shortage(plan(**ON_GPUS), [one, rest]) == [
        "trainer needs 8 CPUs, 2 GPUs, 64 GB: the most that a node has left is 1 CPU, 1 GPU, 100 GB",
    ]
    assert shortage(plan(), [Node(cpus=4)]) == ["trainer needs 1 CPU: the most that a node has left is 0 CPUs"]


def test_a_label_that_no_node_has_is_named() -> None:
    (missing,) = shortage(plan(placement={"env": {"labels": ["kvm=yes"]}}), [Node(cpus=9), Node(cpus=9)])
    assert missing == "env needs 1 CPU on a node with kvm=yes: none of 2 nodes has these labels"


def test_shares_of_a_gpu_fit_together() -> None:
    halves = {"engine": {"replicas": 2}, "placement": {"engine": {"gpus": 0.5}}}
    assert shortage(plan(**halves), [Node(cpus=9, gpus=1)]) == []
    assert len(shortage(plan(**halves), [Node(cpus=9, gpus=0.5)])) == 1


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({}, "the ledger is a SQLite file"),
        ({"ledger": {"url": "postgresql://u@h/d"}}, "runtime.engine_host = '127.0.0.1' cannot be reached"),
        (
            {"ledger": {"url": "postgresql://u@h/d"}, "runtime": {"engine_host": "0.0.0.0"}},
            "runtime.env_host = '127.0.0.1' cannot be reached",
        ),
    ],
)
def test_a_recipe_of_one_machine_is_refused_on_several(sections: dict, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        check_placement(bandit_recipe(Path("unused"), **sections))


def test_several_machines_run_a_recipe_with_a_database_server_and_addresses() -> None:
    sections = {
        "ledger": {"url": "postgresql://u@h/d"},
        "runtime": {"engine_host": "0.0.0.0", "env_host": "desktops-1"},
    }
    check_placement(bandit_recipe(Path("unused"), **sections))


@pytest.mark.parametrize("label", ["zone", "=a", "zone="])
def test_a_label_has_a_key_and_a_value(label: str) -> None:
    with pytest.raises(ConfigError, match="is not a label\n  -> write KEY=VALUE"):
        bandit_recipe(Path("unused"), placement={"engine": {"labels": [label]}})
