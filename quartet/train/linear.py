"""Linear layers that compute outputs and gradients with the faster library of `quartet.policy.linear`."""

from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from quartet.policy.linear import by_one_dnn, linear


class TrainedLinear(torch.nn.Linear):
    """Linear layer that uses oneDNN where that is faster, and otherwise the kernel of `torch.nn.Linear`."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return product_or_linear(input, self.weight, self.bias)


class TrainedPatches(torch.nn.Conv3d):
    """Convolution that computes patches of its own size as one product; the gradient of a convolution takes several
    times as long on a CPU."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if input.shape[2:] != torch.Size(self.kernel_size):
            return super().forward(input)
        found_NE = product_or_linear(input.flatten(1), self.weight.flatten(1), self.bias)
        return found_NE[:, :, None, None, None]


def train_by_the_faster_library(model: torch.nn.Module) -> None:
    """Turn every plain linear layer of a model on a CPU into a `TrainedLinear`, and every convolution in three
    dimensions without padding, dilation and groups into `TrainedPatches`. Parameters, their names and tied weights do
    not change."""
    if not on_cpu(model):
        return
    for module in model.modules():
        if type(module) is torch.nn.Linear:
            module.__class__ = TrainedLinear
        elif type(module) is torch.nn.Conv3d and _is_plain(module):
            module.__class__ = TrainedPatches


def _is_plain(layer: torch.nn.Conv3d) -> bool:
    """Return whether a convolution of a patch of its size is one product."""
    return layer.groups == 1 and set(layer.dilation) == {1} and layer.padding in ((0, 0, 0), "valid")


def product_or_linear(x: torch.Tensor, weight_ED: torch.Tensor, bias_E: torch.Tensor | None) -> torch.Tensor:
    """Return x W^T + b `[..., E]` by the faster library."""
    if by_one_dnn(x, weight_ED):
        return product(x, weight_ED, bias_E)
    return F.linear(x, weight_ED, bias_E)


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
        # Either may be the right factor of a product; see `linear`.
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
