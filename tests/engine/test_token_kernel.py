"""The compiled operations on single tokens do what PyTorch's do, and write to no other place."""

import pytest
import torch
from engine_models import make_model
from hypothesis import given, settings
from hypothesis import strategies as st

from quartet.engine.kernel_library import kernel_library
from quartet.engine.token_kernel import TokenKernel, can_compute
from quartet.engine.token_ops import HeadNorms, Places, TorchTokenOps

EPS = 1e-6
KINDS = pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float32, 1e-5), (torch.bfloat16, 4e-2)], ids=["float32", "bfloat16"]
)
TOKENS = st.sampled_from([1, 5, 70])


def kernel_of(dtype: torch.dtype, kv_heads: int = 2, group: int = 2, head_dim: int = 32) -> TokenKernel:
    library = kernel_library(torch.zeros(1, 1, kv_heads, 8, head_dim, dtype=dtype), kv_heads * group)
    assert library is not None, "the tests need a C++ compiler"
    return TokenKernel(library, kv_heads * group, head_dim, EPS)


@KINDS
@settings(deadline=None, max_examples=10)
@given(tokens=TOKENS, size=st.sampled_from([16, 48, 256]), scale=st.sampled_from([1e-3, 1.0, 1e3]))
def test_norm(dtype: torch.dtype, atol: float, tokens: int, size: int, scale: float) -> None:
    torch.manual_seed(0)
    x_TD, weight_D = (scale * torch.randn(tokens, size)).to(dtype), torch.randn(size).to(dtype)
    expected_TD = TorchTokenOps(EPS).normed(x_TD.double(), weight_D.double())
    torch.testing.assert_close(kernel_of(dtype).normed(x_TD, weight_D).double(), expected_TD, atol=atol, rtol=0)


@KINDS
@settings(deadline=None, max_examples=10)
@given(tokens=TOKENS, size=st.sampled_from([16, 48, 512]), scale=st.sampled_from([1.0, 300.0]))
def test_gate(dtype: torch.dtype, atol: float, tokens: int, size: int, scale: float) -> None:
    """Far from zero too, where e^x is nothing or more than a float holds."""
    torch.manual_seed(0)
    gate_up_TE = torch.cat([scale * torch.randn(tokens, size), torch.randn(tokens, size)], dim=1).to(dtype)
    expected_TM = TorchTokenOps(EPS).gated(gate_up_TE.double())
    rtol = 1e-5 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(kernel_of(dtype).gated(gate_up_TE).double(), expected_TM, atol=atol, rtol=rtol)


@KINDS
@pytest.mark.parametrize(("group", "head_dim"), [(1, 64), (2, 32), (7, 128)])
@pytest.mark.parametrize("normed", [True, False])
@settings(deadline=None, max_examples=5)
@given(tokens=TOKENS, kv_heads=st.integers(1, 3))
def test_queries_are_turned_and_keys_and_values_find_their_place(
    dtype: torch.dtype, atol: float, group: int, head_dim: int, normed: bool, tokens: int, kv_heads: int
) -> None:
    torch.manual_seed(0)
    heads, capacity = kv_heads * group, tokens + 3
    projected_TE = torch.randn(tokens, (heads + 2 * kv_heads) * head_dim).to(dtype)
    norms = HeadNorms(*torch.randn(2, head_dim).to(dtype)) if normed else None
    angles_Th = torch.randn(tokens, head_dim // 2)
    places = Places(
        torch.randint(2, (tokens,)), torch.randperm(tokens), angles_Th.cos().to(dtype), angles_Th.sin().to(dtype)
    )
    untouched = torch.randn(2, 2, kv_heads, capacity, head_dim).to(dtype)
    expected, got = untouched.double(), untouched.clone()
    exact = (each.double() for each in (places.cos_Th, places.sin_Th))
    expected_q = TorchTokenOps(EPS).placed(
        projected_TE.double(),
        norms and HeadNorms(*(each.double() for each in norms)),
        *expected,
        Places(places.rows_T, places.positions_T, *exact),
    )
    q_THd = kernel_of(dtype, kv_heads, group, head_dim).placed(projected_TE, norms, *got, places)
    torch.testing.assert_close(q_THd.double(), expected_q, atol=2 * atol, rtol=1e-2)
    torch.testing.assert_close(got.double(), expected, atol=2 * atol, rtol=1e-2)
    written = torch.zeros(2, 1, capacity, 1, dtype=torch.bool)
    written[places.rows_T, :, places.positions_T] = True
    assert torch.equal(got.where(~written, 0), untouched.where(~written, 0))


def test_gate_where_e_to_the_x_is_nothing() -> None:
    gate_TM = torch.tensor([-1e37, -200.0, -88.0, -86.0, 88.0, 1e37, 0.0, torch.nan] * 2)[None]
    gate_up_TE = torch.cat([gate_TM, torch.ones_like(gate_TM)], dim=1)
    torch.testing.assert_close(
        kernel_of(torch.float32).gated(gate_up_TE), TorchTokenOps(EPS).gated(gate_up_TE), equal_nan=True
    )


def test_kernel_rejects_uneven_widths_and_mixed_types() -> None:
    model = make_model("llama_wide")
    assert can_compute(model, 32)
    assert not can_compute(model, 16)
    model.config.intermediate_size = 520
    assert not can_compute(model, 32)
    model.config.intermediate_size = 128
    model.lm_head.to(torch.bfloat16)
    assert not can_compute(model, 32)
