"""Log-probs of trained tokens equal those of a full, naive forward of every branch on its own."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_batches import VOCAB, make_batch, make_call, make_model, make_trajectory, pack
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3ForCausalLM,
)

from quartet.train.forward import score
from quartet.train.packing.attention import attends_everywhere
from quartet.train.packing.branches import Branch
from quartet.train.packing.microbatch import Microbatch, collate
from quartet.train.packing.rows import ATTENTION_FACTOR, in_chunks, share_prompts

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
        columns = (batch.targets_T, batch.temperatures_T, scores.logprobs_T, scores.entropies_T)
        tokens += list(zip(*(column.tolist() for column in columns), strict=True))
    return tokens


def cut(branches: Sequence[Branch], *, share: bool, max_tokens: int = 200) -> list[Microbatch]:
    rows = share_prompts(branches, [1.0] * len(branches), share=share, max_tokens_per_microbatch=max_tokens)
    return [collate(chunk, packed=share) for chunk in in_chunks(rows, max_tokens, packed=share)]


def assert_same(left: list[Token], right: list[Token]) -> None:
    np.testing.assert_allclose(sorted(left), sorted(right), atol=2e-5)


def attention_positions(batch: Microbatch) -> int:
    return (batch.ids_BL if batch.tree is None else batch.tree.columns).numel()


OPENING = 70
"""Tokens that begin all prompts of some of the `branch_lists`."""
LONGEST = OPENING + 30 + 6 + 3 + 4
"""Tokens that a branch of `branch_lists` may have."""


@st.composite
def branch_lists(draw: st.DrawFn) -> list[Branch]:
    """Trajectories of one or two calls whose first prompts often coincide, or begin alike."""
    random = draw(st.randoms(use_true_random=False))

    def ids(length: int) -> list[int]:
        return [random.randrange(VOCAB) for _ in range(length)]

    opening = ids(draw(st.sampled_from([0, OPENING])))
    prompts = [opening + ids(draw(st.integers(1, 30))) for _ in range(3)]
    members = []
    for _ in range(draw(st.integers(1, 8))):
        first = make_call(draw(st.sampled_from(prompts)), ids(draw(st.integers(1, 6))), temperature=0.7)
        second = make_call(first.prompt_ids + first.response_ids + ids(3), ids(draw(st.integers(1, 4))))
        members.append(make_trajectory([first, second][: draw(st.integers(1, 2))], draw(st.sampled_from([0.0, 1.0]))))
    return pack(make_batch([members])).branches


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(branches=branch_lists(), share=st.booleans())
def test_equals_a_naive_forward(tiny_model: Qwen3ForCausalLM, branches: list[Branch], share: bool) -> None:
    with torch.no_grad():
        assert_same(ours(tiny_model, cut(branches, share=share)), naive(tiny_model, branches))


@pytest.mark.parametrize("share", [True, False])
def test_a_llama_shares_prompts_too(share: bool) -> None:
    """Its configuration does not list the attention of each layer."""
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.2,
    )
    torch.manual_seed(0)
    llama = LlamaForCausalLM(config).eval()
    assert attends_everywhere(llama)
    prompt = list(range(20))
    members = [make_trajectory([make_call(prompt, [arm, 1, arm])], float(arm == 0)) for arm in range(5)]
    members.append(make_trajectory([make_call([7, *prompt], [3, 2])], 0.0))
    branches = pack(make_batch([members])).branches
    with torch.no_grad():
        assert_same(ours(llama, cut(branches, share=share)), naive(llama, branches))


def test_shared_prompts_are_computed_once() -> None:
    prompt = list(range(40))
    members = [make_trajectory([make_call(prompt, [arm, 1])], float(arm == 0)) for arm in range(8)]
    branches = pack(make_batch([members])).branches
    (shared,) = cut(branches, share=True)
    assert shared.ids_BL.shape == (1, 40 + 8 * 2)
    assert sum(batch.ids_BL.numel() for batch in cut(branches, share=False)) == 8 * 42


@pytest.mark.parametrize(
    ("max_tokens", "computed"), [(300, [70 + 3 * 5 + 12 * 2]), (175, [70 + 2 * 5 + 8 * 2, 70 + 5 + 8])]
)
def test_groups_whose_prompts_begin_alike_share_the_beginning_as_far_as_they_fit(
    tiny_model: Qwen3ForCausalLM, max_tokens: int, computed: list[int]
) -> None:
    opening = [token % VOCAB for token in range(70)]
    groups = [
        [make_trajectory([make_call([*opening, *[question] * 5], [arm, 1])], float(arm == 0)) for arm in range(4)]
        for question in (3, 7, 9)
    ]
    branches = pack(make_batch(groups)).branches
    batches = cut(branches, share=True, max_tokens=max_tokens)
    assert [batch.ids_BL.shape[1] for batch in batches] == computed
    with torch.no_grad():
        assert_same(ours(tiny_model, batches), naive(tiny_model, branches))


def test_prompts_that_begin_alike_for_a_few_tokens_only_stay_in_their_own_rows() -> None:
    groups = [
        [make_trajectory([make_call([*range(40), question], [arm])], float(arm == 0)) for arm in range(2)]
        for question in (3, 7)
    ]
    rows = share_prompts(pack(make_batch(groups)).branches, [1.0] * 4, share=True, max_tokens_per_microbatch=200)
    assert [row.num_tokens for row in rows] == [43, 43]


def test_long_tails_share_their_prompt_too() -> None:
    members = [
        make_trajectory([make_call([1, 2, 3], range(arm, arm + 10))], float(arm == 0)) for arm in range(0, 40, 10)
    ]
    branches = pack(make_batch([members])).branches
    assert [batch.ids_BL.shape for batch in cut(branches, share=True)] == [(1, 3 + 4 * 10)]


def test_a_row_as_long_as_a_microbatch_is_followed_by_another() -> None:
    members = [
        make_trajectory([make_call([1, 2, 3], range(arm, arm + 10))], float(arm == 0)) for arm in range(0, 40, 10)
    ]
    branches = pack(make_batch([members])).branches
    assert [batch.ids_BL.shape[1] for batch in cut(branches, share=True, max_tokens=23)] == [3 + 2 * 10] * 2


def test_a_long_branch_does_not_make_padding_of_short_ones() -> None:
    lengths = (40, 4, 4, 4)
    members = [make_trajectory([make_call([arm], range(n))], float(arm == 0)) for arm, n in enumerate(lengths)]
    branches = pack(make_batch([members])).branches
    batches = cut(branches, share=True, max_tokens=60)
    shapes = [batch.tree.columns.shape for batch in batches if batch.tree is not None]
    assert shapes == [(1, 41), (3, 5)]


@settings(max_examples=25, deadline=None)
@given(branches=branch_lists(), share=st.booleans(), max_tokens=st.integers(LONGEST, 300))
def test_microbatches_hold_their_bound_and_lose_nothing(branches: list[Branch], share: bool, max_tokens: int) -> None:
    batches = cut(branches, share=share, max_tokens=max_tokens)
    assert all(batch.ids_BL.numel() <= max_tokens for batch in batches)
    assert all(attention_positions(batch) <= ATTENTION_FACTOR * max_tokens for batch in batches)
    assert sum(len(batch.targets_T) for batch in batches) == sum(branch.num_trained_tokens for branch in branches)


@pytest.mark.parametrize(
    ("prompt_tokens", "tails", "shapes"),
    [
        (200, [3800] + [60] * 63, [(2, 4000), (62, 260)]),
        (900, [20] * 256, [(35, 920)] * 7 + [(11, 920)]),
    ],
)
def test_a_shared_prompt_does_not_make_attention_boundless(
    prompt_tokens: int, tails: list[int], shapes: list[tuple[int, int]]
) -> None:
    """One long branch among short ones: beyond the bound only branches of like length go together. Alike, but many: at
    most 4 * 8192 positions."""
    members = [make_trajectory([make_call([1] * prompt_tokens, [2] * tail)], float(tail == 20)) for tail in tails]
    branches = pack(make_batch([members])).branches
    batches = cut(branches[::-1], share=True, max_tokens=8192)
    assert [tuple(batch.tree.columns.shape) for batch in batches if batch.tree is not None] == shapes


@pytest.mark.parametrize("share", [True, False])
def test_a_sequence_longer_than_a_microbatch_is_a_microbatch_of_its_own(share: bool) -> None:
    """It was sampled under a longer context, before a resume: the run must not end with it."""
    members = [make_trajectory([make_call(range(prompt), [1])], float(prompt)) for prompt in (9, 30, 8, 40)]
    branches = pack(make_batch([members])).branches
    batches = cut(branches, share=share, max_tokens=20)
    assert [[branch.num_tokens for branch in batch.branches] for batch in batches] == [[41], [31], [10, 9]]


@pytest.mark.parametrize("cap", [0.05, 30.0])
def test_log_probs_are_of_logits_that_the_model_has_capped(cap: float) -> None:
    config = Gemma2Config(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        final_logit_softcapping=cap,
    )
    capped = Gemma2ForCausalLM(config).eval()
    members = [make_trajectory([make_call(range(prompt), [1, 2])], float(prompt)) for prompt in (9, 4)]
    branches = pack(make_batch([members])).branches
    assert_same(ours(capped, cut(branches, share=False)), naive(capped, branches))
    assert attends_everywhere(make_model())
    assert not attends_everywhere(capped)
