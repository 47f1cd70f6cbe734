"""Alarms as lines: each once when it is raised and once when it is cleared."""

from collections.abc import Iterable, Iterator

from quartet.report.alarms.facts import Alarm


class Announced:
    """Remembers which alarms were announced. One whose level has grown is announced again."""

    def __init__(self) -> None:
        self._standing: dict[tuple[str, str], Alarm] = {}

    def lines(self, alarms: Iterable[Alarm]) -> Iterator[str]:
        """Return what changed since the last call, as lines for a log."""
        former, self._standing = self._standing, {(alarm.kind, alarm.about): alarm for alarm in alarms}
        for key, alarm in self._standing.items():
            if key not in former or alarm.level > former[key].level:
                yield f"alarm: {alarm.what} -> {alarm.advice}"
        for key, alarm in former.items():
            if key not in self._standing:
                yield f"alarm is over: {alarm.what}"
