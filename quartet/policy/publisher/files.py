"""Publisher `files`: engines read the whole weights of every version."""

from pathlib import Path

from quartet.policy.publisher.base import Publisher, ReadWeights


class Files(Publisher):
    """Engines read the whole weights of every version from its folder."""

    def read(self, folder: Path) -> ReadWeights:
        from quartet.policy.weights import read_weights, weights_bytes

        return ReadWeights(read_weights(folder), weights_bytes(folder))
