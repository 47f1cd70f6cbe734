"""Declarations of metrics: name, unit, meaning, and the module that records them.

The metrics of a part are declared in the part's own file (`Part.metrics`), all others here. A recorder warns once about
a metric that is not declared. `docs/metrics.md` lists all metrics; a test checks that it agrees with the declarations.
"""

from functools import cache

from msgspec import Struct

from quartet.errors import ConfigError, nearest
from quartet.kinds import KINDS
from quartet.registry import Part, all_parts, found_parts

DECLARE_ADVICE = "give its unit and meaning in `metrics` of the part that records it"
LABEL = "label"
"""Unit of values that cannot be summed up, such as ids, names and reasons. Records contain these values, series do
not."""


class Metric(Struct, frozen=True):
    """One metric. `name` is `area/thing_unit`, without the unit if there is none."""

    name: str
    unit: str
    """Unit, for example `seconds` or `tokens`; `1` for a plain number or a share; `LABEL` for a label."""
    meaning: str
    module: str


METRICS: dict[str, Metric] = {}
"""Metrics by name, in the order of declaration."""


def declare(module: str, area: str, *rows: tuple[str, str, str]) -> None:
    """Declare metrics of one area; each row is (thing_unit, unit, meaning).

    Raises `ConfigError` if a name is already declared with another meaning.
    """
    for thing, unit, meaning in rows:
        metric = Metric(f"{area}/{thing}", unit, meaning, module)
        if METRICS.setdefault(metric.name, metric) != metric:
            raise ConfigError(
                f"metric {metric.name!r} is declared twice, with different meanings", "rename one of them"
            )


def declared(name: str) -> Metric:
    """Return the declaration of `name`, from this file or a part.

    Raises `ConfigError`, which suggests the nearest name, if there is none.
    """
    if found := METRICS.get(name) or of_parts().get(name):
        return found
    raise ConfigError(f"metric {name!r} is not declared. {nearest(name, [*METRICS, *of_parts()])}", DECLARE_ADVICE)


def described(name: str) -> Metric:
    """Return the declaration of `name`. For an unknown name, such as a metric of a part that is not installed, the
    declaration has no module."""
    return METRICS.get(name) or _of_found_part(name) or of_parts().get(name) or Metric(name, "1", name, "")


def _of_found_part(name: str) -> Metric | None:
    """Return the metric of a part that this process already uses; importing all others takes half a second."""
    return next((_of_part(kind, part, name) for kind, part in found_parts() if name in part.metrics), None)


def _of_part(kind: str, part: type[Part], name: str) -> Metric:
    unit, _, meaning = part.metrics[name].partition(": ")
    return Metric(name, unit, meaning, KINDS[kind].module)


@cache
def of_parts(*, shipped: bool = False) -> dict[str, Metric]:
    """Return the metrics of all importable parts, or only of the parts that ship with Quartet, by name."""
    found: dict[str, Metric] = {}
    for kind, _, part in all_parts():
        if shipped and not part.__module__.startswith("quartet."):
            continue
        found |= {name: _of_part(kind, part, name) for name in part.metrics}
    return found


declare(
    "worker",
    "rollout",
    ("rollout_id", LABEL, "id of the rollout"),
    ("attempt", LABEL, "number of the attempt, from 1"),
    ("purpose", LABEL, "`train`, `eval` or `demonstration`"),
    ("family", LABEL, "task family"),
    ("status", LABEL, "status at the end, a `quartet.types.Status`"),
    ("outcome", LABEL, "result of the rollout's append to the ledger: stored, retried, late"),
    ("reward", "1", "sum of the named rewards; countable training rollouts only"),
    ("success", "1", "1 if the task was solved, else 0; countable training rollouts only"),
    ("truncated", "1", "1 if a limit of turns or tokens ended the rollout, else 0; countable training rollouts only"),
    ("evaluation_reward", "1", "sum of the named rewards; countable evaluation rollouts only"),
    ("evaluation_success", "1", "1 if the task was solved, else 0; countable evaluation rollouts only"),
    ("guided_reward", "1", "sum of the named rewards; countable guided rollouts only"),
    ("guided_success", "1", "1 if the task was solved, else 0; countable guided rollouts only"),
    ("recycled", "1", "number of earlier recalls after which the rollout was queued again with its sampled tokens"),
    ("continued_calls", "calls", "calls of earlier attempts that were not sampled again"),
    ("diverged", "1", "1 if stored calls could not be reused because the environment responded differently, else 0"),
    ("turns", "turns", "turns taken"),
    ("prompt_tokens", "tokens", "prompt tokens of all calls"),
    ("response_tokens", "tokens", "sampled tokens"),
    ("wall_seconds", "seconds", "time from reset to the end"),
    ("reset_seconds", "seconds", "time waiting for the environment's reset"),
    ("generate_seconds", "seconds", "time waiting for the engine"),
    ("step_seconds", "seconds", "time waiting for the environment's steps"),
    ("snapshot_seconds", "seconds", "time waiting for the storing of environment states for forks"),
)
declare(
    "engine",
    "engine",
    ("prompt_tokens_per_second", "tokens/s", "prompt tokens computed"),
    ("reused_tokens_per_second", "tokens/s", "prompt tokens taken from the prefix cache"),
    ("generated_tokens_per_second", "tokens/s", "tokens sampled"),
    ("requests_per_second", "requests/s", "requests answered"),
    ("active_requests", "requests", "requests waiting or running"),
    ("version", "versions", "policy version served"),
    ("loaded_version", "versions", "policy version just loaded"),
    (
        "recomputed_tokens_per_second",
        "tokens/s",
        "tokens of requests in flight whose keys and values were computed again, after new weights or a preemption",
    ),
    ("recompute_ms_per_second", "ms/s", "decode time spent on recomputed tokens"),
    ("put_back_requests_per_second", "requests/s", "requests preempted for lack of KV cache memory"),
    ("prove_seconds", "seconds", "time to read and verify a policy's weights, during which decoding continues"),
    ("swap_ms", "ms", "pause of decoding for new weights"),
    ("canary_gap_nats", "nats", "difference from the published log-probs: the largest, in bfloat16 the RMS"),
    ("read_megabytes", "megabytes", "files read for a policy's new weights, or for the changed ones (`publisher`)"),
)
declare(
    "manager",
    "data",
    ("group_id", LABEL, "id of the group"),
    ("family", LABEL, "task family"),
    ("seed", LABEL, "seed of the task"),
    ("dropped", LABEL, "reason for dropping the group; empty if it was kept"),
    ("rollouts", "rollouts", "training rollouts that have ended so far, cancelled ones included"),
    ("group_trainable", "1", "1 if the filters kept the group, else 0"),
    ("group_members", "rollouts", "countable rollouts of a closed group"),
    ("group_replayed", "rollouts", "stored successes that joined the group"),
    ("group_successes", "rollouts", "members that solved the task"),
    ("group_reward_mean", "1", "mean reward of the members"),
)
declare(
    "manager",
    "evaluation",
    ("tag", LABEL, "name of the evaluation"),
    ("families", LABEL, "family -> [successes, episodes, uncounted]"),
    ("version", "versions", "evaluated policy version"),
    ("success", "1", "greedy success rate on held-out selection seeds; mean over families"),
    ("episodes", "rollouts", "rollouts with a result; a timeout counts as failure"),
    ("uncounted", "rollouts", "rollouts without a result, because of an infrastructure failure or cancellation"),
)
declare(
    "trainer",
    "train",
    ("step", "train steps", "number of the train step"),
    ("version", "versions", "policy version published by the step"),
    (
        "lag_histogram",
        LABEL,
        "lag -> number of trajectories, each counted by its oldest token; tokens over `admission.max_lag` are masked",
    ),
    ("loss", "1", "loss per token, aggregated as in `loss.aggregation`"),
    ("effective_sample_fraction", "1", "(mean w)^2 / mean of w^2 over importance weights w; 1 if all are equal"),
    ("entropy_nats", "nats", "mean entropy of the trained tokens' distributions"),
    ("gap_k1_nats", "nats", "mean over fresh tokens of the log-prob at sampling minus the trainer's old log-prob"),
    ("gap_k3_nats", "nats", "the divergence of `gap_k1_nats` by Schulman's k3 estimator"),
    ("importance_max", "1", "largest ratio of old to sampled probability of a fresh token, before any cap"),
    ("gradient_norm", "1", "gradient norm of the policy before clipping, mean over optimizer steps"),
    ("gradient_norm_vision", "1", "the part of `gradient_norm` from the image encoder"),
    ("gradient_norm_embedding", "1", "the part of `gradient_norm` from embeddings and output head"),
    ("gradient_norm_attention", "1", "the part of `gradient_norm` from attention layers"),
    ("gradient_norm_mlp", "1", "the part of `gradient_norm` from feed-forward layers"),
    ("gradient_norm_other", "1", "the part of `gradient_norm` from all other parameters, such as norms"),
    ("critic_gradient_norm", "1", "gradient norm of the critic before clipping, if a loss term trains one"),
    ("learning_rate", "1", "policy's learning rate of the last optimizer step"),
    ("computed_tokens", "tokens", "positions that the model computes per epoch: with padding, shared prefixes once"),
    ("sequence_tokens", "tokens", "tokens of all training sequences"),
    ("trained_tokens", "tokens", "response tokens in the loss"),
    ("masked_tokens", "tokens", "response tokens masked for staleness"),
    ("masked_share", "1", "share of response tokens masked for staleness, without replayed successes"),
    ("masked_success_share", "1", "share of successes' tokens masked for staleness, without replayed successes"),
    ("masked_failure_share", "1", "share of failures' tokens masked for staleness"),
    (
        "wholly_masked_success_share",
        "1",
        "share of successes all of whose tokens are masked for staleness; they still count in the group's baseline",
    ),
    ("wholly_masked_failure_share", "1", "share of failures all of whose tokens are masked for staleness"),
    (
        "credit_masked_tokens",
        "tokens",
        "response tokens that the credit left out, as by `train.min_turn_entropy_percentile` or `train.mask_truncated`",
    ),
    ("trajectories", "trajectories", "trajectories in the batch"),
    ("replayed_trajectories", "trajectories", "stored successes of earlier groups in the batch"),
    ("groups", "groups", "groups in the batch"),
    (
        "zero_credit_group_share",
        "1",
        "share of groups that train nothing: all their advantages are 0, and no member is an anchor",
    ),
    ("branches_per_trajectory", "branches", "training sequences per trajectory"),
    (
        "lag_mean_versions",
        "versions",
        "mean lag of the batch's trajectories: train steps from the sampling version",
    ),
    ("lag_max_versions", "versions", "largest lag of the batch's trajectories, as in `train/lag_mean_versions`"),
    ("reward_mean", "1", "mean reward of the groups' own members"),
    ("success_mean", "1", "success rate of the groups' own members"),
    ("claim_seconds", "seconds", "time to claim the batch"),
    ("held_back_seconds", "seconds", "time for which the batch was held back for due groups (`admission.on_late`)"),
    ("pack_seconds", "seconds", "time to join the trajectories' calls into training sequences"),
    ("credit_seconds", "seconds", "time to assign credit, including the forward passes that it needs"),
    (
        "old_logprobs_seconds",
        "seconds",
        "time to form microbatches, and for log-probs under the weights at the step's start and under a reference",
    ),
    ("update_seconds", "seconds", "time for forward, backward and optimizer steps"),
    ("publish_seconds", "seconds", "time to wait for the previous policy's files and to copy the weights"),
    ("copy_state_seconds", "seconds", "time to wait for the previous checkpoint and to copy the trainer's state"),
    ("commit_seconds", "seconds", "time of the commit in the ledger"),
)
declare(
    "every module",
    "module",
    ("waiting_fraction", "1", "share of the time since the last record that was spent waiting"),
    ("processor_cores", "cores", "processor time of the process per second of wall time, without child processes"),
    ("memory_megabytes", "megabytes", "resident memory of the process (Linux)"),
)
