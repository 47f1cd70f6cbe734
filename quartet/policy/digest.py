"""Digest of all weights of a policy."""

import hashlib
from collections.abc import Mapping

import torch


def weights_digest(weights: Mapping[str, torch.Tensor], dtype: torch.dtype = torch.float32) -> str:
    """Return the SHA-256, in hex, of the tensors' names, shapes and bits as `dtype`, in the order of the names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().to(dtype).cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
