"""How far are the engine's log-probs from the trainer's? Differences in nats per token, on a real policy's own samples.

The policy that ships with the miniwob recipe responds to prompts of its demonstrations. A test checks exact agreement
in float32. This benchmark measures the gaps of two settings: an engine in bfloat16, and caches that are kept when the
weights change (`engine.kv_cache_on_weight_update = "keep"`). The new weights are one train step newer: every weight is
changed by the learning rate 1e-4, as by AdamW's first step.
"""

import asyncio
import copy
import json
import tempfile
from pathlib import Path
from typing import Any, Literal

import click
import torch
from transformers import PreTrainedModel

from quartet.config import Engine
from quartet.engine.base import GenerateRequest, GenerateResult
from quartet.engine.torch_engine import TorchEngine
from quartet.policy.canary import fixed_sequence, write_canary
from quartet.policy.load import load_policy
from quartet.policy.renderer import Renderer
from quartet.types import Sampling

RECIPE = Path(__file__).parents[1] / "recipes" / "miniwob"
REQUESTS, TOKENS = 64, 64
STEP = 1e-4


@click.command()
@click.option(
    "--policy",
    default=RECIPE / "policy",
    type=click.Path(path_type=Path),
    help="Folder of a policy; default: miniwob's.",
)
@click.option("--json", "as_json", is_flag=True)
def main(policy: Path, as_json: bool) -> None:
    """Measure the gaps."""
    torch.set_num_threads(1)
    loaded = load_policy(policy)
    requests, old = prompts(Renderer(loaded.tokenizer)), loaded.model
    with tempfile.TemporaryDirectory() as folder:
        new = a_step_further(old, Path(folder))
        result: dict[str, Any] = {
            dtype: gaps(old, old, requests, asyncio.run(sampled(old, dtype, requests)))
            for dtype in ("float32", "bfloat16")
        }
        for kv_cache_on_weight_update in ("recompute", "keep"):
            results = asyncio.run(sampled(old, "float32", requests, kv_cache_on_weight_update, Path(folder)))
            result[kv_cache_on_weight_update] = gaps(old, new, requests, results)
    click.echo(json.dumps(result) if as_json else "\n".join(f"{name:10} {found}" for name, found in result.items()))


def prompts(renderer: Renderer) -> list[GenerateRequest]:
    """Return requests whose responses are all equally long, since stop tokens do not end them."""
    lines = (RECIPE / "demonstrations.jsonl").read_text().splitlines()
    texts = [json.loads(line)["messages"][0]["content"] for line in lines[:: len(lines) // REQUESTS][:REQUESTS]]
    return [
        GenerateRequest(
            request_id=str(number),
            prompt_ids=renderer.start(text),
            sampling=Sampling(max_tokens=TOKENS, seed=number),
            stop_token_ids=[],
        )
        for number, text in enumerate(texts)
    ]


def a_step_further(model: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """Return a model with the weights of the next version, published in `folder`."""
    moved: Any = copy.deepcopy(model)
    noise = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in moved.parameters():
            parameter += STEP * torch.randn(parameter.shape, generator=noise).sign()
    moved.save_pretrained(folder)
    write_canary(folder, moved, [fixed_sequence(moved.config.vocab_size, 64)])
    return moved


async def sampled(
    model: PreTrainedModel,
    dtype: Literal["float32", "bfloat16"],
    requests: list[GenerateRequest],
    kv_cache_on_weight_update: Literal["recompute", "keep"] = "recompute",
    next_policy: Path | None = None,
) -> list[GenerateResult]:
    """Return the engine's responses. `next_policy` is loaded when a quarter of the tokens is generated."""
    served: Any = copy.deepcopy(model).to(getattr(torch, dtype))
    engine = TorchEngine(
        served,
        0,
        Engine(max_slots=REQUESTS, max_context_tokens=1024, kv_cache_on_weight_update=kv_cache_on_weight_update),
    )
    tasks = [asyncio.create_task(engine.generate(request)) for request in requests]
    if next_policy:
        while engine.counters.generated_tokens < REQUESTS * TOKENS // 4:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await engine.load_policy(next_policy, 1)
    results = await asyncio.gather(*tasks)
    await engine.close()
    return results


@torch.inference_mode()
def gaps(
    old: PreTrainedModel, new: PreTrainedModel, requests: list[GenerateRequest], results: list[GenerateResult]
) -> dict[str, float]:
    """Return the largest, mean absolute and mean difference in nats, over all tokens of the newest version."""
    differences: list[torch.Tensor] = []
    for request, result in zip(requests, results, strict=True):
        version, first = max(result.versions), result.versions.index(max(result.versions))
        ids = torch.tensor([request.prompt_ids + result.token_ids])
        model: Any = new if version else old
        logprobs_LV = model(ids).logits[0, len(request.prompt_ids) - 1 : -1].float().log_softmax(-1)
        own_T = logprobs_LV.gather(1, torch.tensor(result.token_ids).unsqueeze(1)).squeeze(1)
        differences.append((torch.tensor(result.logprobs) - own_T)[first:])
    all_T = torch.cat(differences)
    return {
        "largest_nats": float(f"{all_T.abs().max():.2g}"),
        "mean_absolute_nats": float(f"{all_T.abs().mean():.2g}"),
        "mean_nats": float(f"{all_T.mean():.2g}"),
        "tokens": len(all_T),
    }


if __name__ == "__main__":
    main()
