"""Linear layers that compute outputs and gradients with the faster library of `quartet.policy.linear`."""

from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from quartet.policy.linear import by_one_dnn, linear


class TrainedLinear(torch.nn.Linear):
    """Linear layer that uses oneDNN where that is faster, and otherwise the kernel of `torch.nn.Linear`."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if by_one_dnn(input, self.weight):
            return product(input, self.weight, self.bias)
        return F.linear(input, self.weight, self.bias)


def train_by_the_faster_library(model: torch.nn.Module) -> None:
    """Turn every plain linear layer of a model on a CPU into a `TrainedLinear`. Parameters, their names and tied
    weights do not change."""
    if not on_cpu(model):
        return
    for module in model.modules():
        if type(module) is torch.nn.Linear:
            module.__class__ = TrainedLinear


def on_cpu(model: torch.nn.Module) -> bool:
    """Return whether all parameters of the model are on a CPU."""
    return all(parameter.device.type == "cpu" for parameter in model.parameters())


def product(x: torch.Tensor, weight_ED: torch.Tensor, bias_E: torch.Tensor | None) -> torch.Tensor:
    """Return x W^T + b `[..., E]`.

    Reshaping is done here, since views made inside an autograd function must not be changed in place.
    """
    found = Product.apply(x.reshape(-1, x.shape[-1]), weight_ED, bias_E)
    return found if x.ndim == 2 else found.view(*x.shape[:-1], len(weight_ED))


class Product(torch.autograd.Function):
    """Autograd function x W^T + b `[T, E]` whose gradients are computed by `linear`."""

    @staticmethod
    def forward(ctx: Any, x_TD: torch.Tensor, weight_ED: torch.Tensor, bias_E: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(x_TD, weight_ED)
        return linear(x_TD, weight_ED, bias_E)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        x_TD, weight_ED = ctx.saved_tensors
        wanted_x, wanted_weight, wanted_bias = ctx.needs_input_grad
        # oneDNN computes the product a thousand times slower if the right factor is not contiguous.
        gradient_TE, x_TD = gradient.contiguous(), x_TD.contiguous()
        return (
            linear(gradient_TE, weight_ED.t()) if wanted_x else None,
            _weight_gradient(gradient_TE, x_TD) if wanted_weight else None,
            gradient_TE.sum(0) if wanted_bias else None,
        )


def _weight_gradient(gradient_TE: torch.Tensor, x_TD: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the weight `[E, D]`.

    oneDNN copies the left of two transposed factors, so the narrower one is put on the left.
    """
    if gradient_TE.shape[1] < x_TD.shape[1]:
        return linear(gradient_TE.t(), x_TD.t())
    return linear(x_TD.t(), gradient_TE.t()).t()
