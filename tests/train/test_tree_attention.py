"""Attention along the tree of branches is that of the branches apart: each token attends to its own branch so far."""

from itertools import takewhile

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_batches import make_batch, make_call, make_model, make_trajectory, pack

from quartet.errors import ConfigError
from quartet.native.library import native_library
from quartet.train.forward import score
from quartet.train.kernel.tree_attention import attend_tree, tree_kernel
from quartet.train.packing.attention import attend, gathers_branches
from quartet.train.packing.microbatch import collate
from quartet.train.packing.prefix_tree import PrefixTree, Shared
from quartet.train.packing.rows import share_prompts
from quartet.train.packing.tree import Tree


@st.composite
def trees(draw: st.DrawFn) -> tuple[Tree, list[np.ndarray]]:
    """Return a tree and the columns of its branches.

    A branch leaves any earlier branch after any of its tokens, and has a tail of 0 to 90 tokens.
    """
    columns, shared, end = [], [], 0
    for number in range(draw(st.integers(1, 6))):
        parent = columns[draw(st.integers(0, number - 1))] if number and draw(st.booleans()) else np.arange(0)
        kept = draw(st.integers(0, len(parent)))
        tail = draw(st.integers(0 if kept else 1, 90))
        columns.append(np.concatenate([parent[:kept], np.arange(end, end + tail)]))
        shared.append(kept)
        end += tail
    return Tree(columns, shared, end), columns


def ancestors(columns: list[np.ndarray]) -> torch.Tensor:
    """Return `[L, L]`: whether each column (row) attends to each column."""
    length = 1 + max(int(own.max()) for own in columns)
    seen = torch.zeros(length, length, dtype=torch.bool)
    for own in columns:
        seen[own[:, None], own] |= torch.ones(len(own), len(own), dtype=torch.bool).tril()
    return seen


@pytest.mark.slow
@pytest.mark.parametrize(("group", "head_dim"), [(1, 16), (2, 48), (3, 64), (1, 128)])
@settings(max_examples=12)
@given(drawn=trees(), kv_heads=st.integers(1, 2), scale=st.sampled_from([0.1, 1.0, 30.0]))
def test_outputs_and_gradients_are_those_of_a_dense_mask(
    group: int, head_dim: int, drawn: tuple[Tree, list[np.ndarray]], kv_heads: int, scale: float
) -> None:
    torch.manual_seed(0)
    tree, columns = drawn
    library = tree_kernel(head_dim, torch.float32, torch.device("cpu"))
    assert library is not None, "the tests need a C++ compiler"
    shapes = [(tree.num_columns, heads, head_dim) for heads in (group * kv_heads, kv_heads, kv_heads)]
    parts = [torch.randn(shape, requires_grad=True) for shape in shapes]
    heads = [part.transpose(0, 1) * factor for part, factor in zip(parts, (scale, 1, 1), strict=True)]
    found = attend_tree(library, *heads, tree, head_dim**-0.5)
    expected = F.scaled_dot_product_attention(
        *(each.double() for each in heads), attn_mask=ancestors(columns), enable_gqa=True
    ).transpose(0, 1)
    torch.testing.assert_close(found.double(), expected, atol=2e-5 * max(1.0, scale), rtol=0)
    slope = torch.randn_like(found)
    gradients = torch.autograd.grad(found, parts, slope, retain_graph=True)
    exact = torch.autograd.grad(expected, parts, slope.double())
    for own, wanted in zip(gradients, exact, strict=True):
        torch.testing.assert_close(own, wanted, atol=5e-5 * max(1.0, scale), rtol=1e-4)


@pytest.mark.parametrize(("argument", "value"), [("softcap", 30.0), ("s_aux", torch.zeros(2)), ("sliding_window", 4)])
def test_attention_of_another_kind_is_refused(argument: str, value: object) -> None:
    heads = torch.zeros(1, 2, 4, 16)
    with pytest.raises(ConfigError, match=f"Identity passes {argument}, "):
        attend(torch.nn.Identity(), heads, heads, heads, None, tree=Tree([np.arange(4)], [0], 4), **{argument: value})


def test_values_of_another_size_than_keys_are_attended_to() -> None:
    torch.manual_seed(0)
    columns = [np.arange(9), np.concatenate([np.arange(5), np.arange(9, 12)])]
    query, key, value = (torch.randn(1, 2, 12, size) for size in (16, 16, 32))
    found, _ = attend(torch.nn.Identity(), query, key, value, None, tree=Tree(columns, [0, 5], 12))
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=ancestors(columns))
    torch.testing.assert_close(found, expected.transpose(1, 2), atol=1e-5, rtol=0)


def test_threads_do_not_change_a_bit() -> None:
    library = tree_kernel(32, torch.float32, torch.device("cpu"))
    assert library is not None
    columns = [np.arange(100), np.concatenate([np.arange(60), np.arange(100, 170)])]
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        parts = [torch.randn(heads, 170, 32, requires_grad=True) for heads in (4, 2, 2)]
        out = attend_tree(library, *parts, Tree(columns, [0, 60], 170), 0.2)
        found.append([out, *torch.autograd.grad(out.square().sum(), parts)])
    torch.set_num_threads(1)
    assert all(map(torch.equal, *found))


def test_without_a_compiler_branches_are_gathered_and_the_gradient_stays(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    prompt = list(range(20))
    members = [make_trajectory([make_call(prompt, [arm, 7, 1])], float(arm == 0)) for arm in range(4)]
    branches = pack(make_batch([members])).branches
    (row,) = share_prompts(branches, [1.0] * 4, share=True, max_tokens_per_microbatch=100)
    microbatch, gradients = collate([row], packed=True), []
    for path in (None, ""):
        if path is not None:
            monkeypatch.setenv("PATH", path)
        native_library.cache_clear()
        model = make_model()
        assert gathers_branches(model) == (path == "")
        score(model, microbatch).logprobs_T.sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    native_library.cache_clear()
    assert "a train step takes up to twice as long" in caplog.text
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-4)


@settings(max_examples=50)
@given(st.lists(st.lists(st.integers(0, 2), max_size=8), min_size=1, max_size=12))
def test_longest_shared_prefix_is_that_of_a_plain_search(sequences: list[list[int]]) -> None:
    tree = PrefixTree()
    for number, content in enumerate(sequences):
        wanted = Shared(0, 0)
        for other in range(number):
            pairs = zip(sequences[other], content, strict=False)
            length = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
            wanted = Shared(other, length) if length > wanted.num_tokens else wanted
        numbers = np.array(content, dtype=np.int64)
        place = tree.find(numbers)
        assert place.shared == wanted
        tree.add(numbers, place)
