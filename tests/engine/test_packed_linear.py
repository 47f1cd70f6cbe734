"""A packed product is the plain one, and follows weights that change in place."""

import pytest
import torch
import torch.nn.functional as F

from quartet.engine import packed_linear
from quartet.engine.packed_linear import PackedLinear


@pytest.mark.parametrize("biased", [True, False])
def test_elsewhere_nothing_is_packed(biased: bool) -> None:
    """float16 stands for all that oneDNN does not compute."""
    weight_ED, bias_E = torch.randn(8, 4).half(), torch.randn(8).half() if biased else None
    x_TD, residual_TE = torch.randn(3, 4).half(), torch.randn(3, 8).half()
    matrix = PackedLinear(weight_ED, bias_E)
    assert matrix.packed is None
    expected_TE = F.linear(x_TD, weight_ED, bias_E)
    torch.testing.assert_close(matrix(x_TD), expected_TE)
    torch.testing.assert_close(matrix.added_to(residual_TE, x_TD), residual_TE + expected_TE, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("tokens", [1, 3, 64])
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch has no oneDNN here")
def test_products_and_sums(dtype: torch.dtype, biased: bool, tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_linear, "ONE_DNN_IS_FASTER", True)
    torch.manual_seed(0)
    weight_ED, bias_E = torch.randn(48, 80).to(dtype), torch.randn(48).to(dtype) if biased else None
    x_TD, residual_TE = torch.randn(tokens, 80).to(dtype), torch.randn(tokens, 48).to(dtype)
    matrix = PackedLinear(weight_ED, bias_E)
    has_bfloat16 = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001 -- PyTorch has no public name
    assert (matrix.packed is not None) == (dtype == torch.float32 or has_bfloat16)
    atol = 1e-4 if dtype == torch.float32 else 0.2
    for _ in range(2):
        exact_TE = F.linear(x_TD.double(), weight_ED.double(), None if bias_E is None else bias_E.double())
        torch.testing.assert_close(matrix(x_TD).double(), exact_TE, atol=atol, rtol=0)
        summed_TE = matrix.added_to(residual_TE, x_TD).double()
        torch.testing.assert_close(summed_TE, residual_TE.double() + exact_TE, atol=atol, rtol=0)
        weight_ED.neg_()
        if bias_E is not None:
            bias_E.add_(1)
        matrix.pack()


@pytest.mark.parametrize(("rows", "large"), [(1024, False), (1025, True)])
def test_matrices_beyond_the_cache_are_packed_where_mkl_is_faster_otherwise(
    rows: int, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of 512 channels has 2 KiB in float32."""
    monkeypatch.setattr(packed_linear, "ONE_DNN_IS_FASTER", False)
    packed = PackedLinear(torch.randn(rows, 512)).packed
    assert (packed is not None) == (large and packed_linear.HAS_BOTH_WITH_AVX512)
