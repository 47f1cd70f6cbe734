"""The trainer on a GPU: FlashAttention over packed rows, fused scores of tokens, compiled layers."""

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from test_step import branches_of, nothing, trajectories
from tiny_batches import make_call, make_model, make_trajectory
from transformers import GPT2Config, GPT2LMHeadModel

from quartet.config import Recipe
from quartet.errors import ConfigError, SetupError
from quartet.policy.never_sampled import without_tokens
from quartet.train.activation_checkpointing import decoder_layers
from quartet.train.gpu import support
from quartet.train.gpu.compiled_layers import Compiled
from quartet.train.gpu.flash_attention import attend_flash
from quartet.train.gpu.repeat import repeated
from quartet.train.gpu.support import require_kernels
from quartet.train.gpu.warm_up import warm_up
from quartet.train.packing.segments import repeats_of, segments_of
from quartet.train.packing.tree import Tree
from quartet.train.step import Learner
from quartet.types import Trajectory
from tests.devices import needs_cuda

RecipeBuilder = Callable[..., Recipe]


def plain(logits_TV: torch.Tensor, targets_T: torch.Tensor, temperatures_T: torch.Tensor) -> list[torch.Tensor]:
    logits_TV = logits_TV.double()
    scaled_TV = (logits_TV / temperatures_T.unsqueeze(1)).log_softmax(1)
    entropies_T = torch.distributions.Categorical(logits=logits_TV).entropy()
    return [scaled_TV.gather(1, targets_T.unsqueeze(1)).squeeze(1), entropies_T]


def fused(*arguments: torch.Tensor) -> tuple[torch.Tensor, ...]:
    from quartet.train.gpu.token_scores import FusedTokenScores  # needs Triton

    return FusedTokenScores.apply(*arguments)


@needs_cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("with_entropies", [True, False])
@pytest.mark.parametrize("vocabulary", [301, 9001])
def test_fused_scores_and_their_gradients_are_those_of_the_formula(
    vocabulary: int, with_entropies: bool, dtype: torch.dtype
) -> None:
    """The maximum of half of the rows is among their last logits, so the sums are rescaled."""
    torch.manual_seed(0)
    logits_TV = 3 * torch.randn(7, vocabulary, device="cuda")
    logits_TV[::2, -5:] += 20
    logits_TV = logits_TV.to(dtype).requires_grad_()
    targets_T = torch.randint(vocabulary, (7,), device="cuda")
    temperatures_T = torch.tensor([1.0, 1.0, 0.5, 2.0, 1.0, 0.7, 1.3], device="cuda")
    weights_2T = torch.randn(2, 7, device="cuda")
    found, expected = [], []
    for scores, kept in (
        (fused(logits_TV, targets_T, temperatures_T), found),
        (plain(logits_TV, targets_T, temperatures_T), expected),
    ):
        total = sum((w_T * s_T).sum() for w_T, s_T in zip(weights_2T[: 1 + with_entropies], scores, strict=False))
        kept += [*scores, torch.autograd.grad(total, logits_TV)[0]]
    for ours, theirs in zip(found, expected, strict=True):
        tolerance = {"atol": 2e-2, "rtol": 1e-2} if ours.dtype == torch.bfloat16 else {"atol": 2e-5, "rtol": 1e-5}
        torch.testing.assert_close(ours.double(), theirs.double(), **tolerance)


@needs_cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_token_that_is_never_sampled_contributes_nothing_to_fused_scores(dtype: torch.dtype) -> None:
    logits_TV = torch.randn(3, 9, device="cuda").to(dtype)
    masked_TV = without_tokens(logits_TV, [2, 5]).requires_grad_()
    few_TV = logits_TV[:, [0, 1, 3, 4, 6, 7, 8]]
    temperatures_T = torch.tensor([1.0, 0.5, 2.0], device="cuda")
    targets_T, targets_among_few_T = torch.tensor([[0, 8, 3], [0, 6, 2]], device="cuda")
    found = fused(masked_TV, targets_T, temperatures_T)
    for ours, theirs in zip(found, plain(few_TV, targets_among_few_T, temperatures_T), strict=True):
        torch.testing.assert_close(ours.double(), theirs, atol=1e-5, rtol=1e-5)
    (slopes_TV,) = torch.autograd.grad(found[0].sum() + found[1].sum(), masked_TV)
    assert slopes_TV.isfinite().all() and not slopes_TV[:, [2, 5]].any()


def test_segments_are_the_tails_of_the_row_and_the_columns_of_the_branches() -> None:
    """The third branch is a prefix of the first, so it has no tail."""
    columns = [np.arange(6), np.array([0, 1, 2, 6, 7]), np.arange(4), np.array([0, 1, 2, 6, 8])]
    segments = segments_of(Tree(columns, [0, 3, 4, 4], 9))
    parts = np.split(segments.repeats.columns_X.numpy(), segments.branch_ends[1:-1])
    assert [part.tolist() for part in parts] == [columns[branch].tolist() for branch in (0, 1, 3)]
    tails = np.split(np.arange(9), segments.tail_ends[1:-1])
    for part, tail in zip(parts, tails, strict=True):
        assert part[-len(tail) :].tolist() == tail.tolist()
    assert (segments.longest_tail, segments.longest_branch) == (6, 6)
    assert segments.tail_ends.dtype == segments.branch_ends.dtype == torch.int32


def test_segments_of_branches_that_share_nothing_are_the_row_itself() -> None:
    segments = segments_of(Tree([np.arange(4), np.arange(4, 9)], [0, 0], 9))
    assert segments.repeats.columns_X.tolist() == segments.repeats.firsts_L.tolist() == list(range(9))
    assert not len(segments.repeats.others_E)
    assert segments.tail_ends.tolist() == segments.branch_ends.tolist() == [0, 4, 9]


def test_the_gradient_of_a_repetition_is_that_of_index_select() -> None:
    columns = np.array([0, 1, 2, 3, 0, 1, 4, 0, 1, 2, 5])
    x, weights = torch.randn(6, 2, 3, requires_grad=True), torch.randn(11, 2, 3)
    found = repeated(x, repeats_of(columns, 6))
    assert torch.equal(found, x[columns])
    ours, theirs = (torch.autograd.grad((weights * one).sum(), x)[0] for one in (found, x[columns]))
    torch.testing.assert_close(ours, theirs)


def test_a_copy_of_a_compiled_layer_trains_the_copy() -> None:
    """A critic is a copy of the policy, made after the policy's layers were compiled."""
    model = make_model()
    for layer in decoder_layers(model):
        layer.forward = Compiled(layer.forward, backend="eager")
    copied = copy.deepcopy(model)
    copied(input_ids=torch.arange(6)[None]).logits.sum().backward()
    assert all(parameter.grad is not None for parameter in copied.parameters())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("device", "dtype", "compiled"),
    [
        ("cpu", "bfloat16", False),
        pytest.param("cuda", "float32", False, marks=needs_cuda),
        pytest.param("cuda", "bfloat16", True, marks=needs_cuda),
    ],
)
def test_layers_are_compiled_where_attention_is_flash_attention(
    recipe: RecipeBuilder, device: str, dtype: str, compiled: bool
) -> None:
    learner = Learner(make_model(), recipe(train={"device": device, "compute_dtype": dtype}))
    assert [isinstance(layer.forward, Compiled) for layer in decoder_layers(learner.model)] == [compiled] * 2


def test_layers_of_a_model_with_names_of_its_own_are_found() -> None:
    model = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_embd=8, n_layer=3, n_head=2))
    assert len(decoder_layers(model)) == 3


def test_attention_of_another_kind_is_refused() -> None:
    heads, segments = torch.zeros(1, 2, 4, 8), segments_of(Tree([np.arange(4)], [0], 4))
    with pytest.raises(ConfigError, match="passes softcap, "):
        attend_flash(torch.nn.Identity(), heads, heads, heads, None, segments=segments, softcap=30.0)


def forked() -> list[list[Trajectory]]:
    """Return groups of four that share a prompt of 40 tokens, besides those of `trajectories`."""
    random = np.random.default_rng(1)
    prompt = random.integers(0, 50, 40).tolist()
    calls = [make_call(prompt, random.integers(0, 50, length).tolist(), temperature=0.8) for length in (3, 9, 20, 33)]
    return [*trajectories(), [make_trajectory([call], float(index)) for index, call in enumerate(calls)]]


@needs_cuda
def test_flash_attention_over_a_tree_agrees_with_float32_in_values_and_gradients(recipe: RecipeBuilder) -> None:
    found = []
    for dtype, device in (("bfloat16", "cuda"), ("float32", "cpu")):
        settings = recipe(train={"device": device, "compute_dtype": dtype, "max_tokens_per_microbatch": 512})
        learner = Learner(make_model(), settings)
        (minibatch,) = learner.plan(branches_of(forked(), settings), 1, nothing)
        assert any(len(segments_of(one.tree).repeats.others_E) for one in minibatch if one.tree)
        logprobs = [learner.scorer.score(microbatch).logprobs_T for microbatch in minibatch]
        learner.gradient(minibatch, nothing)
        gradients = [
            parameter.grad.flatten() for parameter in learner.parameters.values() if parameter.grad is not None
        ]
        found.append([torch.cat(logprobs).detach().cpu(), torch.cat(gradients).cpu()])
    (logprobs, slopes), (exact_logprobs, exact_slopes) = found
    assert 0 < (logprobs - exact_logprobs).abs().max() < 0.25
    cosine = torch.nn.functional.cosine_similarity(slopes, exact_slopes, dim=0)
    assert cosine > 0.999


def test_the_first_passes_change_neither_weights_nor_optimizer(recipe: RecipeBuilder) -> None:
    settings = recipe(credit="gae", loss={"terms": ["ppo_clip", "value", {"name": "kl", "weight": 0.1}]})
    learner, beats = Learner(make_model(), settings, {"reference": make_model(seed=1)}), list[None]()
    before = {name: parameter.clone() for name, parameter in learner.parameters.items()}
    warm_up(learner, lambda: beats.append(None))
    assert beats and not learner.optimizer.state and learner.optimizer_step == 0
    for name, parameter in learner.parameters.items():
        assert torch.equal(parameter, before[name]) and parameter.grad is None


def test_an_error_of_the_first_passes_is_raised(recipe: RecipeBuilder) -> None:
    learner = Learner(make_model(), recipe())
    learner.model.get_input_embeddings().weight = torch.nn.Parameter(torch.ones(1, 32))
    with pytest.raises(IndexError):
        warm_up(learner, nothing)


def test_a_gpu_without_a_c_compiler_is_refused_before_a_batch_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "find_spec", lambda name: name)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CC", "")
    with pytest.raises(SetupError, match="needs a C compiler"):
        require_kernels(torch.device("cuda"))
    require_kernels(torch.device("cpu"))


def test_a_gpu_without_triton_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "find_spec", lambda name: None)
    with pytest.raises(SetupError, match="needs Triton"):
        require_kernels(torch.device("cuda:1"))
