"""The placement plan: what each module needs, and what a cluster lacks for it."""

from pathlib import Path

import pytest

from benchmarks.bandit import bandit_recipe
from quartet.errors import ConfigError
from quartet.runtime.placement import Node, check_placement, placement_plan, placement_table, shortage

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
