"""Log-probs of trained tokens equal those of a full, naive forward of every branch on its own."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_batches import VOCAB, make_batch, make_call, make_model, make_trajectory
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    PreTrainedModel,
    Qwen3ForCausalLM,
)

from quartet.config import Advantage
from quartet.errors import ConfigError
from quartet.train.advantage import make_advantage
from quartet.train.forward import attends_everywhere, require_plain_head, score
from quartet.train.microbatch import Microbatch, collate, in_chunks, share_prompts
from quartet.train.packing import Branch, pack_batch

Token = tuple[int, float, float, float]
"""What identifies a trained token below: target, temperature, log-prob, entropy."""


def naive(model: PreTrainedModel, branches: Sequence[Branch]) -> list[Token]:
    tokens = []
    for branch in branches:
        logits_LV = model(torch.from_numpy(branch.ids_L)[None]).logits[0]
        for position in np.flatnonzero(branch.trained_L):
            target, temperature = int(branch.ids_L[position]), float(branch.temperatures_L[position])
            logits_V = logits_LV[position - 1]
            logprob = float((logits_V / temperature).log_softmax(-1)[target])
            tokens.append(
                (target, temperature, logprob, float(torch.distributions.Categorical(logits=logits_V).entropy()))
            )
    return tokens


def ours(model: PreTrainedModel, batches: Sequence[Microbatch]) -> list[Token]:
    tokens = []
    for batch in batches:
        scores = score(model, batch)
        columns = (batch.targets_T, batch.temperatures_T, *scores)
        tokens += list(zip(*(column.tolist() for column in columns), strict=True))
    return tokens


def cut(branches: Sequence[Branch], *, share: bool, max_tokens: int = 200) -> list[Microbatch]:
    rows = share_prompts(branches, [1.0] * len(branches), share=share)
    return [collate(chunk) for chunk in in_chunks(rows, max_tokens)]


def assert_same(left: list[Token], right: list[Token]) -> None:
    np.testing.assert_allclose(sorted(left), sorted(right), atol=2e-5)


@st.composite
def branch_lists(draw: st.DrawFn) -> list[Branch]:
    """Trajectories of one or two calls whose first prompts often coincide."""
    random = draw(st.randoms(use_true_random=False))

    def ids(length: int) -> list[int]:
        return [random.randrange(VOCAB) for _ in range(length)]

    prompts = [ids(draw(st.integers(1, 30))) for _ in range(3)]
    members = []
    for _ in range(draw(st.integers(1, 8))):
        first = make_call(draw(st.sampled_from(prompts)), ids(draw(st.integers(1, 6))), temperature=0.7)
        second = make_call(first.prompt_ids + first.response_ids + ids(3), ids(draw(st.integers(1, 4))))
        members.append(make_trajectory([first, second][: draw(st.integers(1, 2))], draw(st.sampled_from([0.0, 1.0]))))
    return pack_batch(make_batch([members]), make_advantage(Advantage()), max_lag=0).branches


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(branches=branch_lists(), share=st.booleans())
def test_equals_a_naive_forward(tiny_model: Qwen3ForCausalLM, branches: list[Branch], share: bool) -> None:
    with torch.no_grad():
        assert_same(ours(tiny_model, cut(branches, share=share)), naive(tiny_model, branches))


def test_shared_prompts_are_computed_once() -> None:
    prompt = list(range(40))
    members = [make_trajectory([make_call(prompt, [arm, 1])], float(arm == 0)) for arm in range(8)]
    branches = pack_batch(make_batch([members]), make_advantage(Advantage()), max_lag=0).branches
    (shared,) = cut(branches, share=True)
    assert shared.ids_BL.shape == (1, 40 + 8 * 2)
    assert sum(batch.ids_BL.numel() for batch in cut(branches, share=False)) == 8 * 42


def test_long_tails_are_not_shared() -> None:
    members = [make_trajectory([make_call([1, 2, 3], range(10))], float(arm == 0)) for arm in range(4)]
    branches = pack_batch(make_batch([members]), make_advantage(Advantage()), max_lag=0).branches
    assert all(batch.visible_B1LL is None for batch in cut(branches, share=True))


@settings(max_examples=25, deadline=None)
@given(branches=branch_lists(), max_tokens=st.integers(80, 300))
def test_microbatches_hold_their_bound_and_lose_nothing(branches: list[Branch], max_tokens: int) -> None:
    batches = cut(branches, share=True, max_tokens=max_tokens)
    assert all(batch.ids_BL.numel() <= max_tokens for batch in batches)
    assert sum(len(batch.targets_T) for batch in batches) == sum(branch.num_trained_tokens for branch in branches)


def test_a_sequence_too_long_for_a_microbatch_is_refused() -> None:
    branches = pack_batch(
        make_batch([[make_trajectory([make_call(range(30), [1])], 1.0)]]), make_advantage(Advantage()), max_lag=0
    ).branches
    with pytest.raises(ConfigError, match="max_tokens_per_microbatch = 20"):
        cut(branches, share=True, max_tokens=20)


def test_architectures_that_change_their_logits_are_refused() -> None:
    require_plain_head(make_model())
    config = Gemma2Config(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        final_logit_softcapping=0.05,
    )
    capped = Gemma2ForCausalLM(config).eval()
    with pytest.raises(ConfigError, match="changes its logits"):
        require_plain_head(capped)
    assert attends_everywhere(make_model())
    assert not attends_everywhere(capped)
