"""The compiled kernel attends like PyTorch does, to each row's own tokens and to nothing else."""

import os
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from quartet.engine.kernel_library import kernel_library
from quartet.engine.row_kernel import RowKernel
from quartet.native.library import native_library


def kernel_of(dtype: torch.dtype, kv_heads: int, group: int, head_dim: int) -> RowKernel:
    library = kernel_library(torch.zeros(1, 1, kv_heads, 8, head_dim, dtype=dtype), kv_heads * group)
    assert library is not None, "the tests need a C++ compiler"
    return RowKernel(library)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float32, 1e-4), (torch.bfloat16, 2e-2)], ids=["float32", "bfloat16"]
)
@pytest.mark.parametrize(("group", "head_dim"), [(1, 64), (2, 32), (7, 128)])
@settings(deadline=None, max_examples=10)
@given(
    positions=st.lists(st.integers(0, 1099), min_size=1, max_size=5),
    kv_heads=st.integers(1, 3),
    scale=st.sampled_from([0.1, 1.0, 30.0]),
)
def test_each_row_sees_its_own_tokens(
    dtype: torch.dtype, atol: float, group: int, head_dim: int, positions: list[int], kv_heads: int, scale: float
) -> None:
    torch.manual_seed(0)
    rows, capacity, heads = len(positions), max(positions) + 1, kv_heads * group
    keys, values = torch.randn(2, rows, kv_heads, capacity, head_dim).to(dtype)
    q_NHd = (scale * torch.randn(rows, heads + 2, head_dim)).to(dtype)[:, :heads]  # keys follow the queries
    positions_N = torch.tensor(positions)
    visible_NL = torch.arange(capacity) <= positions_N[:, None]
    expected = F.scaled_dot_product_attention(
        q_NHd.double().unsqueeze(2),
        keys.double().repeat_interleave(group, 1),
        values.double().repeat_interleave(group, 1),
        attn_mask=visible_NL[:, None, None],
    )
    # What lies behind a row's last token may be anything.
    keys[~visible_NL[:, None].expand(-1, kv_heads, -1)] = torch.nan
    values[~visible_NL[:, None].expand(-1, kv_heads, -1)] = torch.nan
    attended = kernel_of(dtype, kv_heads, group, head_dim).singles(q_NHd, keys, values, positions_N)
    torch.testing.assert_close(attended.double(), expected.flatten(1), atol=atol, rtol=0)


@pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float32, 1e-4), (torch.bfloat16, 2e-2)], ids=["float32", "bfloat16"]
)
@pytest.mark.parametrize(("group", "head_dim"), [(1, 64), (2, 32), (7, 128)])
@settings(max_examples=10)
@given(
    rows=st.integers(1, 3),
    start=st.integers(0, 300),
    fresh=st.integers(2, 150),
    kv_heads=st.integers(1, 2),
    scale=st.sampled_from([0.1, 1.0, 30.0]),
)
def test_each_new_token_of_a_chunk_sees_those_before_it(
    dtype: torch.dtype,
    atol: float,
    group: int,
    head_dim: int,
    rows: int,
    start: int,
    fresh: int,
    kv_heads: int,
    scale: float,
) -> None:
    torch.manual_seed(0)
    length, heads = start + fresh, kv_heads * group
    keys, values = torch.randn(2, rows, kv_heads, length + 5, head_dim).to(dtype)
    q_THd = (scale * torch.randn(rows * fresh, heads + 2, head_dim)).to(dtype)[:, :heads]
    expected = F.scaled_dot_product_attention(
        q_THd.double().view(rows, fresh, heads, head_dim).transpose(1, 2),
        keys[:, :, :length].double().repeat_interleave(group, 1),
        values[:, :, :length].double().repeat_interleave(group, 1),
        attn_mask=torch.arange(length) <= torch.arange(start, length)[:, None],
    )
    keys[:, :, length:] = values[:, :, length:] = torch.nan
    attended = kernel_of(dtype, kv_heads, group, head_dim).chunks(q_THd, keys, values, start)
    torch.testing.assert_close(attended.double(), expected.transpose(1, 2).reshape(rows * fresh, -1), atol=atol, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_values_that_are_not_finite_stay_in_their_row(dtype: torch.dtype, bad: float) -> None:
    keys, values = torch.randn(2, 2, 1, 40, 64).to(dtype)
    keys[1, 0, 17, 5] = bad
    attended = kernel_of(dtype, 1, 2, 64).singles(
        torch.ones(2, 2, 64, dtype=dtype), keys, values, torch.tensor([39, 39])
    )
    assert attended[0].isfinite().all() and attended[1].isnan().all()


def test_two_threads_compute_what_one_does() -> None:
    keys, values = torch.randn(2, 9, 2, 300, 64)
    arguments = torch.randn(9, 4, 64), keys, values, torch.arange(9) * 37
    kernel = kernel_of(torch.float32, 2, 2, 64)
    alone = kernel.singles(*arguments)
    chunks = torch.randn(9 * 50, 4, 64), keys, values, 200
    chunks_alone = kernel.chunks(*chunks)
    torch.set_num_threads(2)
    assert torch.equal(kernel.singles(*arguments), alone)
    assert torch.equal(kernel.chunks(*chunks), chunks_alone)
    torch.set_num_threads(1)


def test_without_a_compiler_there_is_a_warning_and_no_kernel(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", "")
    native_library.cache_clear()
    assert kernel_library(torch.zeros(1, 1, 2, 8, 64), 4) is None
    assert "need g++" in caplog.text
    native_library.cache_clear()


def test_where_nothing_may_be_written_there_is_a_warning_and_no_kernel(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    native_library.cache_clear()
    assert kernel_library(torch.zeros(1, 1, 2, 8, 64), 4) is None
    assert "XDG_CACHE_HOME" in caplog.text and str(tmp_path / "file") in caplog.text
    native_library.cache_clear()


@pytest.mark.slow
def test_kernels_are_compiled_once_for_all_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found: list[list[tuple[Path, int]]] = []
    for _ in range(2):
        native_library.cache_clear()
        assert kernel_library(torch.zeros(1, 1, 2, 8, 64), 4) is not None
        found.append([(file, file.stat().st_ino) for file in (tmp_path / "quartet").iterdir()])
    native_library.cache_clear()
    assert len(found[0]) == 1 and found[0] == found[1]


def test_heads_of_another_shape_have_no_kernel() -> None:
    assert kernel_library(torch.zeros(1, 1, 2, 8, 24), 4) is None
    assert kernel_library(torch.zeros(1, 1, 2, 8, 64, dtype=torch.float16), 4) is None


@pytest.mark.slow
def test_a_damaged_library_is_compiled_again_and_unused_ones_are_deleted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "sound"))
    native_library.cache_clear()
    assert kernel_library(torch.zeros(1, 1, 2, 8, 64), 4) is not None
    (sound,) = (tmp_path / "sound" / "quartet").iterdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "damaged"))
    (tmp_path / "damaged" / "quartet").mkdir(parents=True)
    library = tmp_path / "damaged" / "quartet" / sound.name
    library.touch()
    recent, unused = (library.with_name(f"kernels-{name}.so") for name in ("recent", "unused"))
    recent.touch()
    unused.touch()
    os.utime(unused, (0, 0))
    native_library.cache_clear()
    assert kernel_library(torch.zeros(1, 1, 2, 8, 64), 4) is not None
    native_library.cache_clear()
    assert library.stat().st_size == sound.stat().st_size
    assert recent.exists() and not unused.exists()
