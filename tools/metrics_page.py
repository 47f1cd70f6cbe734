"""Generator of `docs/metrics.md`: `python tools/metrics_page.py > docs/metrics.md`."""

from quartet.telemetry.activities import ACTIVITIES
from quartet.telemetry.metrics import METRICS, Metric, of_parts

_HEAD = """# Metrics and spans

`python tools/metrics_page.py` makes this page from `quartet/telemetry/metrics.py`, the parts and
`quartet/telemetry/activities.py`; a test checks that they agree. A recorder warns once about a metric that is not
declared. `quartet parts` shows the metrics that each part records.

A record is one line in the run's `metrics/ROLE/PROCESS/MINUTE.jsonl`. It has a `time` (Unix seconds), an `area`, and
the values of metrics of this area that belong together. Values with the unit `label` are only in the records. All other
values are numbers and also form series (`quartet.telemetry.series.read_series`). The unit `1` means a plain number or a
share.

## Metrics
"""
_SPANS = """
## Activities of spans

A span is one line in the run's `spans/ROLE/PROCESS/MINUTE.jsonl`. It has `start` (Unix seconds), `seconds`, `name` and,
where they apply, `lane` (a row of the timeline, such as `session 3`), `trace` (`rollout 12.1`, `train_step 7`,
`policy 3`, `group 5`), `reason` (of a wait) and `fields`. An activity longer than 30 s is written in pieces while it
lasts; all pieces but the last have `continues`.
"""


def metrics_page() -> str:
    """Return the whole page in Markdown."""
    known = sorted([*METRICS.values(), *of_parts(shipped=True).values()], key=_area)
    metrics = [f"| `{m.name}` | {m.unit} | {m.meaning} | {m.module} |" for m in known]
    spans = [f"| `{a.name}` | {a.meaning} | {a.colour} |" for a in ACTIVITIES.values()]
    return "\n".join(
        [
            _HEAD,
            "| metric | unit | what it means | recorded by |",
            "|---|---|---|---|",
            *metrics,
            _SPANS,
            "| activity | what is done | colour |",
            "|---|---|---|",
            *spans,
            "",
        ]
    )


def _area(metric: Metric) -> int:
    """Return the position of the metric's area in the order of declaration."""
    areas = list(dict.fromkeys(name.partition("/")[0] for name in METRICS))
    area = metric.name.partition("/")[0]
    return areas.index(area) if area in areas else len(areas)


if __name__ == "__main__":
    print(metrics_page(), end="")
