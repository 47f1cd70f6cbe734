"""`generate` of `transformers`: one padded batch per turn; every turn computes the whole history again."""

from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedModel

from benchmarks.engine_contenders.base import Workload


class Generate:
    """Contender whose batch is the whole workload, since `generate` cannot serve requests together in another way."""

    name = "generate"

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model

    @torch.inference_mode()
    def run(self, workload: Workload, seed: int) -> None:
        torch.manual_seed(seed)
        model: Any = self._model
        histories = workload.prompts
        for turn in range(workload.turns):
            prompts = torch.tensor(histories)
            answer = model.generate(
                prompts,
                attention_mask=torch.ones_like(prompts),
                generation_config=GenerationConfig(
                    do_sample=True,
                    top_k=0,
                    max_new_tokens=workload.new_tokens,
                    min_new_tokens=workload.new_tokens,
                    output_logits=True,
                    return_dict_in_generate=True,
                    pad_token_id=0,
                ),
            )
            responses = answer.sequences[:, prompts.shape[1] :]
            assert responses.shape[1] == workload.new_tokens
            for step, logits in enumerate(answer.logits):
                logits.float().log_softmax(-1).gather(-1, responses[:, step, None])
            if turn + 1 < workload.turns:
                observed = [conversation[turn] for conversation in workload.observations]
                histories = [a + b for a, b in zip(answer.sequences.tolist(), observed, strict=True)]

    def close(self) -> None: ...
