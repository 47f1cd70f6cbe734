"""Alarms as log lines, one when raised and one when cleared."""

from collections.abc import Iterable, Iterator

from quartet.report.alarms.facts import Alarm


class Announced:
    """Record of the announced alarms. An alarm whose level rises is announced again."""

    def __init__(self) -> None:
        self._standing: dict[tuple[str, str], Alarm] = {}

    def lines(self, alarms: Iterable[Alarm]) -> Iterator[str]:
        """Yield the changes since the last call as lines for a log."""
        former, self._standing = self._standing, {(alarm.kind, alarm.about): alarm for alarm in alarms}
        for key, alarm in self._standing.items():
            if key not in former or alarm.level > former[key].level:
                yield f"alarm: {alarm.what} -> {alarm.advice}"
        for key, alarm in former.items():
            if key not in self._standing:
                yield f"alarm cleared: {alarm.what}"
