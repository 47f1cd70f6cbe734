"""Alarms about processes: silence, deaths, rejected policies, starvation."""

from collections import Counter
from collections.abc import Iterator

from quartet.report.alarms.facts import Alarm, Facts
from quartet.report.show import times
from quartet.report.status import SILENT_AFTER_SECONDS
from quartet.telemetry.presence import TRAINABLE_GROUPS
from quartet.types import MAIN
from quartet.types.phase import TRAINING

AGAINST_SILENCE = (
    "if it was at work, raise heartbeat_timeout_seconds under [runtime], or end other programs that use the processors"
)
"""Advice about a module that was killed because it sent no heartbeat."""


def silent(facts: Facts) -> Iterator[Alarm]:
    """Report each needed module that has sent no heartbeat for `SILENT_AFTER_SECONDS`."""
    for module in facts.status.modules:
        if module.silent_seconds > SILENT_AFTER_SECONDS and not facts.status.absence(module):
            yield Alarm(
                kind="silent",
                about=module.module,
                what=f"{module.module} has sent no heartbeat for {module.silent_seconds:.0f} s",
                advice=f"see logs/{module.module}.jsonl; after runtime.heartbeat_timeout_seconds = "
                f"{facts.recipe.runtime.heartbeat_timeout_seconds:g}, without its waits for a processor, it is killed "
                "and restarted",
            )


def died(facts: Facts) -> Iterator[Alarm]:
    """Report each process that ended by itself, or was killed because it was silent, and was restarted."""
    deaths = [event.fields for event in facts.events if event.kind == "module_died"]
    for module, count in Counter(fields["module"] for fields in deaths).items():
        newest = next(fields for fields in deaths if fields["module"] == module)
        kills = newest.get("silent_kills", 0)  # missing in ledgers of earlier versions, and in other deaths
        yield Alarm(
            kind="died",
            about=module,
            what=f"{module} died {times(count)} in ten minutes: {newest['last_words']}",
            advice=f"{AGAINST_SILENCE}; see logs/supervisor.jsonl"
            if kills
            else f"see logs/{module}.stderr; check the machine with `quartet doctor`",
            level=kills,
        )


def refused(facts: Facts) -> Iterator[Alarm]:
    """For each policy, report the newest version that failed an engine's verification."""
    refusals = [event.fields for event in reversed(facts.events) if event.kind == "policy_refused"]
    newest = {fields.get("policy", MAIN): fields for fields in refusals}  # events of schema 5 name no policy
    for policy, fields in newest.items():
        yield Alarm(
            kind="policy_refused",
            about=policy,
            what=f"the engine rejected version {fields['version']} of policy {policy!r}: {fields['error']}",
            advice="rollouts continue with the previous version; to rule out precision, set engine.dtype = 'float32'",
        )


def went_back(facts: Facts) -> Iterator[Alarm]:
    """Report a damaged policy or checkpoint, after which the trainer rolled back."""
    damaged = [event.fields for event in facts.events if event.kind == "recovery_point_damaged"]
    if damaged:
        yield Alarm(
            kind="went_back",
            what=f"train step {damaged[0]['train_step']} is damaged: {damaged[0]['error']}",
            advice="check the disk; the run rolled back to an earlier train step and trains again from there",
        )


def starving(facts: Facts) -> Iterator[Alarm]:
    """Report that the trainer has waited for a trainable group for a quarter of `train.starved_timeout_seconds`."""
    if facts.status.phase != TRAINING:
        return
    limit = facts.recipe.train.starved_timeout_seconds
    for module in facts.status.modules:
        starves = module.module.partition("-")[0] == "trainer" and module.waiting_for.endswith(TRAINABLE_GROUPS)
        if starves and module.since_seconds > limit / 4:
            yield Alarm(
                kind="starving",
                what=f"nothing to train for {module.since_seconds:.0f} s; at {limit:g} s the run stops",
                advice="see the other alarms, and what the worker and the manager wait for",
            )
