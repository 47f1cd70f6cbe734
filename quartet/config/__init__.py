"""Every knob of a run, typed, with its meaning under the field. Imports nothing heavy.

A recipe is a TOML file with these sections; `quartet.recipe_file.load_recipe` reads it.
"""

from quartet.config.control import Admission, Control, DynamicRollouts, LongestSuccess, Staged, Vade
from quartet.config.curation import AccuracyBand, Broken, Filter, Overlong, Replay
from quartet.config.recipe import RESUMABLE_KNOBS, Recipe
from quartet.config.rollouts import Engine, Env, Model, Rollout
from quartet.config.running import Disk, Evaluation, Ledger, Runtime
from quartet.config.section import Section
from quartet.config.training import Advantage, Loss, Sft, Train

__all__ = [
    "RESUMABLE_KNOBS",
    "AccuracyBand",
    "Admission",
    "Advantage",
    "Broken",
    "Control",
    "Disk",
    "DynamicRollouts",
    "Engine",
    "Env",
    "Evaluation",
    "Filter",
    "Ledger",
    "LongestSuccess",
    "Loss",
    "Model",
    "Overlong",
    "Recipe",
    "Replay",
    "Rollout",
    "Runtime",
    "Section",
    "Sft",
    "Staged",
    "Train",
    "Vade",
]
