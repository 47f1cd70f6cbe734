"""Division of branches into rows, and of rows into microbatches of at most `max_tokens_per_microbatch` tokens.

A row holds branches with the same first prompt, such as the rollouts of a group, and those of other groups whose
prompts begin alike, for example with the same instructions. The tokens of a shared prefix count once. A shared prefix
is the beginning of the prompt and, if a rollout was forked from another rollout, also the turns that both have in
common. Two prefixes are equal only if the pictures for their placeholders are equal.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from quartet.train.packing.branches import Branch
from quartet.train.packing.prefix_tree import PrefixTree, Shared
from quartet.train.ranks.base import Ranks

ATTENTION_FACTOR = 4
"""Bound on the positions in attention, as a multiple of `max_tokens_per_microbatch`, where no kernel attends to the
packed row. Attention then splits the row into branches, padded to the longest branch. Padding counts, and a shared
prompt counts once per branch. With this factor, attention stores about as much memory for the backward pass as all
other layers together."""
LONGEST_TO_SHORTEST = 2
"""Maximum ratio of the longest branch to the shortest in a microbatch whose positions in attention exceed
`max_tokens_per_microbatch`. At least half of each padded branch then consists of tokens."""


MIN_COMMON_TOKENS = 64
"""Minimum number of equal tokens at the start of the prompts of different groups in a row."""


class Row(NamedTuple):
    """Branches whose prompts begin alike, longest first, with one weight and one shared prefix per branch."""

    branches: list[Branch]
    weights: list[float]
    shared: list[Shared]

    @property
    def num_tokens(self) -> int:
        """Number of tokens; a shared prefix counts once."""
        return sum(
            branch.num_tokens - shared.num_tokens for branch, shared in zip(self.branches, self.shared, strict=True)
        )

    @property
    def longest_branch(self) -> int:
        return self.branches[0].num_tokens

    @property
    def shortest_branch(self) -> int:
        return self.branches[-1].num_tokens


class _OpenRow:
    """Row that takes further branches, none longer than the branches that it has."""

    def __init__(self) -> None:
        self.row = Row([], [], [])
        self._tree = PrefixTree()
        self._num_tokens = 0

    def take(self, branch: Branch, weight: float, max_tokens: int, *, gathers: bool) -> bool:
        """Add the branch if the row has room for it; return whether it has."""
        place = self._tree.find(branch.content)
        num_tokens = self._num_tokens + branch.num_tokens - place.depth
        if self.row.branches:
            num_branches, longest = len(self.row.branches) + 1, self.row.longest_branch
            if num_tokens > max_tokens:
                return False
            if gathers and not _attention_fits(num_branches, longest, branch.num_tokens, max_tokens):
                return False
        self.row.branches.append(branch)
        self.row.weights.append(weight)
        self.row.shared.append(place.shared)
        self._tree.add(branch.content, place)
        self._num_tokens = num_tokens
        return True


def share_prompts(
    branches: Sequence[Branch],
    weights: Sequence[float],
    *,
    share: bool,
    max_tokens_per_microbatch: int,
    gathers: bool = True,
) -> list[Row]:
    """Join branches with the same first prompt, then groups whose prompts begin alike, into rows that fit a microbatch.
    Without `share`, make one row of each branch.

    Branches are sorted by length, longest first and ties in the given order, so that there is little padding and the
    same branches always give the same rows. With `gathers`, attention gathers the tokens of each branch, and the bound
    on its positions holds (`ATTENTION_FACTOR`).
    """
    rows: list[Row] = []
    open_rows: dict[bytes, _OpenRow] = {}
    for branch, weight in sorted(zip(branches, weights, strict=True), key=lambda pair: -pair[0].num_tokens):
        prompt = branch.content[: branch.prompt_tokens].tobytes()
        row = open_rows.get(prompt) if share else None
        if row is None or not row.take(branch, weight, max_tokens_per_microbatch, gathers=gathers):
            row = open_rows[prompt] = _OpenRow()
            row.take(branch, weight, max_tokens_per_microbatch, gathers=gathers)
            rows.append(row.row)
    return _joined(rows, max_tokens_per_microbatch, gathers=gathers) if share else rows


def _joined(rows: Sequence[Row], max_tokens: int, *, gathers: bool) -> list[Row]:
    """Join rows whose prompts begin alike, as long as the joined row fits a microbatch. No row is split, so each prompt
    is still computed as often as before, or less often."""
    joined: list[Row] = []
    places: dict[bytes, int] = {}
    for row in rows:
        first = row.branches[0]
        beginning = first.content[: min(first.prompt_tokens, MIN_COMMON_TOKENS)]
        place = places.get(beginning.tobytes()) if len(beginning) == MIN_COMMON_TOKENS else None
        both = _one_row([joined[place], row], max_tokens, gathers=gathers) if place is not None else None
        if place is None or both is None:
            places[beginning.tobytes()] = len(joined)
            joined.append(row)
        else:
            joined[place] = both
    return joined


def _one_row(rows: Sequence[Row], max_tokens: int, *, gathers: bool) -> Row | None:
    """Return the branches of all rows in one row; None if it has no room for them."""
    pairs = [pair for row in rows for pair in zip(row.branches, row.weights, strict=True)]
    opened = _OpenRow()
    for branch, weight in sorted(pairs, key=lambda pair: -pair[0].num_tokens):
        if not opened.take(branch, weight, max_tokens, gathers=gathers):
            return None
    return opened.row


def _attention_fits(num_branches: int, longest: int, shortest: int, max_tokens: int) -> bool:
    factor = ATTENTION_FACTOR if longest <= LONGEST_TO_SHORTEST * shortest else 1
    return num_branches * longest <= factor * max_tokens


def in_chunks(
    rows: Iterable[Row], max_tokens_per_microbatch: int, *, packed: bool, gathers: bool = True
) -> Iterator[list[Row]]:
    """Yield the rows of each microbatch, in the order of `share_prompts`: by the length of their longest branch.

    A row with more than `max_tokens_per_microbatch` tokens is a microbatch by itself. Only a branch that was sampled
    with other settings can be that long: a replayed branch, or a branch from before a resume with a smaller context.
    """
    pending: list[Row] = []
    for row in rows:
        if pending and not _fits(row, pending, max_tokens_per_microbatch, packed=packed, gathers=gathers):
            yield pending
            pending = []
        pending.append(row)
    if pending:
        yield pending


def own_chunks(
    rows: Sequence[Row], ranks: Ranks, max_tokens_per_microbatch: int, *, packed: bool, gathers: bool = True
) -> list[list[Row]]:
    """Return the rows of each microbatch of this rank, of the rows of a minibatch.

    Each row goes to the rank with the fewest tokens so far. Every rank has equally many microbatches, since the ranks
    exchange weights and gradients in every pass; a rank with too few of its own gets some without a trained token.
    """
    shares: list[list[Row]] = [[] for _ in range(ranks.size)]
    tokens = [0] * ranks.size
    for row in rows:
        least = tokens.index(min(tokens))
        shares[least].append(row)
        tokens[least] += row.num_tokens
    chunks = [list(in_chunks(share, max_tokens_per_microbatch, packed=packed, gathers=gathers)) for share in shares]
    own, most = chunks[ranks.rank], max(map(len, chunks))
    return own + [[_untrained(rows[-1])] for _ in range(most - len(own))]


def _untrained(row: Row) -> Row:
    """Return a row of one token that is not trained."""
    branch = row.branches[-1]
    token = replace(branch, ids_L=branch.ids_L[:1], trained_L=np.zeros(1, dtype=bool), media=())
    return Row([token], [0.0], [Shared(0, 0)])


def _fits(row: Row, pending: list[Row], max_tokens: int, *, packed: bool, gathers: bool) -> bool:
    """Return whether a row fits into a microbatch that holds the rows `pending`, the first with the longest branch."""
    longest = pending[0].longest_branch
    if not packed:
        return (len(pending) + 1) * longest <= max_tokens
    together = [*pending, row]
    if sum(other.num_tokens for other in together) > max_tokens:
        return False
    num_branches = sum(len(other.branches) for other in together)
    shortest = min(other.shortest_branch for other in together)
    return not gathers or _attention_fits(num_branches, longest, shortest, max_tokens)
