"""Charts of the Run page: the default charts (`CHARTS`), and a chart for any other metric (`chart_of`)."""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from quartet.config import Recipe
from quartet.telemetry.metrics import declared

Take = Literal["mean", "max", "rate"]
"""Value of a point: the mean of its records, their maximum, or their number per second."""


class Curve(Struct, frozen=True):
    """One metric of a chart. If several processes of one kind record the metric, each has a curve."""

    metric: str
    label: str
    """Name in the legend; if empty, the curve is named after the process that recorded it."""
    take: Take = "mean"
    episodes: str = ""
    """Name of the metric with the number of episodes, if the curve is a success rate; otherwise empty. Such a curve is
    drawn as unconnected points with intervals."""
    right: bool = False
    """True for a share between 0 and 1 that is drawn against a second axis on the right."""


class Bound(Struct, frozen=True):
    """Limit set by the recipe, drawn as a horizontal line."""

    label: str
    of: Callable[[Recipe], float]


class Chart(Struct, frozen=True, kw_only=True):
    """One chart; its curves share the axis on the left, except those marked `right`."""

    key: str
    title: str
    unit: str
    curves: tuple[Curve, ...]
    meaning: str = ""
    share: bool = False
    """True if the values are between 0 and 1 and shown in percent."""
    optional: bool = False
    """True if the chart is hidden while none of its metrics was recorded."""
    bound: Bound | None = None


SUCCESS, DROPS = "success", "drops"
"""Keys of the charts that have curves from the ledger."""

CHARTS = (
    Chart(
        key=SUCCESS,
        title="Success",
        unit="%",
        share=True,
        curves=(
            Curve("rollout/success", "training rollouts"),
            Curve("evaluation/success", "held-out, selection seeds", episodes="evaluation/episodes"),
        ),
    ),
    Chart(key="reward", title="Reward", unit="per rollout", curves=(Curve("rollout/reward", "training rollouts"),)),
    Chart(
        key="lag",
        title="Lag",
        unit="train steps",
        curves=(
            Curve("train/lag_mean_versions", "mean of the batch"),
            Curve("train/lag_max_versions", "largest", "max"),
            Curve("train/masked_share", "tokens masked for their age", right=True),
        ),
        bound=Bound("bound (admission.max_lag)", lambda recipe: recipe.admission.max_lag),
    ),
    Chart(
        key="entropy", title="Entropy", unit="nats per token", curves=(Curve("train/entropy_nats", "trained tokens"),)
    ),
    Chart(
        key="gap",
        title="Log-prob gap",
        unit="nats per token",
        curves=(
            Curve("train/gap_k1_nats", "engine − trainer"),
            Curve("train/gap_k3_nats", "k3 estimate"),
            Curve("engine/canary_gap_nats", "canary gap", "max"),
        ),
    ),
    Chart(
        key="kl",
        title="KL divergence",
        unit="nats per token",
        optional=True,
        curves=(Curve("train/reference_kl_nats", "from the reference policy"),),
    ),
    Chart(
        key="loss",
        title="Loss",
        unit="per token",
        optional=True,
        curves=(Curve("train/loss", "mean of the step"), Curve("train/value_loss", "value function")),
    ),
    Chart(
        key="gradient",
        title="Gradient norm",
        unit="before clipping",
        curves=(Curve("train/gradient_norm", "mean of the step"),),
    ),
    Chart(
        key="learning-rate",
        title="Learning rate",
        unit="",
        optional=True,
        curves=(Curve("train/learning_rate", "last optimizer step"),),
    ),
    Chart(
        key="clip",
        title="Clipped tokens",
        unit="% of the trained tokens",
        share=True,
        optional=True,
        curves=(
            Curve("train/clip_fraction", "ratio at its bound"),
            Curve("train/dual_clip_fraction", "dual clip"),
            Curve("train/importance_capped_fraction", "importance weight at its cap"),
        ),
    ),
    Chart(
        key="length",
        title="Response length",
        unit="tokens per attempt",
        optional=True,
        curves=(Curve("rollout/response_tokens", "sampled, evaluations included"),),
    ),
    Chart(
        key="truncated",
        title="Truncated",
        unit="% of the training rollouts",
        share=True,
        optional=True,
        curves=(Curve("rollout/truncated", "ended by a limit of turns or tokens"),),
    ),
    Chart(key=DROPS, title="Dropped groups", unit="% of the newest 64", share=True, optional=True, curves=()),
    Chart(
        key="tokens",
        title="Tokens",
        unit="per second",
        curves=(
            Curve("engine/generated_tokens_per_second", "sampled"),
            Curve("engine/prompt_tokens_per_second", "prompt"),
        ),
    ),
    Chart(
        key="rollouts",
        title="Rollouts",
        unit="per second",
        curves=(
            Curve("rollout/success", "training", "rate"),
            Curve("rollout/evaluation_success", "evaluation", "rate"),
        ),
    ),
    Chart(
        key="waiting",
        title="Waiting",
        unit="% of the time",
        share=True,
        curves=(Curve("module/waiting_fraction", ""),),
    ),
    Chart(
        key="processor",
        title="Processor",
        unit="cores",
        optional=True,
        curves=(Curve("module/processor_cores", ""),),
    ),
    Chart(
        key="memory",
        title="Memory",
        unit="megabytes",
        optional=True,
        curves=(Curve("module/memory_megabytes", ""),),
    ),
)


def chart_of(metric: str) -> Chart:
    """Return a chart of a metric. Raises `ConfigError`, which suggests the nearest name, if it is not declared."""
    known = declared(metric)
    unit = "" if known.unit == "1" else known.unit
    return Chart(key=metric, title=metric, unit=unit, meaning=known.meaning, curves=(Curve(metric, ""),))
