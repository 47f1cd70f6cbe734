"""Every knob of a run, typed, with its meaning under the field. Imports nothing heavy.

A recipe is a TOML file with these sections; `quartet.recipe_file.load_recipe` reads it. A relative path in the file
begins at the file's folder, one in an override at the current folder.
"""

from quartet.config.control import Admission, Control, DynamicRollouts, LongestSuccess, Staged, Vade
from quartet.config.curation import AccuracyBand, Broken, Filter, Overlong, Replay
from quartet.config.recipe import RESUMABLE_KNOBS, Recipe
from quartet.config.rollouts import Engine, Env, Model, OpenAI, Rollout, Vllm
from quartet.config.running import Disk, Evaluation, Ledger, Observe, Runtime
from quartet.config.section import PathMark, Section
from quartet.config.stragglers import April, EarlyStop, Redundancy, Stragglers
from quartet.config.training import Advantage, Loss, Sft, Train

__all__ = [
    "RESUMABLE_KNOBS",
    "AccuracyBand",
    "Admission",
    "Advantage",
    "April",
    "Broken",
    "Control",
    "Disk",
    "DynamicRollouts",
    "EarlyStop",
    "Engine",
    "Env",
    "Evaluation",
    "Filter",
    "Ledger",
    "LongestSuccess",
    "Loss",
    "Model",
    "Observe",
    "OpenAI",
    "Overlong",
    "PathMark",
    "Recipe",
    "Redundancy",
    "Replay",
    "Rollout",
    "Runtime",
    "Section",
    "Sft",
    "Staged",
    "Stragglers",
    "Train",
    "Vade",
    "Vllm",
]
