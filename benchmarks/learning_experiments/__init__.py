"""The experiments of `benchmarks/learning.py`: one file each, found by its name."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.learning_experiments.base import Experiment

NAMES = (
    "rloo",
    "dr_grpo",
    "dapo",
    "lag",
    "history",
    "rift",
    "lite_ppo",
    "turn_ppo",
    "ppo",
    "vl_dac",
    "grpo_tcr",
    "rlinf_co",
    "digirl",
)
"""Names of the experiments: their files, and the recipes whose pages show the results."""
TUNING = ("history_tuning",)
"""Names of the experiments that choose settings, on seeds that are never published."""

FOLDERS = {"learning": __name__, "strategies": "benchmarks.strategies"}
"""Family of experiments, the beginning of the names of its raw results -> the folder of their files."""


def find(name: str, family: str = "learning") -> "type[Experiment]":
    """Return the experiment of a file, its class `Main`."""
    return import_module(f"{FOLDERS[family]}.{name}").Main
