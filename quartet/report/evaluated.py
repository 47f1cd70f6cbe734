"""The evaluations before and after training that a run reports: their tags, and the results of whole ones."""

from typing import Any

from quartet.ledger import Ledger
from quartet.ledger.results import Results, total
from quartet.types.plan import BLIND, GREEDY, SAMPLED

BEFORE = "before"
"""Prefix of the tags of the evaluation before training."""
_NAMES = {"": GREEDY, "_sampled": SAMPLED, "_blind": BLIND}
"""Ends of the names in `summary.json`, as in `before_sampled`, and of the tags."""


def after_tag(ledger: Ledger) -> str:
    """Return the prefix of the tags of the final evaluation, which is one of the newest policy.

    It contains the train step, so a run that continues is evaluated again. If this train step has another evaluation,
    of a policy that was rolled back or one that was cut off, the prefix contains the policy version too.
    """
    version, prefix = ledger.policies.latest().version, f"after {ledger.batches.train_step()}"
    admitted = ledger.evaluations.admitted()
    former = [tag for tag in (f"{prefix}{how}" for how in _NAMES.values()) if tag in admitted]
    outdated = any(admitted[tag] != version or ledger.evaluations.was_cut_off(tag) for tag in former)
    return f"{prefix}/v{version}" if outdated else prefix


def whole_results(ledger: Ledger, tag: str) -> Results:
    """Return the results of an evaluation; none if it is incomplete, because its finished episodes are a biased
    sample."""
    return ledger.evaluations.results(tag) if ledger.evaluations.is_whole(tag) else {}


def reported_tags(ledger: Ledger) -> dict[str, str]:
    """Return the tags of the evaluations before and after training by their names in `summary.json`."""
    prefixes = {"before": BEFORE, "after": after_tag(ledger)}
    return {f"{when}{name}": f"{prefix}{how}" for when, prefix in prefixes.items() for name, how in _NAMES.items()}


def episode_counts(results: Results) -> dict[str, Any]:
    """Return the number of requested episodes of an evaluation, the number with a result, and by family the number
    without a result."""
    everything = total(results)
    return {
        "asked": everything.asked,
        "episodes": everything.episodes,
        "uncounted": {family: result.uncounted for family, result in results.items() if result.uncounted},
    }
