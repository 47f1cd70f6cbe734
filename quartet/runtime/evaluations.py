"""Evaluations before and after training: which is next when a run starts or is resumed, and their admission.

An evaluation that was interrupted is completed before training continues, so that its episodes are of one policy.
"""

from quartet.config import Recipe
from quartet.env import suite_families
from quartet.ledger import Ledger
from quartet.manager.evaluation import DURING, admit_evaluation
from quartet.report.evaluated import BEFORE, after_tag
from quartet.types.plan import BLIND, GREEDY, SAMPLED


def first_evaluation(recipe: Recipe, ledger: Ledger) -> str:
    """Return the prefix of the tags of the evaluation with which the run begins: the one before training, or one after
    training that an earlier start of the run left incomplete.

    Episodes of policies that were rolled back are cancelled, because another policy would play them.
    """
    newest, admitted = ledger.policies.latest().version, ledger.evaluations.admitted()
    ledger.evaluations.cancel(tag for tag, version in admitted.items() if _is_reported(tag) and version != newest)
    after = after_tag(ledger)
    tags = _temperatures(recipe, after)
    has_begun = any(tag in admitted for tag in tags)
    return after if has_begun and not all(map(ledger.evaluations.is_whole, tags)) else BEFORE


def admit_missing_evaluations(recipe: Recipe, ledger: Ledger, when: str) -> list[str]:
    """Queue the held-out episodes of the evaluation `when`, unless an earlier start of the run queued them.

    Return the tags of the evaluation: greedy, sampled and, if `evaluation.blind` is set, blind.
    """
    temperatures = _temperatures(recipe, when)
    for tag, temperature in temperatures.items():
        if not ledger.evaluations.was_admitted(tag):
            admit_evaluation(
                ledger,
                recipe,
                suite_families(recipe.env),
                seeds=recipe.evaluation.reported_seeds,
                temperature=temperature,
                tag=tag,
            )
    return list(temperatures)


def _temperatures(recipe: Recipe, when: str) -> dict[str, float]:
    """Return the sampling temperatures of the evaluation `when` by its tags."""
    temperatures = {f"{when}{GREEDY}": 0.0, f"{when}{SAMPLED}": recipe.rollout.temperature}
    return temperatures | ({f"{when}{BLIND}": 0.0} if recipe.evaluation.blind else {})


def _is_reported(tag: str) -> bool:
    return not tag.startswith(DURING)
