"""The comparison with TRL: everybody has the same conversation, and every contender's way through the code works."""

import sys
from pathlib import Path

import click
import pytest

from benchmarks import against_trl
from benchmarks.desk import BUTTONS
from benchmarks.trl_contenders.base import ROLLOUTS_PER_STEP, TURN_TOKENS, Job, Run, TrainStep
from benchmarks.trl_contenders.conversation import between, opening, speak_tools
from benchmarks.trl_contenders.ours import Ours, recipe_of
from benchmarks.trl_contenders.start import conversation, make_start, speak
from benchmarks.trl_contenders.theirs import THEIRS, TrlProcess
from quartet.policy.renderer import Renderer
from quartet.policy.tokenizer_files import load_tokenizer

TINY = {"hidden_size": 16, "num_layers": 1, "num_heads": 1}


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> Path:
    """Speaks the vocabulary and nothing else."""
    return make_start(tmp_path_factory.mktemp("start"), steps=1, shape=TINY)


def job(start: Path, contender: str) -> Job:
    workload = against_trl.WORKLOADS / "step_0_ms.json"
    return Job(contender=contender, policy=str(start), workload=str(workload), train_steps=2, seed=0, threads=1)


@pytest.mark.slow
def test_a_turn_has_as_many_tokens_as_the_benchmark_says(start):
    renderer = Renderer(load_tokenizer(start))
    assert {len(renderer.response(speak(button))) for button in BUTTONS} == {TURN_TOKENS}


OWN = None
CHATML = (
    "{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}<|user|>Finish the page.<|end|>\n{% endif %}"
    "{{ '<|assistant|>' if message['role'] == 'assistant' else '<|user|>' }}{{ message['content'] }}<|end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""A template as in language models: a default system message, and a line break after the end token."""


@pytest.mark.parametrize("template", [OWN, CHATML], ids=["own", "chatml"])
def test_a_conversation_has_the_same_token_ids_in_quartet_and_in_both_ways_of_trl(start, template):
    tokenizer, chat = load_tokenizer(start), conversation(seed=5)
    tokenizer.chat_template = template or tokenizer.chat_template
    renderer = Renderer(tokenizer)
    ours = renderer.start(chat[0]["content"])
    steps = opening(tokenizer, chat[0]["content"])
    for said, seen in zip(chat[1::2], chat[2::2], strict=False):
        response = renderer.response(said["content"])
        ours = renderer.extend(ours, response, seen["content"])
        steps += response + between(tokenizer, seen["content"])
    roles = ["user", *["assistant", "tool"] * len(chat)]
    messages = [message | {"role": role} for message, role in zip(chat[:-1], roles, strict=False)]
    rendered = speak_tools(tokenizer).apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert len(chat) > 4
    assert ours == rendered == steps


@pytest.mark.parametrize("template", [OWN, CHATML], ids=["own", "chatml"])
def test_trl_finds_the_click_of_a_response(start, template):
    tokenizer = load_tokenizer(start)
    tokenizer.chat_template = template or tokenizer.chat_template
    parsed = speak_tools(tokenizer).parse_response(Renderer(tokenizer).response(speak("next")), prefix=[])
    assert [call["function"]["arguments"] for call in parsed["tool_calls"]] == [{"element": "next [2]"}]


def test_settings_are_shared(start):
    recipe = recipe_of(job(start, "quartet"), train_steps=1)
    assert recipe.rollouts_per_batch == ROLLOUTS_PER_STEP == recipe.env.sessions
    assert (recipe.engine.dtype, recipe.filters) == ("float32", [])


def step(ended: float, *, generated_tokens: float = 1.0, trained_share: float = 1.0) -> TrainStep:
    return TrainStep(ended=ended, reward=ended, generated_tokens=generated_tokens, trained_share=trained_share)


def test_masked_tokens_do_not_count_in_the_rate_that_is_compared():
    """After the warm-up of one step: 100 tokens of which 80 were trained, 300 of which 180 were: 0.65."""
    ours = Run(
        [
            step(100.0, trained_share=0.1),
            step(101.0, generated_tokens=100, trained_share=0.8),
            step(102.0, generated_tokens=300, trained_share=0.6),
        ]
    )
    theirs = Run([step(moment) for moment in (0.0, 2.0, 4.0)])
    assert ours.rollouts_per_second(1) == ROLLOUTS_PER_STEP
    assert ours.trained_rollouts_per_second(1) == pytest.approx(0.65 * ROLLOUTS_PER_STEP)
    runs = {("quartet", 0): [ours]} | {(name, 0): [theirs] for name in THEIRS}
    result = against_trl.summary(runs, [0], warm_up_steps=1)
    assert [result[f"ratio_to_{name}"] for name in THEIRS] == [{"0": 1.3}] * 2
    assert result["rollouts_per_second"]["quartet"] == {"0": ROLLOUTS_PER_STEP}
    assert result["trained_token_share"]["quartet"] == {"0": 0.65}


def test_rates_begin_after_the_warm_up():
    run = Run([step(moment) for moment in (100.0, 102.0, 104.0, 112.0)])
    assert run.rollouts_per_second(2) == 2 * ROLLOUTS_PER_STEP / 10
    assert run.step_seconds(2) == [2.0, 8.0]
    assert run.reward(2) == 108.0


def test_every_contender_runs_at_every_delay_and_goes_first_in_some_repetition():
    everybody = [Ours(), Ours(), Ours()]
    runs = list(against_trl.in_turns(everybody, [0, 50], repetitions=3))
    assert len(set(runs)) == len(runs) == 3 * 2 * 3
    assert [contender for _, _, contender in runs[::6]] == everybody


def test_a_python_without_trl_is_refused_with_advice(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'ModuleNotFoundError: trl' >&2\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(click.ClickException, match=r"no TRL: ModuleNotFoundError: trl\n-> pip install"):
        TrlProcess(str(python), threads=1)


def test_trl_computes_on_fewer_rollouts_at_a_time_if_their_logits_are_large():
    pytest.importorskip("trl")
    from benchmarks.trl_contenders.trainer import rows_per_microbatch

    assert [rows_per_microbatch(vocabulary) for vocabulary in (4096, 49_152, 1 << 30)] == [16, 4, 1]


@pytest.mark.campaign
def test_quartet_trains_as_many_steps_as_it_is_asked_for(start, tmp_path):
    run = Ours().run(job(start, "quartet"), tmp_path)
    assert [step.ended for step in run.steps] == sorted(step.ended for step in run.steps)
    assert len(run.steps) == 2
    assert all(step.generated_tokens > 0 for step in run.steps)


@pytest.mark.campaign
def test_one_process_of_trl_trains_both_ways(start):
    pytest.importorskip("trl")
    process = TrlProcess(sys.executable, threads=1)
    runs = [process.run(job(start, name)) for name in THEIRS]
    process.close()
    for run in runs:
        assert len(run.steps) == 2
        assert all(step.generated_tokens > 0 for step in run.steps)
