"""Policies written beside training: a train step's weights are copied, and a thread writes the copy.

One policy is written at a time, and its train step is committed when its files are complete. Meanwhile the next batch
is trained, from the version that the commit will make.
"""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel

from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.policy.load import LoadedPolicy
from quartet.policy.lora import has_adapter
from quartet.policy.publisher.base import Publisher
from quartet.registry import build
from quartet.telemetry.presence import Presence
from quartet.telemetry.record import Recorder
from quartet.train.background_write import BackgroundWrite
from quartet.train.metrics.batch import PhaseTimer
from quartet.train.packing.branches import Branch
from quartet.train.publish import publish_policy, published_dtype
from quartet.types import Batch


class Publication(NamedTuple):
    """Trained batch whose policy is being written, with what its commit needs."""

    batch: Batch
    version: int
    """Version of the policy once the batch is committed."""
    folder: Path
    report: dict[str, float]
    """Metrics of the train step."""
    phases: PhaseTimer
    optimizer_step: int


class PolicyWriter(BackgroundWrite):
    """Writes the policies of one trainer."""

    def __init__(
        self, ledger: Ledger, recipe: Recipe, policy: LoadedPolicy, recorder: Recorder, presence: Presence
    ) -> None:
        """`policy.model` is where the trainer copies the weights that are written."""
        notify = partial(ledger.notifier.notify, "trainer")
        super().__init__("the files of the policy", presence, recipe.runtime.heartbeat_timeout_seconds, notify)
        self._policy, self._recipe = policy, recipe
        self._recorder = recorder
        self._publisher: Publisher = build(recipe.publisher)

    def publish(self, publication: Publication, branches: Sequence[Branch]) -> None:
        """Begin to write the weights in the model, with their canary, to the folder of the publication."""
        self.begin(partial(self._write_files, publication, branches))

    def _write_files(
        self, publication: Publication, branches: Sequence[Branch], on_progress: Callable[[], None]
    ) -> None:
        model, tokenizer, pictures = self._policy
        with self._recorder.span("write_policy", lane="policy", trace=publication.phases.trace):
            publish_policy(
                model,
                tokenizer,
                publication.folder,
                branches,
                dtype=published_dtype(self._recipe),
                engine_dtype=getattr(torch, self._recipe.engine.dtype),
                merge=has_adapter(model) and self._recipe.lora.publish == "merged",
                publisher=self._publisher,
                pictures=pictures,
                durable=self._recipe.ledger.durability == "full",
                on_progress=on_progress,
            )


def copy_to_publish(model: PreTrainedModel, recipe: Recipe) -> PreTrainedModel:
    """Return a copy of a model that is on the CPU and will be trained; on the CPU, both share the frozen weights."""
    shared: dict[int, Any] = {}
    if recipe.train.device == "cpu":
        shared = {id(parameter): parameter for parameter in model.parameters() if not parameter.requires_grad}
    return copy.deepcopy(model, shared)
