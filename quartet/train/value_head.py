"""Value head: it estimates the return, computed from the hidden state that predicts a token."""

import torch


class ValueHead(torch.nn.Module):
    """Linear function of the hidden state, 0 at first.

    No gradient flows from the head into the policy: the policy learns from advantages alone, and the errors of an
    untrained head do not change its hidden states (VL-DAC, arXiv 2508.04280).
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.weight_D = torch.nn.Parameter(torch.zeros(hidden_size))
        self.bias = torch.nn.Parameter(torch.zeros(()))

    def reset(self) -> None:
        """Return to the estimate 0."""
        with torch.no_grad():
            self.weight_D.zero_()
            self.bias.zero_()

    def forward(self, hidden_TD: torch.Tensor) -> torch.Tensor:
        return hidden_TD.detach().float() @ self.weight_D + self.bias
