"""Importance weights: the published truncations and masks, by token, by sequence and by geometric mean."""

import math

import pytest
import torch
from pydantic import ValidationError

from quartet.train.importance import ImportanceSettings, importance_weights

RHOS = [0.5, 1.0, 3.0, 10.0]


def weights(rhos: list[float], branches: list[int] | None = None, **settings: object) -> list[float]:
    log_rho_T = torch.tensor([math.log(rho) for rho in rhos], dtype=torch.float64, requires_grad=True)
    branches_T = torch.tensor(branches or [0] * len(rhos))
    found, _ = importance_weights(log_rho_T, branches_T, ImportanceSettings.model_validate(settings))
    assert not found.requires_grad
    return found.tolist()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"importance": "truncate", "importance_cap": 2.0}, [0.5, 1.0, 2.0, 2.0]),  # TIS
        ({"importance": "truncate", "importance_floor": 1.0, "importance_cap": 2.0}, [1.0, 1.0, 2.0, 2.0]),
        ({"importance": "mask", "importance_cap": 2.0}, [0.5, 1.0, 0.0, 0.0]),  # MIS
        ({"importance": "mask", "importance_floor": 0.5, "importance_cap": 5.0}, [0.5, 1.0, 3.0, 0.0]),  # IcePop
        ({"importance": "mask", "importance_floor": 0.6, "importance_cap": 5.0}, [0.0, 1.0, 3.0, 0.0]),
        ({"importance": "none", "importance_cap": 2.0}, [1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_the_published_weights_of_tokens(settings: dict[str, object], expected: list[float]) -> None:
    assert weights(RHOS, **settings) == pytest.approx(expected)


def test_a_sequence_has_the_product_of_its_ratios_truncated_or_masked() -> None:
    """Products 1.5 and 10 of two branches."""
    level = {"importance_level": "branch", "importance_cap": 2.0}
    assert weights(RHOS, [0, 0, 0, 1], **level) == pytest.approx([1.5, 1.5, 1.5, 2.0])
    assert weights(RHOS, [0, 0, 0, 1], importance="mask", **level) == pytest.approx([1.5, 1.5, 1.5, 0.0])


def test_the_geometric_mean_does_not_depend_on_the_length() -> None:
    """A ratio of 1.1 at 10 and at 100 tokens: products 2.59 and 13,780, geometric mean 1.1 of both."""
    branches = [0] * 10 + [1] * 100
    products = weights([1.1] * 110, branches, importance_level="branch", importance_cap=1e5)
    assert (products[0], products[-1]) == pytest.approx((1.1**10, 1.1**100))
    kept = {"importance": "mask", "importance_level": "branch_mean", "importance_floor": 0.9}
    assert weights([1.1] * 110, branches, importance_cap=1.11, **kept) == pytest.approx([1.1] * 110)
    assert weights([1.1] * 110, branches, importance_cap=1.09, **kept) == [0.0] * 110


def test_the_share_beyond_the_bounds_is_counted() -> None:
    settings = ImportanceSettings(importance="mask", importance_floor=0.6, importance_cap=5.0)
    _, metrics = importance_weights(torch.tensor(RHOS).log(), torch.zeros(4, dtype=torch.long), settings)
    assert metrics["importance_capped_fraction"].tolist() == [1.0, 0.0, 0.0, 1.0]


def test_a_floor_above_the_cap_is_refused() -> None:
    with pytest.raises(ValidationError, match="importance_floor is above importance_cap"):
        ImportanceSettings(importance_floor=2.0)
