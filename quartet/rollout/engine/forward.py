"""Forward passes of any causal language model of `transformers` over rows of a `SlotCache`.

Prefill takes whole prompts, right-padded: under a causal mask no token sees the padding behind it. Decode takes one
token per running row, with explicit positions and an explicit mask. Logits are computed for last positions only.
"""

from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel

from quartet.errors import ConfigError
from quartet.rollout.engine.slots import SlotCache


class Forward:
    """Prefill and decode of one model; rows are the cache's."""

    def __init__(self, model: PreTrainedModel, max_slots: int, max_context_tokens: int) -> None:
        text_config = model.config.get_text_config()
        refuse_unsupported(text_config, max_context_tokens)
        self.model = model.eval()
        embedding: Any = model.get_input_embeddings()
        self.vocab_size: int = embedding.num_embeddings
        self.cache = SlotCache(text_config.num_hidden_layers, max_slots, max_context_tokens)
        self._keys_L = torch.arange(max_context_tokens, device=model.device)

    def prefill(self, prompts: list[list[int]], first_row: int) -> torch.Tensor:
        """Fill rows `first_row ..` with `prompts`; logits `[num_prompts, vocab]` of each prompt's last token."""
        tensors = [torch.tensor(prompt) for prompt in prompts]
        padded_NP = torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True).to(self.model.device)
        last_N1 = torch.tensor([[len(prompt) - 1] for prompt in prompts], device=self.model.device)
        self.cache.view.prefill(first_row)
        return self._logits(padded_NP, logits_to_keep=last_N1)

    def decode(self, tokens_N: list[int], positions_N: list[int]) -> torch.Tensor:
        """Feed one token to each of the rows 0 .. N-1 at its position; logits `[N, vocab]`."""
        device, length = self.model.device, max(positions_N) + 1
        positions = torch.tensor(positions_N, device=device)
        self.cache.view.decode(positions, length)
        hidden_NL = self._keys_L[:length] > positions.unsqueeze(-1)
        mask_NL = torch.zeros(hidden_NL.shape, dtype=self.model.dtype, device=device)
        mask_NL.masked_fill_(hidden_NL, torch.finfo(self.model.dtype).min)
        return self._logits(
            torch.tensor(tokens_N, device=device).unsqueeze(-1),
            position_ids=positions.unsqueeze(-1),
            attention_mask=mask_NL[:, None, None, :],
            logits_to_keep=0,
        )

    def _logits(self, input_ids: torch.Tensor, **inputs: object) -> torch.Tensor:
        logits_N1V = self.model(input_ids=input_ids, past_key_values=self.cache, use_cache=True, **inputs).logits
        if logits_N1V.shape[:2] != (len(input_ids), 1):
            raise ConfigError(
                f"{type(self.model).__name__} returned logits of shape {list(logits_N1V.shape)} where one per row was "
                "asked for: it does not know `logits_to_keep` with one position per row",
                "use a newer transformers, or a model class of transformers itself",
            )
        return logits_N1V[:, 0]


def refuse_unsupported(config: PretrainedConfig, max_context_tokens: int) -> None:
    """Raise `ConfigError` for a model whose layers keep something other than all keys and values."""
    layer_types = set(getattr(config, "layer_types", None) or ["sliding_attention"])
    if unknown := layer_types - {"full_attention", "sliding_attention"}:
        raise ConfigError(
            f"the torch engine cannot run {config.model_type}: it has layers of type {', '.join(sorted(unknown))}",
            "use a model with full attention only, or another engine",
        )
    window = getattr(config, "sliding_window", None) if "sliding_attention" in layer_types else None
    if window and window < max_context_tokens:
        raise ConfigError(
            f"the model attends to the last {window} tokens only, less than engine.max_context_tokens = "
            f"{max_context_tokens}",
            f"set engine.max_context_tokens to at most {window}",
        )
