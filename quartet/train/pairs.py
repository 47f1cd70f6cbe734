"""Pairs of a better and a worse trajectory with the same group and role."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

    from quartet.train.loss.base import LossInput

TIE = 1e-6
"""Largest difference of two advantages that count as equal, because a mean over tokens has rounding errors."""


class Pairs(NamedTuple):
    """P pairs of the N trajectories of a minibatch, and the trajectory of each token."""

    better_P: "torch.Tensor"
    """Index among the N of the trajectory with the higher mean advantage."""
    worse_P: "torch.Tensor"
    members_T: "torch.Tensor"
    """Index among the N of the token's trajectory."""
    used_T: "torch.Tensor"
    """1.0 at tokens with a weight, else 0; trajectories without such a token are in no pair."""
    zeros_N: "torch.Tensor"

    def sums(self, values_T: "torch.Tensor") -> "torch.Tensor":
        """Return `[N]`: the sum of the values over each trajectory's tokens with a weight."""
        return self.zeros_N.index_add(0, self.members_T, self.used_T * values_T)


def pairs_in_groups(tokens: "LossInput") -> Pairs:
    """Return all pairs of trajectories of the same group and role with different advantages."""
    assert tokens.trajectories_T is not None, "the trainer gives every token its trajectory"
    assert tokens.groups_T is not None and tokens.roles_T is not None, "the trainer gives both"
    used_T = (tokens.weights_T != 0).to(tokens.logprobs_T.dtype)
    trajectories, members_T = tokens.trajectories_T.unique(return_inverse=True)
    none_P, zeros_N = members_T.new_zeros(0), used_T.new_zeros(len(trajectories))
    pairs = Pairs(none_P, none_P, members_T, used_T, zeros_N)
    lengths_N = pairs.sums(used_T)
    advantages_N = pairs.sums(tokens.advantages_T) / lengths_N.clamp(min=1)
    is_better_NN = advantages_N[:, None] > advantages_N + TIE
    for key_T in (tokens.groups_T, tokens.roles_T):
        keys_N = key_T.new_zeros(len(trajectories)).scatter(0, members_T, key_T)
        is_better_NN &= keys_N[:, None] == keys_N
    is_better_NN &= (lengths_N[:, None] > 0) & (lengths_N > 0)
    better_P, worse_P = is_better_NN.nonzero().unbind(1)
    return pairs._replace(better_P=better_P, worse_P=worse_P)
