"""`quartet eval`: success rate of a run's policy, or of any policy folder, on held-out tasks."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from quartet.cli.parameters import JSON, SET, PolicyOrRun, RecipeName
from quartet.terminal.say import say

if TYPE_CHECKING:
    from quartet.config import Recipe


@click.command(name="eval")
@click.argument("run_or_policy", type=PolicyOrRun())
@click.option("--recipe", type=RecipeName(), help="Recipe with the tasks; needed for a policy folder.")
@click.option(
    "--policy", "which", type=click.Choice(["best", "latest"]), help="Policy of a run; by default the latest."
)
@SET
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the evaluation; by default in the run, or in runs/ for a policy folder.",
)
@click.option("--fresh", is_flag=True, help="Replace the result of an earlier evaluation in that folder.")
@JSON
def command(
    run_or_policy: Path,
    recipe: Path | None,
    which: str | None,
    overrides: tuple[str, ...],
    output: Path | None,
    fresh: bool,
    as_json: bool,
) -> None:
    """Evaluate RUN_OR_POLICY (a folder, or the name of a shipped policy) greedily and at the training temperature.

    The best policy of a run is the one with the highest success during training, on selection seeds. It is evaluated on
    other held-out seeds, from evaluation.first_seed on.
    """
    from quartet.errors import ConfigError
    from quartet.ledger.database import has_database
    from quartet.ledger.database.location import trust_server
    from quartet.recipe.file import load_recipe
    from quartet.runtime.run import evaluate_policy

    is_run = has_database(run_or_policy)
    if not is_run and recipe is None:
        raise ConfigError(
            f"{run_or_policy} is not a run: to evaluate it as a policy, name the tasks",
            "add --recipe: a file or a name of `quartet recipes`",
        )
    if not is_run and which:
        raise ConfigError(f"--policy {which} chooses one of a run's policies", f"{run_or_policy} is one: omit --policy")
    tasks = load_recipe(recipe or run_or_policy / "config.toml", list(overrides))
    if recipe is not None:
        trust_server(tasks.ledger.url)
    chosen = _policy_of_run(run_or_policy, which or "latest", tasks) if is_run else _policy_folder(run_or_policy)
    with chosen as policy:
        if output is None:
            own = run_or_policy / "evaluations" / policy.name
            output = own if is_run else Path("runs") / evaluation_name(policy)
        if not fresh:
            _refuse_to_replace(output)
        with _advice_of_evaluations():
            summary = evaluate_policy(tasks, policy, output, quiet=as_json)
    if as_json:
        say(json.dumps(summary))
        return
    for line in result_lines(summary, output):
        say(line)


@contextmanager
def _advice_of_evaluations() -> Iterator[None]:
    """Replace the advice to resume, which errors of a run's modules and ledger have: this command cannot resume."""
    from quartet.errors import CONTINUE, QuartetError

    try:
        yield
    except QuartetError as error:
        again = "start the evaluation again"
        error.what, error.advice = (text.replace(CONTINUE, again) for text in (error.what, error.advice))
        raise


def result_lines(summary: dict[str, Any], output: Path) -> Iterator[str]:
    """Yield the lines of the result: families, their categories, and all of them."""
    evaluations = summary["evaluations"].values()
    for family, rates in summary["per_task"].items():
        uncounted = sum(one["uncounted"].get(family, 0) for one in evaluations)
        yield _line(family, rates["greedy"], rates["sampled"]) + (f"  {uncounted} uncounted" if uncounted else "")
    for category, rates in summary["success_by_category"].items():
        yield _line(f"all {category}", rates["greedy"], rates["sampled"])
    yield f"{_line('all', summary['success_greedy'], summary['success_sampled'])}   ({output / 'summary.json'})"
    asked, (first, last) = sum(one["asked"] for one in evaluations), summary["seeds"]
    yield f"{summary['episodes']:,} of {asked:,} episodes have a result; seeds {first:,} to {last:,}"


def evaluation_name(policy: Path) -> str:
    """Return the folder name for the evaluation of a policy outside a run.

    It contains a hash of the policy's path, so that policies in folders of the same name have different names.
    """
    path = policy.resolve()
    return f"eval-{path.name}-{hashlib.sha256(str(path).encode()).hexdigest()[:6]}"


def _refuse_to_replace(output: Path) -> None:
    """Raise `ConfigError` if the folder has the result of an evaluation."""
    from quartet.errors import ConfigError
    from quartet.report.show import percent
    from quartet.report.summary import read_summary

    if (earlier := read_summary(output)) is not None:
        raise ConfigError(
            f"{output} already has a result: greedy {percent(earlier.get('success_greedy'))}, sampled "
            f"{percent(earlier.get('success_sampled'))}, of {earlier.get('policy', 'a run')}",
            "name another folder with --output, or replace it with --fresh",
        )


def _line(name: str, greedy: float | None, sampled: float | None) -> str:
    from quartet.report.show import percent

    return f"{name:28} greedy {percent(greedy):>5}  sampled {percent(sampled):>5}"


@contextmanager
def _policy_folder(policy: Path) -> Iterator[Path]:
    """Yield the folder. If it is of an active run, the run does not delete it during the block."""
    from quartet.ledger.held_policy import held

    with held(policy):
        yield policy


@contextmanager
def _policy_of_run(run: Path, which: str, tasks: "Recipe") -> Iterator[Path]:
    """Yield the folder of the run's policy, `which` is "best" or "latest". The run does not delete it during the block.

    Raise `ConfigError` if no policy is the best, or if the best would be evaluated on the seeds that selected it.
    """
    from quartet.ledger import Ledger
    from quartet.ledger.held_policy import held_policy
    from quartet.manager.evaluation import DURING

    with ExitStack() as stack:
        with closing(Ledger.view(run)) as ledger:
            policy = stack.enter_context(held_policy(ledger, which))
            chosen_on = ledger.evaluations.seeds(tasks.env.name, DURING) if which == "best" else set[int]()
        _refuse_seeds(run, chosen_on, tasks)
        yield Path(policy.path)


def _refuse_seeds(run: Path, chosen_on: set[int], tasks: "Recipe") -> None:
    """Raise `ConfigError` if the best policy would be evaluated on the seeds that selected it."""
    from quartet.errors import ConfigError

    if chosen_on & set(tasks.evaluation.reported_seeds):
        raise ConfigError(
            f"the best policy of {run} was chosen on seeds {min(chosen_on):,} to {max(chosen_on):,}: its success on "
            "them overestimates its success on other seeds",
            f"evaluate on other seeds: --set evaluation.first_seed={max(chosen_on) + 1}",
        )
    if chosen_on:
        say(f"policy chosen on selection seeds {min(chosen_on):,} to {max(chosen_on):,}", err=True)
