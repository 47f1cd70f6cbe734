"""The Triton kernels compute what PyTorch does, to each row's own tokens and to nothing else."""

import pytest
import torch
import torch.nn.functional as F
from engine_models import MAX_CONTEXT_TOKENS, make_model
from kernel_device import KERNEL_DEVICE, import_triton

from quartet.engine.dense_forward import DenseForward
from quartet.engine.forward import Span
from quartet.engine.rows import Rows
from quartet.engine.sampling import sample
from quartet.engine.token_ops import HeadNorms, Places, TorchTokenOps
from quartet.types import Sampling

import_triton()

from triton.runtime.errors import OutOfResources  # noqa: E402  # pyright: ignore[reportMissingImports]

from quartet.engine.cuda.attention import DecodeAttention  # noqa: E402
from quartet.engine.cuda.draw import draw  # noqa: E402
from quartet.engine.cuda.inputs import DecodeInputs  # noqa: E402
from quartet.engine.cuda.support import can_run  # noqa: E402
from quartet.engine.cuda.token_kernels import gated, normed, placed  # noqa: E402

EPS = 1e-6
SHARED_BYTES = 99 * 1024
LAYERS, LAYER = 3, 2
DTYPES = pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float32, 1e-4), (torch.bfloat16, 3e-2)], ids=["float32", "bfloat16"]
)


def rows_of(dtype: torch.dtype, num_rows: int, kv_heads: int, head_dim: int, length: int) -> Rows:
    """Rows full of random numbers."""
    like = torch.zeros(1, kv_heads, 1, head_dim, dtype=dtype, device=KERNEL_DEVICE)
    rows = Rows([(like, like)] * LAYERS, num_rows, 1024)
    rows.reserve(num_rows, length)
    for buffer in (rows.keys, rows.values):
        buffer.copy_(torch.randn(buffer.shape))
    return rows


def inputs_of(positions: list[int], rows: Rows, padding: int) -> DecodeInputs:
    inputs = DecodeInputs(len(positions) + padding, rows.keys.device)
    inputs.fill([Span(position, [7]) for position in positions], rows)
    return inputs


@DTYPES
@pytest.mark.parametrize(("group", "head_dim"), [(2, 128), (7, 64), (1, 16)])
@pytest.mark.parametrize("multiprocessors", [1, 40], ids=["whole rows", "parts of rows"])
def test_each_row_sees_its_own_tokens(
    dtype: torch.dtype, atol: float, group: int, head_dim: int, multiprocessors: int
) -> None:
    if dtype == torch.bfloat16 and KERNEL_DEVICE == "cpu":
        pytest.skip("Triton's interpreter multiplies no matrices in bfloat16")
    torch.manual_seed(0)
    positions, kv_heads = [0, 15, 63, 64, 300], 2
    rows = rows_of(dtype, len(positions), kv_heads, head_dim, 301)
    q_NHd = torch.randn(len(positions) + 3, kv_heads * group, head_dim, device=KERNEL_DEVICE).to(dtype)
    visible_NL = torch.arange(rows.keys.shape[3]) <= torch.tensor(positions)[:, None]
    expected = F.scaled_dot_product_attention(
        q_NHd[: len(positions)].double().unsqueeze(2),
        rows.keys[LAYER].double().repeat_interleave(group, 1),
        rows.values[LAYER].double().repeat_interleave(group, 1),
        attn_mask=visible_NL[:, None, None].to(KERNEL_DEVICE),
    )
    # What lies behind a row's last token may be anything.
    for buffer in (rows.keys, rows.values):
        buffer.transpose(0, 1)[~visible_NL[:, None, None].expand(-1, LAYERS, kv_heads, -1)] = torch.nan
    attention = DecodeAttention(kv_heads * group, kv_heads, head_dim, multiprocessors, shared_memory_bytes=SHARED_BYTES)
    assert (attention.num_parts(len(q_NHd)) > 1) == (multiprocessors > 1)
    attended = attention(q_NHd, inputs_of(positions, rows, padding=3), LAYER)
    torch.testing.assert_close(attended[: len(positions)].double(), expected.flatten(1), atol=atol, rtol=0)
    assert not attended[len(positions) :].any(), "padding attends to nothing"


@pytest.mark.parametrize(
    ("shared_kib", "head_dim", "itemsize", "tokens"),
    [(227, 128, 2, 64), (227, 64, 2, 128), (163, 128, 2, 64), (99, 128, 2, 32), (64, 128, 2, 32), (99, 256, 4, 16)],
)
def test_tiles_fit_into_the_shared_memory_of_the_device(
    shared_kib: int, head_dim: int, itemsize: int, tokens: int
) -> None:
    assert DecodeAttention(16, 8, head_dim, 132, shared_kib * 1024).block_tokens(itemsize) == tokens


@DTYPES
@pytest.mark.parametrize("has_norms", [True, False])
def test_queries_are_turned_and_keys_and_values_find_their_place(
    dtype: torch.dtype, atol: float, has_norms: bool
) -> None:
    torch.manual_seed(0)
    positions, kv_heads, heads, head_dim = [0, 17, 255], 2, 4, 32
    rows = rows_of(dtype, 3, kv_heads, head_dim, 256)
    projected_NE = torch.randn(5, (heads + 2 * kv_heads) * head_dim, device=KERNEL_DEVICE).to(dtype)
    norms = HeadNorms(*torch.randn(2, head_dim, device=KERNEL_DEVICE).to(dtype)) if has_norms else None
    angles_Lh = torch.randn(256, head_dim // 2, device=KERNEL_DEVICE)
    tables = angles_Lh.cos().to(dtype), angles_Lh.sin().to(dtype)
    keys, values = rows.keys.double(), rows.values.double()
    at = torch.tensor(positions, device=KERNEL_DEVICE)
    expected_q = TorchTokenOps(EPS).placed(
        projected_NE[:3].double(),
        norms and HeadNorms(*(each.double() for each in norms)),
        keys[LAYER],
        values[LAYER],
        Places(torch.arange(3, device=KERNEL_DEVICE), at, *(table[at].double() for table in tables)),
    )
    q_NHd = placed(projected_NE, norms, tables, inputs_of(positions, rows, padding=2), LAYER, kv_heads, EPS)
    torch.testing.assert_close(q_NHd[:3].double(), expected_q, atol=atol, rtol=1e-2)
    torch.testing.assert_close(rows.keys.double(), keys, atol=atol, rtol=1e-2)
    torch.testing.assert_close(rows.values.double(), values, atol=atol, rtol=1e-2)


@DTYPES
def test_norm_and_gate(dtype: torch.dtype, atol: float) -> None:
    torch.manual_seed(0)
    x_ND, weight_D = torch.randn(3, 2, 1500, device=KERNEL_DEVICE).to(dtype)[:, 0], torch.randn(1500).to(dtype)
    x_ND, weight_D = x_ND.contiguous(), weight_D.to(KERNEL_DEVICE)
    exact = TorchTokenOps(EPS)
    expected_ND = exact.normed(x_ND.double(), weight_D.double())
    torch.testing.assert_close(normed(x_ND, weight_D, EPS).double(), expected_ND, atol=atol, rtol=1e-2)
    gate_up_NE = torch.cat([20 * x_ND, x_ND], dim=1)
    torch.testing.assert_close(gated(gate_up_NE).double(), exact.gated(gate_up_NE.double()), atol=atol, rtol=1e-2)


def numbers_of(uniforms: list[float], temperatures: list[float]) -> torch.Tensor:
    return torch.tensor([uniforms, temperatures], dtype=torch.float64, device=KERNEL_DEVICE).t().contiguous()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_draws_are_those_of_pytorch(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    samplings = [Sampling(seed=seed, temperature=(1.0, 0.7, 0.0, 2.0)[seed % 4]) for seed in range(12)]
    logits_NV = (3 * torch.randn(12, 5001)).to(dtype)
    expected = sample(logits_NV, samplings, list(range(12)))
    from quartet.engine.sampling import uniform

    uniforms = uniform([each.seed for each in samplings], list(range(12)))
    drawn_N3 = draw(logits_NV.to(KERNEL_DEVICE), numbers_of(list(uniforms), [each.temperature for each in samplings]))
    tokens, logprobs, entropies = drawn_N3.cpu().unbind(1)
    assert tokens.tolist() == expected.token_ids
    torch.testing.assert_close(logprobs.float(), torch.tensor(expected.logprobs), atol=1e-4, rtol=0)
    torch.testing.assert_close(entropies.float(), torch.tensor(expected.entropies), atol=1e-4, rtol=0)


def test_draws_at_the_edges_of_the_distribution() -> None:
    """The smallest and the largest uniform number never draw a token of probability 0, wherever that lies."""
    logits_NV = torch.full((3, 4100), -200.0, device=KERNEL_DEVICE)
    logits_NV[:, 2050:2052] = 5.0
    drawn_N3 = draw(logits_NV, numbers_of([0.0, 1 - 2**-53, 0.4], [1.0, 1.0, 1.0]))
    assert drawn_N3[:, 0].tolist() == [2050, 2051, 2050]
    torch.testing.assert_close(
        drawn_N3[:, 1:].cpu(), torch.tensor([[-1.0, 1.0]] * 3).double() * 0.6931472, rtol=1e-5, atol=0
    )


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_entropy_shows_logits_that_are_not_finite(bad: float) -> None:
    logits_NV = torch.randn(2, 4100, device=KERNEL_DEVICE)
    logits_NV[1, 3000] = bad
    entropies = draw(logits_NV, numbers_of([0.5, 0.5], [1.0, 0.0]))[:, 2]
    assert entropies.isfinite().tolist() == [True, False]


@pytest.mark.parametrize("architecture", ["qwen3_tied", "qwen3_tied_biased", "qwen2", "llama_biased"])
@torch.inference_mode()
def test_a_pass_is_that_of_pytorch(architecture: str) -> None:
    """Over ragged rows, with padding, and again after the buffers have grown and the layers' weights have changed."""
    model = make_model(architecture).to(KERNEL_DEVICE)
    forward = DenseForward(model, 4, MAX_CONTEXT_TOKENS)
    compute = forward.decode_pass()
    logits_NV = torch.empty(5, forward.vocab_size, device=KERNEL_DEVICE)
    lengths = [1, 70, 9]
    forward.rows.reserve(3, 70)
    forward.extend_eagerly([Span(0, list(range(2, 2 + length))) for length in lengths])
    inputs = DecodeInputs(5, logits_NV.device)
    for step in range(3):
        spans = [Span(length + step, [7 * length + step]) for length in lengths]
        forward.rows.reserve(3 + step, 80)
        inputs.fill(spans, forward.rows)
        compute(inputs, logits_NV)
        keys, values = forward.rows.keys.clone(), forward.rows.values.clone()
        torch.testing.assert_close(logits_NV[:3], forward.extend_eagerly(spans), atol=1e-3, rtol=0)
        torch.testing.assert_close(keys, forward.rows.keys, atol=1e-4, rtol=0)
        torch.testing.assert_close(values, forward.rows.values, atol=1e-4, rtol=0)
        for parameter in model.parameters():
            parameter.mul_(0.9)
        forward.weights_changed()


@torch.inference_mode()
def test_the_probe_changes_no_row() -> None:
    forward = DenseForward(make_model().to(KERNEL_DEVICE), 4, MAX_CONTEXT_TOKENS)
    compute = forward.decode_pass()
    compute.probe(forward.rows, 3)  # before the first request
    forward.rows.reserve(1, 3)
    forward.extend_eagerly([Span(0, [1, 2, 3])])
    keys, values = forward.rows.keys.clone(), forward.rows.values.clone()
    compute.probe(forward.rows, 3)
    assert torch.equal(forward.rows.keys, keys) and torch.equal(forward.rows.values, values)


@pytest.mark.parametrize("error", [OutOfResources(232448, 101376, "shared memory"), OSError("no ptxas")])
def test_kernels_that_do_not_run_are_reported(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    def run() -> None:
        raise error

    assert not can_run(run)
    assert f"decodes without CUDA graphs, several times slower: triton cannot run a kernel ({type(error).__name__}" in (
        caplog.text
    )
    assert can_run(lambda: None)
