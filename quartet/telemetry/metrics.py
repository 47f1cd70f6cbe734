"""Metrics: name, unit, meaning, and recording module.

Metrics of a part are declared in its own file (`Part.metrics`), all others here. A recorder warns once about an
undeclared metric. `docs/metrics.md` lists all, and a test keeps it equal.
"""

from functools import cache

from msgspec import Struct

from quartet.errors import ConfigError, nearest
from quartet.registry import KINDS, all_parts

DECLARE_ADVICE = "give its unit and meaning in `metrics` of the part that records it"
LABEL = "label"
"""Unit of values that are not summed up: ids, names, reasons. Labels are in the records, never in a series."""


class Metric(Struct, frozen=True):
    """One metric. `name` is `area/thing_unit`, without the unit if there is none."""

    name: str
    unit: str
    """`seconds`, `tokens`, `1` for a plain number or share, or `LABEL`."""
    meaning: str
    module: str


METRICS: dict[str, Metric] = {}
"""Metrics by name, in the order of declaration."""


def declare(module: str, area: str, *rows: tuple[str, str, str]) -> None:
    """Add metrics of one area; each row is (thing_unit, unit, meaning).

    Raises `ConfigError` if a name is already declared with another meaning.
    """
    for thing, unit, meaning in rows:
        metric = Metric(f"{area}/{thing}", unit, meaning, module)
        if METRICS.setdefault(metric.name, metric) != metric:
            raise ConfigError(
                f"metric {metric.name!r} is declared twice, with different meanings", "rename one of them"
            )


def declared(name: str) -> Metric:
    """Return the declaration of `name`, here or in a part. Raises `ConfigError` that suggests the nearest name."""
    if found := METRICS.get(name) or of_parts().get(name):
        return found
    raise ConfigError(f"metric {name!r} is not declared. {nearest(name, [*METRICS, *of_parts()])}", DECLARE_ADVICE)


def described(name: str) -> Metric:
    """Return the declaration of `name`, or a bare one if the part that declares it is not installed."""
    return METRICS.get(name) or of_parts().get(name) or Metric(name, "1", name, "")


@cache
def of_parts(*, shipped: bool = False) -> dict[str, Metric]:
    """Return the metrics of all importable parts, or of those that ship with Quartet, by name."""
    found: dict[str, Metric] = {}
    for kind, _, part in all_parts():
        if shipped and not part.__module__.startswith("quartet."):
            continue
        for name, text in part.metrics.items():
            unit, _, meaning = text.partition(": ")
            found[name] = Metric(name, unit, meaning, KINDS[kind].module)
    return found


declare(
    "worker",
    "rollout",
    ("rollout_id", LABEL, "id of the rollout"),
    ("attempt", LABEL, "number of the attempt, from 1"),
    ("purpose", LABEL, "`train`, `eval` or `demonstration`"),
    ("family", LABEL, "task family"),
    ("status", LABEL, "status at the end, a `quartet.types.Status`"),
    ("outcome", LABEL, "result of appending it to the ledger: stored, retried, late"),
    ("reward", "1", "sum of the named rewards; countable training rollouts only"),
    ("success", "1", "1 if the task was solved, else 0; countable training rollouts only"),
    ("truncated", "1", "1 if a limit of turns or tokens ended it, else 0; countable training rollouts only"),
    ("evaluation_reward", "1", "sum of the named rewards; countable evaluation rollouts only"),
    ("evaluation_success", "1", "1 if the task was solved, else 0; countable evaluation rollouts only"),
    ("recycled", "1", "number of earlier recalls that requeued it with its sampled tokens"),
    ("diverged", "1", "1 if stored calls could not be reused because the environment responded differently, else 0"),
    ("turns", "turns", "turns taken"),
    ("prompt_tokens", "tokens", "prompt tokens of all calls"),
    ("response_tokens", "tokens", "sampled tokens"),
    ("wall_seconds", "seconds", "time from reset to the end"),
    ("reset_seconds", "seconds", "time waiting for the environment's reset"),
    ("generate_seconds", "seconds", "time waiting for the engine"),
    ("step_seconds", "seconds", "time waiting for the environment's steps"),
    ("snapshot_seconds", "seconds", "time waiting for environment states stored for forks"),
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
        "tokens of requests in flight computed again, after new weights or a preemption",
    ),
    ("recompute_ms_per_second", "ms/s", "decode time spent on recomputed tokens"),
    ("put_back_requests_per_second", "requests/s", "requests preempted for lack of KV cache memory"),
    ("prove_seconds", "seconds", "time to read and prove a policy's weights, beside decoding"),
    ("swap_ms", "ms", "pause of decoding for new weights"),
    ("canary_gap_nats", "nats", "largest difference to the log-probs published with the policy"),
)
declare(
    "manager",
    "data",
    ("group_id", LABEL, "id of the group"),
    ("family", LABEL, "task family"),
    ("seed", LABEL, "the task's seed"),
    ("dropped", LABEL, "reason for dropping the group; empty if it was kept"),
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
    ("uncounted", "rollouts", "rollouts without a result: infrastructure failures and cancelled ones"),
)
declare(
    "trainer",
    "train",
    ("step", "train steps", "number of the train step"),
    ("version", "versions", "policy version published by the step"),
    (
        "lag_histogram",
        LABEL,
        "lag -> trajectories, each by its oldest token; tokens older than `admission.max_lag` are masked",
    ),
    ("loss", "1", "loss per token, aggregated as in `loss.aggregation`"),
    ("effective_sample_fraction", "1", "(mean weight)^2 / mean squared weight; 1 if all weights are equal"),
    ("entropy_nats", "nats", "mean entropy of the trained tokens' distributions"),
    ("gap_k1_nats", "nats", "mean of log p(sampled) - log p(trainer) over fresh tokens"),
    ("gap_k3_nats", "nats", "Schulman's k3 estimate of the same divergence"),
    ("gradient_norm", "1", "gradient norm before clipping, mean over optimizer steps"),
    ("learning_rate", "1", "learning rate of the last optimizer step"),
    ("computed_tokens", "tokens", "tokens that went through the model, without padding"),
    ("sequence_tokens", "tokens", "tokens of all training sequences"),
    ("trained_tokens", "tokens", "response tokens that the loss counted"),
    ("masked_tokens", "tokens", "response tokens masked for staleness"),
    ("masked_share", "1", "share of response tokens masked for staleness, stored successes not counted"),
    ("masked_success_share", "1", "share of successes' tokens masked for staleness, stored successes not counted"),
    ("masked_failure_share", "1", "share of failures' tokens masked for staleness"),
    (
        "wholly_masked_success_share",
        "1",
        "share of successes with all tokens masked for staleness; they stay in the baseline",
    ),
    ("wholly_masked_failure_share", "1", "share of failures with all tokens masked for staleness"),
    ("low_entropy_tokens", "tokens", "response tokens left out by `train.min_turn_entropy_percentile`"),
    ("trajectories", "trajectories", "trajectories in the batch"),
    ("replayed_trajectories", "trajectories", "stored successes of earlier groups in the batch"),
    ("groups", "groups", "groups in the batch"),
    ("branches_per_trajectory", "branches", "training sequences per trajectory"),
    ("lag_mean_versions", "versions", "mean lag of the batch's trajectories"),
    ("lag_max_versions", "versions", "largest lag among them"),
    ("reward_mean", "1", "mean reward of the groups' own members"),
    ("success_mean", "1", "success rate of the groups' own members"),
    ("claim_seconds", "seconds", "time to claim the batch"),
    ("held_back_seconds", "seconds", "time for which the ready batch waited for stragglers"),
    ("pack_seconds", "seconds", "time from trajectories to padded tensors"),
    ("credit_seconds", "seconds", "time to assign credit, with the forward passes that it needs"),
    ("old_logprobs_seconds", "seconds", "time for the log-probs of the weights the step starts from"),
    ("update_seconds", "seconds", "time for forward, backward and optimizer steps"),
    ("publish_seconds", "seconds", "time to write policy and checkpoint to disk"),
    ("commit_seconds", "seconds", "time of the commit in the ledger"),
)
declare(
    "every module",
    "module",
    ("waiting_fraction", "1", "share of the last seconds spent waiting"),
    ("processor_cores", "cores", "processor time of the process per second, without child processes"),
    ("memory_megabytes", "megabytes", "resident memory of the process (Linux)"),
)
