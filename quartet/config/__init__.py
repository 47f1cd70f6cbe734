"""Settings of a run, typed, each documented under its field. Imports nothing heavy.

A recipe is a TOML file with these sections; `quartet.recipe.file.load_recipe` reads it. A relative path in the file is
resolved against the file's folder, a relative path in an override against the current folder. The settings of parts are
in the files of the parts (`quartet.part`).
"""

from quartet.config.choice import Choice
from quartet.config.control import Admission, Allocator, Control, Horizon, Sampler
from quartet.config.curation import Filter, Replay
from quartet.config.policies import PolicySource
from quartet.config.recipe import RESUMABLE_SETTINGS, Recipe
from quartet.config.rollouts import (
    ActionFormat,
    Brancher,
    Dispatch,
    Engine,
    Env,
    History,
    Loop,
    Model,
    Reward,
    Rollout,
)
from quartet.config.running import Disk, Evaluation, Ledger, Observe, Runtime, Sink
from quartet.config.section import PathMark, PolicyMark, Section
from quartet.config.stragglers import Straggler
from quartet.config.training import Credit, Critic, Lora, Loss, LossTerm, Publisher, Reference, Sft, Train

__all__ = [
    "RESUMABLE_SETTINGS",
    "ActionFormat",
    "Admission",
    "Allocator",
    "Brancher",
    "Choice",
    "Control",
    "Credit",
    "Critic",
    "Disk",
    "Dispatch",
    "Engine",
    "Env",
    "Evaluation",
    "Filter",
    "History",
    "Horizon",
    "Ledger",
    "Loop",
    "Lora",
    "Loss",
    "LossTerm",
    "Model",
    "Observe",
    "PathMark",
    "PolicyMark",
    "PolicySource",
    "Publisher",
    "Recipe",
    "Reference",
    "Replay",
    "Reward",
    "Rollout",
    "Runtime",
    "Sampler",
    "Section",
    "Sft",
    "Sink",
    "Straggler",
    "Train",
]
