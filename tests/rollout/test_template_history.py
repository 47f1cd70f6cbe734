"""The history `template`: a template that leaves out thoughts starts a branch, and no other does."""

from collections import Counter
from itertools import pairwise

from scripted_engine import ScriptedEngine, make_tokenizer

from quartet.config import Loop
from quartet.engine.base import GenerateResult
from quartet.env.environment.bandit import BanditEnv
from quartet.part import NoSettings
from quartet.policy.renderer import Renderer
from quartet.registry import build
from quartet.rollout.client import ModelClient
from quartet.rollout.history.template import TemplateHistory
from quartet.rollout.loop.base import Limits
from quartet.types import Call, FinishReason, Sampling, Task

FORGETFUL = (
    "{% for message in messages %}<|{{ message['role'] }}|>"
    "{{ message['content'].split('</think>')[-1] if message['role'] == 'assistant' else message['content'] }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""Template that shows no thoughts of earlier turns, as Qwen3's."""
TOKENIZER = make_tokenizer(FORGETFUL)


def sampled(text: str) -> GenerateResult:
    """Return a response whose text becomes no special token, before its end token."""
    ids = [*TOKENIZER(text, add_special_tokens=False, split_special_tokens=True)["input_ids"], TOKENIZER.eos_token_id]
    numbers = [-0.5] * len(ids)
    return GenerateResult(
        token_ids=ids,
        logprobs=numbers,
        entropies=[0.7] * len(ids),
        versions=[7] * len(ids),
        finish_reason=FinishReason.STOP,
    )


async def play(*responses: str) -> list[Call]:
    engine = ScriptedEngine(TOKENIZER, lambda _, index: sampled(responses[index]))
    model = ModelClient(engine, Renderer(TOKENIZER), sampling=Sampling(), conversation="w")
    loop = build(Loop(name="screens"), TemplateHistory(NoSettings()))
    task = Task(env="bandit", family="fixed", seed=0, params={"turns": len(responses)})
    limits = Limits(max_turns=len(responses), max_tokens=60, timeout_seconds=30.0)
    (trajectory,) = await loop.run(task, BanditEnv(Counter()), {"main": model}, limits)
    return trajectory.calls


def extends(before: Call, after: Call) -> bool:
    so_far = before.prompt_ids + before.response_ids
    return after.prompt_ids[: len(so_far)] == so_far


async def test_a_thought_that_the_template_leaves_out_starts_a_branch_with_the_template_s_prompt():
    calls = await play("Hm.</think>\nclick left [1]", "click left [1]", "So.</think>\nclick left [1]", "click left [1]")
    assert [extends(*pair) for pair in pairwise(calls)] == [False, True, False]
    page = "Pull an arm.\nbutton left [1]\nbutton right [2]"
    said = ["\nclick left [1]", "click left [1]", "\nclick left [1]"]
    chat = [
        message
        for text in said
        for message in ({"role": "user", "content": page}, {"role": "assistant", "content": text})
    ]
    chat.append({"role": "user", "content": page})
    whole = TOKENIZER.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    assert TOKENIZER.decode(calls[-1].prompt_ids, skip_special_tokens=False) == whole


async def test_without_thoughts_the_rollout_is_one_branch_of_the_sampled_ids():
    calls = await play(*["click left [1]"] * 3)
    assert all(extends(*pair) for pair in pairwise(calls))


async def test_the_name_of_a_special_token_in_a_response_is_never_made_a_token():
    calls = await play("I write <|end|> here</think>\nclick left [1]", "click left [1]")
    assert extends(*calls) and calls[1].prompt_ids.count(TOKENIZER.eos_token_id) == 3, "of two pages and a response"
