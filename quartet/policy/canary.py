"""The canary: fixed token sequences and their log-probs under a policy, stored beside its weights.

Whoever loads the policy scores the same tokens again: the largest difference is the log-prob gap between trainer and
engine, and at the same time the proof that the right weights are loaded.
"""

from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from quartet.crash_points import crash_point
from quartet.errors import CheckpointError
from quartet.policy.files import raising_checkpoint_errors
from quartet.policy.load import raising_os_errors

CANARY_FILE = "canary.tensors"
"""In safetensors' format, but not with its ending: vLLM and others take every file of that ending for weights."""
MAX_TOKENS = 512


def fixed_sequence(vocab_size: int, length: int = 256) -> list[int]:
    """Token ids that depend on nothing but the arguments (the Lehmer generator of Park and Miller, 1988)."""
    ids, state = [], 20_231
    for _ in range(length):
        state = state * 48_271 % 2_147_483_647
        ids.append(state % vocab_size)
    return ids


def write_canary(folder: str | Path, model: PreTrainedModel, sequences: list[list[int]]) -> None:
    """Store the sequences and their log-probs under `model` in a policy folder.

    Sequences of fewer than two tokens have nothing to score and are left out. Raises `ValueError` when they hold more
    than 512 tokens together: the canary is scored at every load and must stay cheap.
    """
    sequences = [ids for ids in sequences if len(ids) > 1]
    total = sum(map(len, sequences))
    if not 0 < total <= MAX_TOKENS:
        raise ValueError(f"a canary holds 2 to {MAX_TOKENS} tokens, these sequences hold {total}")
    lengths = torch.tensor([len(ids) for ids in sequences])
    token_ids = torch.tensor([token for ids in sequences for token in ids])
    logprobs = torch.cat([_score(model, ids) for ids in sequences])
    tensors = {"lengths": lengths, "token_ids": token_ids, "logprobs": logprobs}
    file = Path(folder) / CANARY_FILE
    crash_point("canary.before")
    with raising_os_errors(file):
        save_file(tensors, file)
    crash_point("canary.after")


class Canary(NamedTuple):
    """What a policy folder says about its own weights."""

    sequences: list[list[int]]
    logprobs: list[torch.Tensor]
    """Of every token after the first of its sequence, `[num_tokens - 1]`, float32, in nats."""

    def gap(self, scores: list[torch.Tensor]) -> float:
        """Largest |log-prob difference| in nats to `scores`; NaN where one of them is NaN.

        Scores may end before their sequence does: a server's context may be shorter.
        """
        pairs = zip(self.logprobs, scores, strict=True)
        return float(torch.cat([stored[: len(scored)] - scored for stored, scored in pairs]).abs().max())


def has_canary(folder: str | Path) -> bool:
    """Whether a policy came with a canary; one that another program made does not."""
    return (Path(folder) / CANARY_FILE).is_file()


def check_canary(folder: str | Path, model: PreTrainedModel) -> float:
    """Largest |log-prob difference| in nats between the stored canary and `model`.

    Raises `CheckpointError` when the canary is missing, damaged, or does not fit the model's vocabulary: never another
    error, whatever the file holds.
    """
    with raising_checkpoint_errors(f"the policy in {folder} cannot score its canary"):
        canary = read_canary(folder, model.config.vocab_size)
        return canary.gap([_score(model, ids) for ids in canary.sequences])


def read_canary(folder: str | Path, vocab_size: int) -> Canary:
    """The stored canary. Raises `CheckpointError` like `check_canary`."""
    file = Path(folder) / CANARY_FILE
    with raising_checkpoint_errors(f"{file} is missing or damaged"):
        tensors = load_file(file)
        lengths, token_ids, stored = (tensors[name] for name in ("lengths", "token_ids", "logprobs"))
    if not _is_whole(lengths, token_ids, stored):
        shapes = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in tensors.items())
        raise CheckpointError(
            f"{file} is damaged: its tensors do not belong together ({shapes})", "publish the policy again"
        )
    if int(token_ids.max()) >= vocab_size:
        raise CheckpointError(f"{file} belongs to a model with a larger vocabulary", "publish the policy again")
    sequences = [part.tolist() for part in token_ids.split(lengths.tolist())]
    return Canary(sequences, list(stored.split((lengths - 1).tolist())))


def _is_whole(lengths: torch.Tensor, token_ids: torch.Tensor, logprobs: torch.Tensor) -> bool:
    """Whether every sequence has its tokens, and every token but the first its log-prob."""
    if lengths.dtype != torch.int64 or token_ids.dtype != torch.int64 or not logprobs.is_floating_point():
        return False
    if lengths.dim() != 1 or token_ids.dim() != 1 or not len(lengths) or int(lengths.min()) < 2:
        return False
    num_scored = len(token_ids) - len(lengths)
    return int(lengths.sum()) == len(token_ids) and logprobs.shape == (num_scored,) and int(token_ids.min()) >= 0


@torch.inference_mode()
def _score(model: PreTrainedModel, token_ids: list[int]) -> torch.Tensor:
    """Log-probs `[num_tokens - 1]`, float32, of every token after the first."""
    ids = torch.tensor(token_ids, device=model.device)
    logits = model(input_ids=ids[None, :-1], use_cache=False).logits[0].float()
    return logits.log_softmax(-1).gather(-1, ids[1:, None])[:, 0].cpu()
