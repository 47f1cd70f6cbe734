"""Prefix cache: keys and values of token prefixes that were computed before.

The turns of a conversation and the prompts of a group share such prefixes. The cache is a radix tree over token ids,
not over text: an edge holds tokens and their keys and values (`Segment`), and sequences share the edges of their common
prefix. The cache belongs to one policy version, and new weights empty it. Least recently used edges are evicted first.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count

from quartet.engine.rows import Rows, Segment

MIN_TOKENS = 16
"""Minimum length of a cached prefix; storing a shorter one takes longer than computing it."""
KEPT_SHARE = 0.9
"""Share of the memory limit that an eviction leaves in use. It is below 1, so that evictions are rare."""


@dataclass(slots=True, eq=False)
class Node:
    """One edge of the tree, and its child edges. The root has no tokens."""

    token_ids: list[int]
    segment: Segment | None
    parent: "Node | None"
    used: int = 0
    children: "dict[int, Node]" = field(default_factory=dict)
    """Child edges by their first token."""


class PrefixCache:
    """Prefix cache of the engine's `Rows`: copies prefixes out of rows and into rows."""

    def __init__(self, rows: Rows, max_bytes: int) -> None:
        self._rows, self.max_bytes = rows, max_bytes
        self._clock = count(1)
        self.clear()

    def clear(self) -> None:
        """Empty the cache after a change of weights."""
        self._root = Node([], None, None)
        self.num_bytes = 0

    def num_known(self, token_ids: list[int]) -> int:
        """Return the length of the longest cached prefix of `token_ids`, or 0 if it is shorter than `MIN_TOKENS`."""
        length = sum(shared for _, shared in self._path(token_ids))
        return length if length >= MIN_TOKENS else 0

    def copy_into(self, row: int, token_ids: list[int]) -> int:
        """Fill the row with the longest cached prefix of `token_ids`. Return its length, which may be 0."""
        path = self._path(token_ids)
        length = sum(shared for _, shared in path)
        if length < MIN_TOKENS:
            return 0
        used, start = next(self._clock), 0
        for node, shared in path:
            assert node.segment is not None
            node.used = used
            part = Segment(node.segment.keys[:, :, :shared], node.segment.values[:, :, :shared])
            self._rows.write(row, start, part)
            start += shared
        return length

    def keep(self, row: int, token_ids: list[int]) -> None:
        """Cache a row, which holds `token_ids`; tokens that are already cached are not copied again."""
        if len(token_ids) < MIN_TOKENS or not self.max_bytes:
            return
        path = self._path(token_ids)
        known, node = sum(shared for _, shared in path), self._root
        if path:
            node, shared = path[-1]
            if shared < len(node.token_ids):
                node = self._split(node, shared)
        if known < len(token_ids):
            segment = self._rows.read(row, known, len(token_ids))
            end = Node(token_ids[known:], segment, node)
            node.children[token_ids[known]] = end
            self.num_bytes += segment.num_bytes
            node = end
        used = next(self._clock)
        while node.parent is not None:
            node.used, node = used, node.parent
        if self.num_bytes > self.max_bytes:
            self._evict()

    def _path(self, token_ids: list[int]) -> list[tuple[Node, int]]:
        """Return the edges along `token_ids`, each with the number of its tokens that are shared.

        Only the last edge may be shared in part.
        """
        node, start, path = self._root, 0, []
        while start < len(token_ids) and (child := node.children.get(token_ids[start])):
            shared = num_shared(child.token_ids, token_ids, start)
            path.append((child, shared))
            if shared < len(child.token_ids):
                break
            node, start = child, start + shared
        return path

    def _split(self, node: Node, length: int) -> Node:
        """Split an edge after `length` tokens. Return its first part."""
        assert node.parent is not None and node.segment is not None
        upper = Node(node.token_ids[:length], node.segment.part(0, length), node.parent, node.used)
        node.parent.children[upper.token_ids[0]] = upper
        node.segment = node.segment.part(length, len(node.token_ids))
        node.token_ids, node.parent = node.token_ids[length:], upper
        upper.children[node.token_ids[0]] = node
        return upper

    def _evict(self) -> None:
        """Evict leaves, least recently used first. An edge was used at least as recently as its children."""
        ends = [(node.used, id(node), node) for node in self._nodes(self._root) if not node.children]
        heapify(ends)
        while self.num_bytes > KEPT_SHARE * self.max_bytes:
            _, _, end = heappop(ends)
            parent = end.parent
            assert parent is not None and end.segment is not None
            del parent.children[end.token_ids[0]]
            self.num_bytes -= end.segment.num_bytes
            if parent is not self._root and not parent.children:
                heappush(ends, (parent.used, id(parent), parent))

    def _nodes(self, node: Node) -> Iterator[Node]:
        pending = list(node.children.values())
        while pending:
            node = pending.pop()
            yield node
            pending += node.children.values()


def num_shared(edge: list[int], token_ids: list[int], start: int) -> int:
    """Return the length of the common prefix of `edge` and `token_ids[start:]`."""
    other = token_ids[start : start + len(edge)]
    if other == edge:
        return len(edge)
    return next((i for i, (a, b) in enumerate(zip(edge, other, strict=False)) if a != b), len(other))
