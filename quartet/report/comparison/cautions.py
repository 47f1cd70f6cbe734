"""Warnings for readers of a comparison, about numbers that are not comparable or not complete."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from quartet.errors import ConfigError
from quartet.ledger.results import MAX_UNCOUNTED_SHARE
from quartet.report.comparison.groups import Group


def refuse_copies(groups: Sequence[Group]) -> None:
    """Raise `ConfigError` if a group holds a run twice, or a run and its copy: they would count as two seeds."""
    for group in groups:
        seen: dict[tuple[object, ...], str] = {}
        for run in group.runs:
            birth = (run.seed, run.born) if run.born else (Path(run.run).resolve(),)
            if birth in seen:
                raise ConfigError(
                    f"{seen[birth]} and {run.run} are one run: it would count as two seeds", "give it once"
                )
            seen[birth] = run.run


def cautions(groups: Sequence[Group]) -> list[str]:
    """Return a sentence for each of these: runs of one group with the same seed, runs that were evaluated on different
    tasks, groups that share no seed with the first, evaluations in which episodes have no result, runs that have not
    ended."""
    return [
        *_repeated_seeds(groups),
        *_different_tasks(groups),
        *_no_common_seed(groups),
        *_uncounted(groups),
        *_unfinished(groups),
    ]


def _repeated_seeds(groups: Sequence[Group]) -> list[str]:
    counts = [(group, Counter(run.seed for run in group.runs)) for group in groups]
    return [
        f"{group.label}: {count} runs have the seed {seed}; the interval counts them as different seeds"
        for group, seeds in counts
        for seed, count in seeds.items()
        if count > 1
    ]


def _no_common_seed(groups: Sequence[Group]) -> list[str]:
    first, *others = groups
    seeds = {run.seed for run in first.runs}
    return [
        f"{group.label} and {first.label} have no seed in common, so there is no difference between them seed by seed: "
        "train one of them with the seeds of the other"
        for group in others
        if seeds.isdisjoint(run.seed for run in group.runs)
    ]


def _different_tasks(groups: Sequence[Group]) -> list[str]:
    runs = [run for group in groups for run in group.runs if run.held_out.families]
    kinds = {run.held_out: run.run for run in runs}  # one of the runs of each kind
    if len(kinds) < 2:
        return []
    told = "".join(f"\n  {run}: {tasks}" for tasks, run in kinds.items())
    return [
        f"NOT COMPARABLE: these runs were evaluated on different held-out tasks, so do not compare their success{told}"
    ]


def _uncounted(groups: Sequence[Group]) -> list[str]:
    runs = [run for group in groups for run in group.runs]
    return [
        f"{run.run}: {100 * run.uncounted_share:.0f} % of its evaluation episodes have no result and are left out"
        for run in runs
        if run.uncounted_share > MAX_UNCOUNTED_SHARE
    ]


def _unfinished(groups: Sequence[Group]) -> list[str]:
    runs = [run for group in groups for run in group.runs]
    return [f"{run.run} has not ended: these are its numbers so far" for run in runs if not run.stop_reason]
