"""Publisher `delta`: engines read only the values that changed since the version that they hold."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quartet.config import Recipe
from quartet.errors import CheckpointError, ConfigError
from quartet.policy.publisher.base import Publisher, ReadWeights
from quartet.registry import find

if TYPE_CHECKING:
    import torch

    from quartet.policy.delta_file import Version

LOG = logging.getLogger(__name__)


class Delta(Publisher):
    """Beside the whole weights, each version's folder has a delta: the values that differ from the previous version.

    An engine applies the deltas since the version that it holds, and compares the digest of the result. Otherwise it
    reads the whole weights: after its start, after a restart of the trainer, and if a delta is damaged or missing.
    """

    source = "PULSE, arXiv 2602.03839: 98-99 % of bfloat16 values are the same after a train step"

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self._held: Version | None = None
        """Version whose weights this process wrote or read last."""

    @classmethod
    def check(cls, settings: Any, recipe: Recipe) -> None:
        if recipe.train.publish_dtype != "bfloat16":
            raise ConfigError(
                "publisher.name = 'delta' needs weights in bfloat16, since a train step changes nearly all float32 "
                "values",
                "set train.publish_dtype = 'bfloat16', or publisher.name = 'files'",
            )
        backend: Any = find(recipe.engine.kind, recipe.engine.name)
        if not backend.embedded:
            raise ConfigError(
                f"publisher.name = 'delta' has no effect on the engine {recipe.engine.name!r}: its server reads the "
                "whole weights",
                "set engine.name = 'torch' or 'transformers', or publisher.name = 'files'",
            )

    def write(self, folder: Path, weights: "Mapping[str, torch.Tensor]", *, name: str) -> None:
        from quartet.policy.delta_file import Version, write_delta

        base, self._held = self._held, Version.of(name, weights)
        if base is not None:
            write_delta(folder, base, self._held)

    def read(self, folder: Path) -> ReadWeights:
        from quartet.policy.delta_file import Version
        from quartet.policy.weights import read_weights, weights_bytes

        if self._held is not None:
            try:
                return self._from_deltas(self._held, folder)
            except CheckpointError as error:
                LOG.warning("reading the whole weights in %s: %s", folder, error.what)
        self._held = Version.of(folder.name, read_weights(folder))
        return ReadWeights(dict(self._held.weights), weights_bytes(folder))

    def _from_deltas(self, held: "Version", folder: Path) -> ReadWeights:
        from quartet.policy.delta_file import updated
        from quartet.policy.files import WEIGHTS, check_policy

        check_policy(folder, except_for=WEIGHTS)
        self._held, num_bytes = updated(held, folder)
        return ReadWeights(dict(self._held.weights), num_bytes)
