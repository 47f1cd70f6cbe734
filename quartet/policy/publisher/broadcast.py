"""Publisher `broadcast`: engines receive each version from the trainer's memory."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from quartet.config import Recipe
from quartet.config.section import PositiveFloat, Section
from quartet.errors import BroadcastError, ConfigError
from quartet.policy.publisher.base import Publisher, ReadWeights
from quartet.registry import find

if TYPE_CHECKING:
    import torch

    from quartet.policy.transfer import Sender

LOG = logging.getLogger(__name__)


class Broadcast(Publisher):
    """The trainer broadcasts each version from its memory to every engine, in a group of two per transfer.

    An engine that asks too late, or whose transfer fails, reads the whole weights of the same version from its folder.
    The tensors are compared with the digest in the folder.
    """

    class Settings(Section):
        host: str = "127.0.0.1"
        """Address on which the trainer offers weights, as engines reach it. Its connections have neither token nor TLS:
        name only an address of a private network."""
        backend: Literal["gloo", "nccl"] = "gloo"
        """Transport: `gloo` between CPUs, `nccl` between GPUs, where trainer and engines have one each."""
        timeout_seconds: PositiveFloat = 30.0
        """Longest wait of an engine for the trainer, and of a transfer for an engine. Then the engine reads files."""

    settings: Settings
    source = "vLLM's weight transfer and AReaL, arXiv 2505.24298: weights by a collective from the trainer"

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self._sender: Sender | None = None

    @classmethod
    def check(cls, settings: Any, recipe: Recipe) -> None:
        backend: Any = find(recipe.engine.kind, recipe.engine.name)
        if not backend.receives_tensors:
            raise ConfigError(
                f"publisher.name = 'broadcast' has no effect on the engine {recipe.engine.name!r}: its server reads "
                "files",
                "set engine.name = 'torch', 'transformers' or 'vllm', or publisher.name = 'files'",
            )

    @property
    def transfer_seconds(self) -> float:
        return self.settings.timeout_seconds

    def write(self, folder: Path, weights: "Mapping[str, torch.Tensor]", *, name: str) -> None:
        from quartet.policy.transfer import Sender

        if self._sender is None:
            self._sender = Sender(self.settings.host, self.settings.backend, self.settings.timeout_seconds)
        self._sender.offer(folder, name, weights)

    def read(self, folder: Path) -> ReadWeights:
        from quartet.policy.files import WEIGHTS, check_policy
        from quartet.policy.transfer import receive
        from quartet.policy.weights import read_weights, weights_bytes

        try:
            check_policy(folder, except_for=WEIGHTS)
            received = receive(folder, self.settings.timeout_seconds)
        except BroadcastError as error:
            LOG.warning("reading the whole weights in %s: %s", folder, error.what)
            received = None
        if received is None:
            return ReadWeights(read_weights(folder), weights_bytes(folder))
        return ReadWeights(received, sum(tensor.nbytes for tensor in received.values()))
