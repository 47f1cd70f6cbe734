"""Alarms as log lines: one line when an alarm is raised, and one when it is cleared."""

from collections.abc import Iterable, Iterator

from quartet.errors import in_a_sentence
from quartet.report.alarms.facts import Alarm


class Announced:
    """Record of the alarms that were announced. An alarm is announced again if its level rises."""

    def __init__(self) -> None:
        self._standing: dict[tuple[str, str], Alarm] = {}

    def lines(self, alarms: Iterable[Alarm]) -> Iterator[str]:
        """Yield a log line for each alarm that was raised, rose in level or was cleared since the last call."""
        former, self._standing = self._standing, {(alarm.kind, alarm.about): alarm for alarm in alarms}
        for key, alarm in self._standing.items():
            if key not in former or alarm.level > former[key].level:
                yield f"alarm: {in_a_sentence(alarm.what)} -> {alarm.advice}"
        for key, alarm in former.items():
            if key not in self._standing:
                yield f"alarm cleared: {alarm.what}"
