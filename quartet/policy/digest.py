"""Digest of all weights of a policy."""

import hashlib
from collections.abc import Mapping

import torch


def weights_digest(weights: Mapping[str, torch.Tensor]) -> str:
    """Return the SHA-256, in hex, of the tensors' names, dtypes, shapes and bits, in the order of the names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
