"""Canary: fixed token sequences and their log-probs under a policy, stored with the policy's weights.

A process that loads the policy scores the same tokens again. The canary gap between trainer and engine is the largest
difference of log-probs, or their root mean square for an engine in bfloat16 or float16. A small gap shows that the
correct weights are loaded. For a model that reads pictures, some tokens are scored once more behind a fixed screenshot,
so that the gap also covers its image processor and its vision tower.

An engine in bfloat16 computes other log-probs even with the right weights, and by how much depends on the policy. The
trainer therefore also scores the canary in the engine's dtype; such an engine must be near the one or the other.
"""

from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from quartet.crash_points import crash_point
from quartet.errors import CheckpointError
from quartet.policy.files import raising_checkpoint_errors
from quartet.policy.kind.base import PictureProcessor
from quartet.policy.kind.find import load_pictures
from quartet.policy.save import raising_os_errors
from quartet.policy.screenshot import score_behind_screenshot

CANARY_FILE = "canary.tensors"
"""Name of the canary's file. Its format is safetensors, but its name must not end with `.safetensors`, because vLLM and
other programs read all such files as weights."""
REDUCED = "reduced_"
"""Prefix of the names of tensors with scores in the engine's shorter dtype."""
MAX_TOKENS = 512
LIKELY_NATS = 2.5
"""Log-prob, without its sign, up to which a difference in bfloat16 counts fully. A small policy that has learned has
log-probs of -20 to -30 at random tokens, which differ by up to 5 % in bfloat16."""
TOKENS_BEHIND_SCREENSHOT = 32
"""Maximum number of leading tokens of the first sequence that are scored behind the fixed screenshot."""


def fixed_sequence(vocab_size: int, length: int = 256) -> list[int]:
    """Return pseudo-random token ids that depend only on the arguments (Lehmer generator, Park and Miller 1988)."""
    ids, state = [], 20_231
    for _ in range(length):
        state = state * 48_271 % 2_147_483_647
        ids.append(state % vocab_size)
    return ids


def write_canary(
    folder: str | Path,
    model: PreTrainedModel,
    sequences: list[list[int]],
    pictures: PictureProcessor | None = None,
    reduced: PreTrainedModel | None = None,
) -> None:
    """Store the sequences and their log-probs under `model` in a policy folder.

    With the model's image processor `pictures`, also store log-probs of tokens behind the fixed screenshot. With
    `reduced`, the model in the engine's shorter dtype, also store all its log-probs. Sequences of fewer than two tokens
    have no token to score and are left out. Raise `ValueError` for more than 512 tokens in total, since the canary is
    scored at every load and must take little time.
    """
    sequences = [ids for ids in sequences if len(ids) > 1]
    total = sum(map(len, sequences))
    if not 0 < total <= MAX_TOKENS:
        raise ValueError(f"a canary has 2 to {MAX_TOKENS} tokens, but these sequences have {total}")
    lengths = torch.tensor([len(ids) for ids in sequences])
    token_ids = torch.tensor([token for ids in sequences for token in ids])
    tensors = {"lengths": lengths, "token_ids": token_ids} | _scores("", score(model, sequences, pictures))
    if reduced is not None:
        tensors |= _scores(REDUCED, score(reduced, sequences, pictures))
    file = Path(folder) / CANARY_FILE
    crash_point("canary.before")
    with raising_os_errors(file):
        save_file(tensors, file)
    crash_point("canary.after")


class Canary(NamedTuple):
    """Token sequences of a policy folder and their log-probs under its weights."""

    sequences: list[list[int]]
    logprobs: list[torch.Tensor]
    """For each sequence, the log-probs `[num_tokens - 1]`, float32, in nats, of all tokens but the first."""
    behind_screenshot: torch.Tensor | None = None
    """Log-probs of `ids_behind_screenshot`; None if the policy was published without an image processor."""
    reduced: "Canary | None" = None
    """The same tokens with the trainer's log-probs in the engine's shorter dtype; None if that is float32."""

    @property
    def ids_behind_screenshot(self) -> list[int]:
        """Tokens that are scored behind the fixed screenshot, except for those that stand for pictures."""
        return self.sequences[0][:TOKENS_BEHIND_SCREENSHOT]

    def gap(
        self, scores: list[torch.Tensor], behind_screenshot: torch.Tensor | None = None, *, reduced: bool = False
    ) -> float:
        """Return the largest |log-prob difference|, in nats, between the canary and `scores`; with `reduced` the root
        mean square of the differences. It is NaN if a score is NaN.

        The scores of a sequence may end early, as with a server whose context is smaller. `reduced` is set for scores
        of a model in bfloat16 or float16, since rounding moves a few tokens far,
        and wrong weights move most tokens. Of tokens behind the screenshot and all others it is the larger one, because
        a wrong vision tower moves only the former. Rounding also grows with the logits, so the difference of a token
        that is less likely than `LIKELY_NATS` is divided by its log-prob's multiple of that.
        """
        texts = [(stored[: len(scored)], scored) for stored, scored in zip(self.logprobs, scores, strict=True)]
        stored, scored = (torch.cat(parts) for parts in zip(*texts, strict=True))
        pairs = [(stored, scored)]
        if self.behind_screenshot is not None and behind_screenshot is not None:
            pairs.append((self.behind_screenshot[: len(behind_screenshot)], behind_screenshot))
        measure = _root_mean_square if reduced else _largest
        return float(torch.stack([measure(stored, scored) for stored, scored in pairs]).max())

    def unexplained_gap(
        self, scores: list[torch.Tensor], behind_screenshot: torch.Tensor | None = None, *, reduced: bool = False
    ) -> float:
        """Return the gap that rounding does not explain: with `reduced` the smaller of the gaps to the trainer's scores
        in float32 and in the engine's dtype, else `gap`."""
        gap = self.gap(scores, behind_screenshot, reduced=reduced)
        if not reduced or self.reduced is None:
            return gap
        return min(gap, self.reduced.gap(scores, behind_screenshot, reduced=True))


def score(model: PreTrainedModel, sequences: list[list[int]], pictures: PictureProcessor | None) -> Canary:
    """Return the canary of these sequences under `model`, without scores behind the screenshot if `pictures` is
    None."""
    canary = Canary(sequences, [_score(model, ids) for ids in sequences])
    if pictures is None:
        return canary
    return canary._replace(behind_screenshot=score_behind_screenshot(model, pictures, canary.ids_behind_screenshot))


def _scores(prefix: str, canary: Canary) -> dict[str, torch.Tensor]:
    """Return the tensors that are stored for the scores."""
    tensors = {f"{prefix}logprobs": torch.cat(canary.logprobs)}
    if canary.behind_screenshot is not None:
        tensors[f"{prefix}behind_screenshot"] = canary.behind_screenshot
    return tensors


def _largest(stored: torch.Tensor, scored: torch.Tensor) -> torch.Tensor:
    return (stored - scored).abs().max()


def _root_mean_square(stored: torch.Tensor, scored: torch.Tensor) -> torch.Tensor:
    """Return the root mean square of the differences, in which those of unlikely tokens count less."""
    return ((stored - scored) / (stored.abs() / LIKELY_NATS).clamp(min=1)).square().mean().sqrt()


def has_canary(folder: str | Path) -> bool:
    """Return whether a policy has a canary. Policies made by other programs have none."""
    return (Path(folder) / CANARY_FILE).is_file()


def measure_canary(folder: str | Path, model: PreTrainedModel) -> tuple[float, float]:
    """Return the canary gap of `model` (`Canary.gap`) and the part of it that counts (`Canary.unexplained_gap`), in
    nats.

    Raise `CheckpointError`, and no other error, if the canary is missing or damaged, or if it does not fit the model's
    vocabulary, and `OutOfMemoryError` if memory runs out.
    """
    with raising_checkpoint_errors(f"the policy in {folder} cannot score its canary"):
        canary = read_canary(folder, model.config.get_text_config().vocab_size)
        pictures = None if canary.behind_screenshot is None else load_pictures(Path(folder))
        found, reduced = score(model, canary.sequences, pictures), model.dtype != torch.float32
        scores = found.logprobs, found.behind_screenshot
        return canary.gap(*scores, reduced=reduced), canary.unexplained_gap(*scores, reduced=reduced)


def read_canary(folder: str | Path, vocab_size: int) -> Canary:
    """Return the stored canary. Raise `CheckpointError` like `measure_canary`."""
    file = Path(folder) / CANARY_FILE
    with raising_checkpoint_errors(f"{file} is missing or damaged"):
        tensors = load_file(file)
        lengths, token_ids, stored = (tensors[name] for name in ("lengths", "token_ids", "logprobs"))
        in_reduced = tensors.get(f"{REDUCED}logprobs")
    if not _is_whole(lengths, token_ids, stored) or (in_reduced is not None and in_reduced.shape != stored.shape):
        shapes = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in tensors.items())
        raise CheckpointError(
            f"{file} is damaged: the shapes of its tensors do not match ({shapes})", "publish the policy again"
        )
    if int(token_ids.max()) >= vocab_size:
        raise CheckpointError(f"{file} belongs to a model with a larger vocabulary", "publish the policy again")
    sequences = [part.tolist() for part in token_ids.split(lengths.tolist())]
    parts = (lengths - 1).tolist()
    reduced = None
    if in_reduced is not None:
        reduced = Canary(sequences, list(in_reduced.split(parts)), tensors.get(f"{REDUCED}behind_screenshot"))
    return Canary(sequences, list(stored.split(parts)), tensors.get("behind_screenshot"), reduced)


def _is_whole(lengths: torch.Tensor, token_ids: torch.Tensor, logprobs: torch.Tensor) -> bool:
    """Return whether the tensors hold the tokens of each sequence, and the log-prob of each token but the first."""
    if lengths.dtype != torch.int64 or token_ids.dtype != torch.int64 or not logprobs.is_floating_point():
        return False
    if lengths.dim() != 1 or token_ids.dim() != 1 or not len(lengths) or int(lengths.min()) < 2:
        return False
    num_scored = len(token_ids) - len(lengths)
    return int(lengths.sum()) == len(token_ids) and logprobs.shape == (num_scored,) and int(token_ids.min()) >= 0


@torch.inference_mode()
def _score(model: PreTrainedModel, token_ids: list[int]) -> torch.Tensor:
    """Return the log-probs `[num_tokens - 1]`, float32, of all tokens but the first."""
    ids = torch.tensor(token_ids, device=model.device)
    logits = model(input_ids=ids[None, :-1], use_cache=False).logits[0].float()
    return logits.log_softmax(-1).gather(-1, ids[1:, None])[:, 0].cpu()
