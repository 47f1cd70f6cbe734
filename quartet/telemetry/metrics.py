"""Metrics: name, unit, what it means, and which module records it.

Those of a part stand in its own file (`Part.metrics`); here stand those that no part owns. A recorder warns once about
a metric that is declared nowhere. `docs/metrics.md` lists all, and a test keeps it equal.
"""

from functools import cache

from msgspec import Struct

from quartet.errors import ConfigError, nearest
from quartet.registry import KINDS, all_parts

DECLARE_ADVICE = "give its unit and meaning in `metrics` of the part that records it"
LABEL = "label"
"""The unit of what is no number to be summed: ids, names, reasons. Labels stand in the records, never in a series."""


class Metric(Struct, frozen=True):
    """One metric: `name` is `area/thing_unit`, the unit left out where there is none."""

    name: str
    unit: str
    """`seconds`, `tokens`, `1` for a plain number or share, or `LABEL`."""
    meaning: str
    module: str


METRICS: dict[str, Metric] = {}
"""By name, in the order of declaration."""


def declare(module: str, area: str, *rows: tuple[str, str, str]) -> None:
    """Add metrics of one area; each row is (thing_unit, unit, meaning). Raises `ConfigError` when one is there already
    with another meaning."""
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
    """Return the declaration, or a bare one where the part that declares it is not installed."""
    return METRICS.get(name) or of_parts().get(name) or Metric(name, "1", name, "")


@cache
def of_parts(*, shipped: bool = False) -> dict[str, Metric]:
    """Return the metrics of all parts that can be imported, or of those that ship, by name."""
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
    ("rollout_id", LABEL, "which rollout"),
    ("attempt", LABEL, "which attempt at it, from 1"),
    ("purpose", LABEL, "`train`, `eval` or `demonstration`"),
    ("family", LABEL, "task family"),
    ("status", LABEL, "how it ended: `quartet.types.Status`"),
    ("outcome", LABEL, "what the ledger said: stored, retried, late"),
    ("reward", "1", "sum of its named rewards; countable training rollouts only"),
    ("success", "1", "1 when it solved its task, else 0; countable training rollouts only"),
    ("truncated", "1", "1 when a limit of turns or tokens ended it, else 0; countable training rollouts only"),
    ("evaluation_reward", "1", "the same of an evaluation's rollouts"),
    ("evaluation_success", "1", "the same of an evaluation's rollouts"),
    ("recycled", "1", "how often it was handed back before, with what it had"),
    ("diverged", "1", "1 when what it had was of no use, because the environment answered differently, else 0"),
    ("turns", "turns", "turns taken"),
    ("prompt_tokens", "tokens", "prompt tokens of all its calls"),
    ("response_tokens", "tokens", "tokens it sampled"),
    ("wall_seconds", "seconds", "from reset to the end"),
    ("reset_seconds", "seconds", "waiting for the environment's reset"),
    ("generate_seconds", "seconds", "waiting for the engine"),
    ("step_seconds", "seconds", "waiting for the environment's steps"),
    ("snapshot_seconds", "seconds", "waiting for the states that the environment stores for forked rollouts"),
)
declare(
    "engine",
    "engine",
    ("prompt_tokens_per_second", "tokens/s", "prompt tokens computed"),
    ("reused_tokens_per_second", "tokens/s", "prompt tokens taken from the prefix cache"),
    ("generated_tokens_per_second", "tokens/s", "tokens sampled"),
    ("requests_per_second", "requests/s", "requests answered"),
    ("active_requests", "requests", "requests in work"),
    ("version", "versions", "policy version it serves"),
    ("loaded_version", "versions", "policy version it just loaded"),
    (
        "recomputed_tokens_per_second",
        "tokens/s",
        "tokens in flight computed again for new weights, or for lack of memory before",
    ),
    ("recompute_ms_per_second", "ms/s", "decode time that this took"),
    ("put_back_requests_per_second", "requests/s", "requests that had to wait for memory with the tokens they had"),
    ("prove_seconds", "seconds", "reading and proving a policy's weights, beside decoding"),
    ("swap_ms", "ms", "decoding stood still for new weights"),
    ("canary_gap_nats", "nats", "largest difference to the log-probs published with the policy"),
)
declare(
    "manager",
    "data",
    ("group_id", LABEL, "which group"),
    ("family", LABEL, "task family"),
    ("seed", LABEL, "the task's seed"),
    ("dropped", LABEL, "why the group was dropped; empty when it was not"),
    ("group_trainable", "1", "1 when the filters kept the group, else 0"),
    ("group_members", "rollouts", "countable rollouts of a closed group"),
    ("group_replayed", "rollouts", "stored successes that joined it"),
    ("group_successes", "rollouts", "members that solved the task"),
    ("group_reward_mean", "1", "mean reward of its members"),
)
declare(
    "manager",
    "evaluation",
    ("tag", LABEL, "which evaluation"),
    ("families", LABEL, "family -> [successes, episodes, uncounted]"),
    ("version", "versions", "policy version that was evaluated"),
    ("success", "1", "success rate on selection seeds, which are held out too, greedy; mean over families"),
    ("episodes", "rollouts", "rollouts with a result; a time-out is a failure"),
    ("uncounted", "rollouts", "rollouts without one: infrastructure failures and cancelled ones"),
)
declare(
    "trainer",
    "train",
    ("step", "train steps", "the train step"),
    ("version", "versions", "the policy version it published"),
    (
        "lag_histogram",
        LABEL,
        "lag -> trajectories, each by its oldest token; tokens older than `admission.max_lag` are masked",
    ),
    ("loss", "1", "the loss, per token as `loss.aggregation` counts"),
    ("effective_sample_fraction", "1", "(mean weight)^2 over mean squared weight: 1 when all weigh the same"),
    ("entropy_nats", "nats", "mean entropy of the trained tokens' distributions"),
    ("gap_k1_nats", "nats", "mean of log p(sampled) - log p(trainer) over fresh tokens"),
    ("gap_k3_nats", "nats", "Schulman's k3 estimate of the same divergence"),
    ("gradient_norm", "1", "before clipping, mean over optimizer steps"),
    ("learning_rate", "1", "of the last optimizer step"),
    ("computed_tokens", "tokens", "tokens that went through the model, padding left out"),
    ("sequence_tokens", "tokens", "tokens of all training sequences"),
    ("trained_tokens", "tokens", "response tokens that the loss counted"),
    ("masked_tokens", "tokens", "response tokens left out for their age"),
    ("masked_share", "1", "share of the response tokens left out for their age, stored successes not counted"),
    ("masked_success_share", "1", "the same of the tokens of successes"),
    ("masked_failure_share", "1", "the same of the tokens of failures"),
    (
        "wholly_masked_success_share",
        "1",
        "share of the successes of which no token was young enough; they stay in the baseline",
    ),
    ("wholly_masked_failure_share", "1", "the same of the failures"),
    ("low_entropy_tokens", "tokens", "response tokens left out by `train.min_turn_entropy_percentile`"),
    ("trajectories", "trajectories", "in the batch"),
    ("replayed_trajectories", "trajectories", "of these, stored successes of earlier groups"),
    ("groups", "groups", "in the batch"),
    ("branches_per_trajectory", "branches", "training sequences per trajectory"),
    ("lag_mean_versions", "versions", "mean lag of the batch's trajectories"),
    ("lag_max_versions", "versions", "largest lag among them"),
    ("reward_mean", "1", "mean reward of the groups' own members"),
    ("success_mean", "1", "success rate of the groups' own members"),
    ("claim_seconds", "seconds", "claiming the batch"),
    ("held_back_seconds", "seconds", "the batch was ready and waited for stragglers"),
    ("pack_seconds", "seconds", "from trajectories to padded tensors"),
    ("credit_seconds", "seconds", "assigning credit, with the forward passes that it needs"),
    ("old_logprobs_seconds", "seconds", "log-probs of the weights the step starts from"),
    ("update_seconds", "seconds", "forward, backward and optimizer steps"),
    ("publish_seconds", "seconds", "policy and checkpoint to disk"),
    ("commit_seconds", "seconds", "the ledger made it final"),
)
declare(
    "every module",
    "module",
    ("waiting_fraction", "1", "share of the last seconds that it waited"),
    ("processor_cores", "cores", "processor time of its process per second, child processes left out"),
    ("memory_megabytes", "megabytes", "memory of its process in RAM (Linux)"),
)
