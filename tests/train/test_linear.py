"""Linear layers of the trainer compute what `torch.nn.Linear` does, and its gradients, whichever library multiplies."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_batches import make_model
from torch.nn.functional import linear

from quartet.train.linear import TrainedLinear, TrainedPatches, product, train_by_the_faster_library

LEADING_SHAPES = [(), (0,), (1,), (7,), (64,), (0, 3), (2, 5), (2, 3, 4)]


def with_gaps(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, every second one in memory."""
    return tensor.repeat_interleave(2, dim=-1)[..., ::2]


def outcome(
    product: object, x: torch.Tensor, weight_ED: torch.Tensor, bias_E: torch.Tensor | None, gradient: torch.Tensor
) -> list[torch.Tensor]:
    """The product, then the gradients of all that has one."""
    leaves = [tensor.detach().requires_grad_() for tensor in (x, weight_ED, bias_E) if tensor is not None]
    y = product(*leaves, *([None] if bias_E is None else []))  # pyright: ignore[reportCallIssue]
    return [y, *torch.autograd.grad(y, leaves, gradient)]


@settings(max_examples=60, deadline=None)
@given(
    leading=st.sampled_from(LEADING_SHAPES),
    width_in=st.integers(1, 70),
    width_out=st.integers(1, 70),
    biased=st.booleans(),
    gaps=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_equals_the_plain_product_and_its_gradients(
    leading: tuple[int, ...], width_in: int, width_out: int, biased: bool, gaps: bool, seed: int
) -> None:
    """Within the rounding of float32: each entry is a sum of at most 70 products of normal numbers."""
    random = torch.Generator().manual_seed(seed)
    x, gradient = (torch.randn(*leading, width, generator=random) for width in (width_in, width_out))
    weight_ED = torch.randn(width_out, width_in, generator=random)
    bias_E = torch.randn(width_out, generator=random) if biased else None
    if gaps:
        x, gradient = with_gaps(x), with_gaps(gradient)
    ours = outcome(product, x, weight_ED, bias_E, gradient)
    for one, other in zip(ours, outcome(linear, x, weight_ED, bias_E, gradient), strict=True):
        torch.testing.assert_close(one, other, atol=5e-5, rtol=1e-5)


@pytest.mark.parametrize("biased", [False, True])
def test_the_gradient_is_that_of_the_product(biased: bool) -> None:
    """By finite differences, in float64."""
    torch.manual_seed(0)
    shapes = [(3, 4), (5, 4), (5,)]
    x, weight_ED, bias_E = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    assert torch.autograd.gradcheck(product, (x, weight_ED, bias_E if biased else None))


def test_the_same_numbers_give_the_same_bits() -> None:
    """Wherever they lie in memory: a train step that is done again must give the same weights."""
    torch.manual_seed(0)
    x, weight_ED, gradient = torch.randn(200, 96), torch.randn(160, 96), torch.randn(200, 160)
    first = outcome(product, x, weight_ED, None, gradient)
    shifted = torch.empty(x.numel() + 3)[3:].view_as(x).copy_(x)
    for one, other in zip(first, outcome(product, shifted, weight_ED, None, gradient), strict=True):
        assert torch.equal(one, other)


def test_a_model_keeps_its_parameters_names_and_ties() -> None:
    plain = make_model()
    model = copy.deepcopy(plain)
    train_by_the_faster_library(model)
    assert not any(type(module) is torch.nn.Linear for module in model.modules())
    assert isinstance(model.lm_head, TrainedLinear)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert list(model.state_dict()) == list(plain.state_dict())
    ids_BL = torch.arange(30).view(2, 15)
    for one in (plain, model):
        one(ids_BL, labels=ids_BL).loss.backward()
    for (name, ours), theirs in zip(model.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-4, msg=name)


def test_other_types_are_left_to_torch() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(8, 4).to(torch.bfloat16)
    x = torch.randn(3, 8, dtype=torch.bfloat16)
    expected = layer(x)
    train_by_the_faster_library(layer)
    assert torch.equal(layer(x), expected)


@pytest.mark.parametrize("shape", [(32,), (5, 32), (2, 3, 32)])
def test_output_may_be_changed_in_place(shape: tuple[int, ...]) -> None:
    layer = torch.nn.Linear(32, 16)
    x = torch.randn(shape)
    expected = torch.autograd.grad(layer(x).mul(2).sum(), layer.weight)[0]
    train_by_the_faster_library(layer)
    y = layer(x)
    y[..., :8].mul_(2)
    y[..., 8:].mul_(2)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), layer.weight)[0], expected)


def test_patches_equal_the_convolution_and_its_gradients() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Conv3d(3, 8, kernel_size=(2, 4, 4), stride=(2, 4, 4))
    ours = copy.deepcopy(layer)
    train_by_the_faster_library(ours)
    assert type(ours) is TrainedPatches
    patches = torch.randn(5, 3, 2, 4, 4, requires_grad=True)
    outcomes: list[list[torch.Tensor]] = []
    for one in (layer, ours):
        y = one(patches)
        leaves = [patches, *one.parameters()]
        outcomes.append([y, *torch.autograd.grad(y.square().sum(), leaves)])
    for found, expected in zip(*outcomes, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("settings", [{"padding": 1}, {"groups": 2}, {"dilation": 2}])
def test_other_convolutions_stay_as_they_are(settings: dict[str, int]) -> None:
    layer = torch.nn.Conv3d(4, 4, kernel_size=2, **settings)
    train_by_the_faster_library(layer)
    assert type(layer) is torch.nn.Conv3d


def test_a_picture_of_several_patches_is_still_convolved() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Conv3d(3, 8, kernel_size=2, stride=2)
    picture = torch.randn(1, 3, 2, 4, 4)
    expected = layer(picture)
    train_by_the_faster_library(layer)
    torch.testing.assert_close(layer(picture), expected, atol=0, rtol=0)
