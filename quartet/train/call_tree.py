"""Tree of the calls of forked members: a node is a call with its response, a leaf is a member.

A call that a child shares with its parent is the parent's node. A child whose parent is not in the batch shares no
nodes.
"""

import numpy as np

from quartet.train.credit_batch import CreditBatch


class CallTree:
    """Nodes of a batch; a node's number is the index, among the C calls, of the call that sampled the response."""

    def __init__(self, batch: CreditBatch) -> None:
        self.nodes_C = _nodes(batch)
        """Node of each call: the call itself, or the parent's call if it is shared with the parent."""
        self.own_C = self.nodes_C == np.arange(len(self.nodes_C))
        """True at calls that are nodes, False at shared ones."""
        self.leaves_C = np.bincount(self.nodes_C, minlength=len(self.nodes_C))[self.nodes_C]
        """Number of members that pass through the call's node, at least 1."""
        self._members_C = batch.members_C

    def leaf_means(self, values_N: np.ndarray) -> np.ndarray:
        """Return `[C]`: the mean of the values of the members that pass through the call's node."""
        sums_C = np.bincount(self.nodes_C, values_N[self._members_C], minlength=len(self.nodes_C))
        return sums_C[self.nodes_C] / self.leaves_C

    def leave_out(self, batch: CreditBatch, left_out_N: np.ndarray) -> None:
        """Mask the tokens of these members `[N]`. Calls that they share with other members are still trained, because
        shared calls are trained in the parent only."""
        batch.mask_T &= (self.leaf_means(left_out_N.astype(float)) < 1)[batch.calls_T]

    def likely_means(self, batch: CreditBatch) -> np.ndarray:
        """Return `[C]`: the member's reward at its last call, otherwise the mean of the values of the next nodes, each
        weighed by the recorded probability of its response, normalised over these nodes. The next nodes have equal
        weights if one of these probabilities is unknown, as of replays, guided calls and calls that are not trained."""
        logprobs_C = _logprobs(batch)
        last_C = batch.places_C == batch.num_calls_N[batch.members_C] - 1
        values_C = np.where(last_C, batch.rewards_N[batch.members_C], 0.0)
        following = np.flatnonzero(~last_C) + 1  # the calls of a member are contiguous
        edges = np.unique(np.stack([self.nodes_C[following - 1], self.nodes_C[following]]), axis=1)
        for place in range(int(batch.places_C.max(initial=0)) - 1, -1, -1):
            parents, children = edges[:, batch.places_C[edges[0]] == place]
            for parent in np.unique(parents):
                next_nodes = children[parents == parent]
                chances = logprobs_C[next_nodes]
                known = np.isfinite(chances).all()
                weights = np.exp(chances - chances.max()) if known else np.ones(len(next_nodes))
                values_C[parent] = weights @ values_C[next_nodes] / weights.sum()
        return values_C[self.nodes_C]


def _logprobs(batch: CreditBatch) -> np.ndarray:
    """Return `[C]`: the log-prob of each call's response, NaN if it is unknown or no token of it is trained."""
    count = len(batch.calls)
    sums_C = np.bincount(batch.calls_T, np.where(np.isfinite(batch.logprobs_T), batch.logprobs_T, np.nan), count)
    return np.where(np.bincount(batch.calls_T, minlength=count) > 0, sums_C, np.nan)


def _nodes(batch: CreditBatch) -> np.ndarray:
    nodes_C, parents_N = np.arange(len(batch.calls)), batch.parents_N
    first_calls_N = batch.num_calls_N.cumsum() - batch.num_calls_N

    def depth(member: int) -> int:
        return 0 if parents_N[member] < 0 else 1 + depth(parents_N[member])

    for child in sorted(np.flatnonzero(parents_N >= 0).tolist(), key=depth):
        parent, shared = parents_N[child], batch.fork_calls_N[child] + 1
        start, origin = first_calls_N[child], first_calls_N[parent]
        nodes_C[start : start + shared] = nodes_C[origin : origin + shared]
    return nodes_C
