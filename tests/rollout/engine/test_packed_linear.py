"""A packed product is the plain one, and follows weights that change in place."""

import pytest
import torch
import torch.nn.functional as F

from quartet.rollout.engine.packed_linear import PackedLinear


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("tokens", [1, 3, 64])
def test_products_and_sums(dtype: torch.dtype, biased: bool, tokens: int) -> None:
    torch.manual_seed(0)
    weight_ED, bias_E = torch.randn(48, 80).to(dtype), torch.randn(48).to(dtype) if biased else None
    x_TD, residual_TE = torch.randn(tokens, 80).to(dtype), torch.randn(tokens, 48).to(dtype)
    matrix = PackedLinear(weight_ED, bias_E)
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
