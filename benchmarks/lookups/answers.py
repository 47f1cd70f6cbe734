"""Share of held-out questions of `lookups` with right answers."""

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from quartet.env.environment.lookups import FAMILIES, is_right, page
from quartet.policy.prompt import turn_messages
from quartet.policy.renderer import Renderer
from quartet.types import Task

QUESTIONS = 64
"""Number of held-out questions of each family."""
ANSWER_TOKENS = 4
"""Number of tokens of the longest right answer, with the end."""


class Answers:
    """Share of held-out questions whose most likely answer is right, by family."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, first_seed: int) -> None:
        self._tokenizer, renderer = tokenizer, Renderer(tokenizer)
        self._pages = {
            family: [page(Task(env="lookups", family=family, seed=first_seed + index)) for index in range(QUESTIONS)]
            for family in FAMILIES
        }
        # Every word is one token, so the prompts of a family have the same length.
        self._prompts = {
            family: torch.tensor([renderer.start_chat(turn_messages(seen, []), ()).ids for seen in pages])
            for family, pages in self._pages.items()
        }

    @torch.inference_mode()
    def __call__(self, model: PreTrainedModel) -> dict[str, float]:
        """Return the shares."""
        return {family: self._share(model, family) for family in FAMILIES}

    def _share(self, model: PreTrainedModel, family: str) -> float:
        ids_QT = self._prompts[family]
        for _ in range(ANSWER_TOKENS):
            logits_QV = model(input_ids=ids_QT, logits_to_keep=1, use_cache=False).logits[:, 0]
            ids_QT = torch.cat([ids_QT, logits_QV.argmax(-1, keepdim=True)], dim=1)
        said = [self._said(row) for row in ids_QT[:, -ANSWER_TOKENS:].tolist()]
        return sum(map(is_right, self._pages[family], said)) / QUESTIONS

    def _said(self, ids: list[int]) -> str:
        end = self._tokenizer.eos_token_id
        return str(self._tokenizer.decode(ids[: ids.index(end)] if end in ids else ids))
