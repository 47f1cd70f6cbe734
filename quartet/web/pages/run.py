"""Page "Run": curves of learning and speed, with those of other runs for comparison."""

from typing import Any, cast

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from quartet.errors import ConfigError, RecordsError
from quartet.ledger.results import FamilyResult
from quartet.recipe.file import CONFIG, changed_settings, flatten
from quartet.report import labels
from quartet.report.held_out import HeldOutResult, held_out_results, newest_success
from quartet.telemetry.metric_names import recorded_metrics
from quartet.telemetry.metrics import Metric, described
from quartet.telemetry.series import Axis, run_extent
from quartet.web.charts import CHARTS, Chart, chart_of
from quartet.web.curves import curves_of
from quartet.web.numbers import read_seconds
from quartet.web.render import render
from quartet.web.viewed_run import ViewedRun, viewed_run

AXES: dict[Axis, str] = {
    "train_step": "train step",
    "version": "policy version",
    "rollouts": "rollouts",
    "time": "time",
}
MOST_PINS = 40
BEFORE, AFTER = "before", "after"


def routes() -> list[Route]:
    return [
        Route("/runs/{run}/run", show_run, name="run"),
        Route("/runs/{run}/curves.json", send_curves, name="curves"),
    ]


def show_run(request: Request) -> Response:
    run = viewed_run(request)
    shown = [run, *(other for name, other in request.app.state.runs.items() if name in _compared(request, run))]
    pinned = _pinned(request)
    return render(
        request,
        "run.html",
        run=run,
        page="run",
        status=run.status(),
        running=run.running,
        summary=run.summary(),
        held_out=_held_out(run),
        charts=[*pinned, *CHARTS],
        pins={chart.key for chart in pinned},
        metrics=_recorded(shown, {chart.key for chart in pinned}),
        axes=AXES,
        shown=shown,
        differences=_differences(shown),
        config=(run.run_dir / CONFIG).read_text(),
    )


def send_curves(request: Request) -> Response:
    run, query = viewed_run(request), request.query_params
    axis = query.get("axis", "train_step")
    if axis not in AXES:
        raise HTTPException(400, f"axis={axis!r} is not one of {', '.join(AXES)}")
    start, end = (read_seconds(request, name) if name in query else None for name in ("start", "end"))
    charts = [*_pinned(request), *CHARTS]
    try:
        curves = curves_of(run, charts, cast(Axis, axis), cursor=query.get("cursor", ""), start=start, end=end)
    except ConfigError as error:
        raise HTTPException(400, error.what) from error
    extent = run_extent(run.run_dir)
    return JSONResponse({"running": run.running, "first": extent[0] if extent else None, **curves})


def _pinned(request: Request) -> list[Chart]:
    """Return the charts of the further metrics that the address names. Raises 400 for a metric that is not declared."""
    names = list(dict.fromkeys(request.query_params.getlist("pin")))
    if len(names) > MOST_PINS:
        raise HTTPException(400, f"{len(names)} pinned metrics are more than {MOST_PINS}")
    try:
        return [chart_of(name) for name in names]
    except ConfigError as error:
        raise HTTPException(400, error.what) from error


def _recorded(runs: list[ViewedRun], names: set[str]) -> list[Metric]:
    """Return the metrics `names` and those that any of the runs recorded, by name.

    A run that an older Quartet recorded adds none, since its records cannot be read.
    """
    for run in runs:
        try:
            names = names | recorded_metrics(run.run_dir).keys()
        except RecordsError:
            continue
    return [metric for name in sorted(names) if (metric := described(name)).module]


def _held_out(run: ViewedRun) -> list[tuple[str, float, FamilyResult | None]]:
    """Return label, success rate and counts of the evaluations before and after training.

    Until there is an evaluation after training, add the newest one during training, on selection seeds.
    """
    shown = [
        (f"{name}, {when}", result.success, result.together)
        for how, name in (("sampled", labels.HELD_OUT_SAMPLED), ("greedy", labels.HELD_OUT))
        for when, result in _before_and_after(held_out_results(run.ledger, how)).items()
    ]
    newest = None if any(label.endswith(AFTER) for label, *_ in shown) else newest_success(run.ledger)
    return [*shown, *([(f"{labels.HELD_OUT}, selection seeds", newest, None)] if newest is not None else [])]


def _before_and_after(found: list[HeldOutResult]) -> dict[str, HeldOutResult]:
    before = [result for result in found if result.version == 0][:1]
    after = [result for result in found[-1:] if result.version > 0]
    return {when: results[0] for when, results in ((BEFORE, before), (AFTER, after)) if results}


def _compared(request: Request, run: ViewedRun) -> set[str]:
    """Return the names of the runs to draw over this one. Unknown names, as in an old link, are ignored."""
    return set(request.query_params.getlist("with")) & request.app.state.runs.keys() - {run.name}


def _differences(runs: list[ViewedRun]) -> dict[str, list[Any]]:
    """Return the settings in which the runs differ: dotted name -> value in each run."""
    if len(runs) < 2:
        return {}
    settings = sorted({setting for other in runs[1:] for setting in changed_settings(runs[0].recipe, other.recipe)})
    values = [flatten(run.recipe.model_dump()) for run in runs]
    return {setting: [value.get(setting) for value in values] for setting in settings}
