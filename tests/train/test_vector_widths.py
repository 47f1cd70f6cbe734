"""The kernels compute the same with the vectors of other processors: 4 lanes (SSE, NEON) and 8 lanes (AVX2)."""

import subprocess

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from quartet.engine import kernel_library as engine_kernels
from quartet.engine.row_kernel import RowKernel
from quartet.native import library
from quartet.train.kernel.tree_attention import attend_tree, tree_kernel
from quartet.train.packing.tree import Tree

FLAGS_OF_LANES = {4: "-mno-avx", 8: "-mno-avx512f"}


@pytest.fixture(params=FLAGS_OF_LANES)
def lanes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Compile as on a processor with fewer instruction sets, and return its number of lanes."""
    monkeypatch.setattr(library, "FLAGS", [*library.FLAGS, FLAGS_OF_LANES[request.param]])
    library.native_library.cache_clear()
    request.addfinalizer(library.native_library.cache_clear)
    return request.param


def test_header_takes_the_width_of_the_registers(lanes: int) -> None:
    macros = subprocess.run(
        ["c++", *library.FLAGS, "-E", "-dM", "-x", "c++", library.HEADER],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    narrow = "__AVX__" not in macros
    assert f"#define LANES {lanes if narrow == (lanes == 4) else 4}\n" in macros


@pytest.mark.slow
def test_tree_attention_and_its_gradients(lanes: int) -> None:
    torch.manual_seed(0)
    kernel = tree_kernel(32, torch.float32, torch.device("cpu"))
    assert kernel is not None
    heads = [torch.randn(count, 75, 32, requires_grad=True) for count in (4, 2, 2)]
    found = attend_tree(kernel, *heads, Tree([np.arange(75)], [0], 75), 32**-0.5).transpose(0, 1)
    expected = F.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)
    slope = torch.randn_like(found)
    torch.testing.assert_close(
        torch.autograd.grad(found, heads, slope), torch.autograd.grad(expected, heads, slope), atol=5e-5, rtol=1e-4
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_decoding_and_prefill(lanes: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    keys, values = torch.randn(2, 1, 2, 75, 32).to(dtype)
    kernels = engine_kernels.kernel_library(keys[None], 4)
    assert kernels is not None
    q_THd = torch.randn(75, 4, 32).to(dtype)
    found = RowKernel(kernels).chunks(q_THd, keys, values, 0)
    expected = F.scaled_dot_product_attention(
        q_THd.transpose(0, 1).float(), keys[0].float(), values[0].float(), is_causal=True, enable_gqa=True
    )
    atol = 1e-4 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(found.float(), expected.transpose(0, 1).flatten(1), atol=atol, rtol=0)
    last = RowKernel(kernels).singles(q_THd[-1:], keys, values, torch.tensor([74]))
    torch.testing.assert_close(last.float(), expected[:, -1].reshape(1, -1), atol=atol, rtol=0)
