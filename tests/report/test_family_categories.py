"""Success is reported for each category of the environment's families, beside the total."""

from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from quartet.cli.eval import result_lines
from quartet.config import Recipe
from quartet.env import family_categories
from quartet.ledger import Ledger
from quartet.report.summary import build_summary, evaluation_summary
from quartet.report.summary_table import summary_table
from quartet.types import Purpose, RolloutPlan, Task
from tests.ledger.samples import finish, recipe

FAMILIES = ["write_note", "move_file", "play_music"]
"""Two feasible families and an infeasible one."""


def desktop(families: list[str]) -> Recipe:
    return recipe(env={"name": "desktop", "families": families})


@pytest.fixture
def ledger(tmp_path: Path):
    with closing(Ledger.create(tmp_path)) as ledger:
        ledger.policies.register_initial("policies/v000000")
        yield ledger


def evaluate(ledger: Ledger, tag: str, solved: str) -> None:
    """Record an evaluation in which only one family is solved."""
    tasks = [Task(env="desktop", family=family, seed=0) for family in FAMILIES]
    plans = [RolloutPlan(task=task, num_rollouts=1, max_turns=1, purpose=Purpose.EVAL, tag=tag) for task in tasks]
    ledger.evaluations.admit(tag, plans)
    for lease in ledger.rollouts.claim("w", len(tasks), 60):
        finish(ledger, lease, reward=float(lease.task.family == solved))


def test_the_summary_of_a_run_reports_infeasible_families_apart(ledger: Ledger) -> None:
    evaluate(ledger, "before/greedy", "play_music")
    evaluate(ledger, "after 0/greedy", "write_note")
    summary = build_summary(desktop(FAMILIES), ledger, wall_seconds=1.0, control=None)
    assert summary["success_before"] == summary["success_after"] == pytest.approx(1 / 3)
    categories = summary["success_by_category"]
    assert categories["feasible"]["before"] == 0.0 and categories["feasible"]["after"] == 0.5
    assert categories["infeasible"]["before"] == 1.0 and categories["infeasible"]["after"] == 0.0
    assert categories["feasible"]["after_sampled"] is None
    console = Console(width=200, record=True)
    console.print(summary_table(summary))
    rows = [" ".join(line.replace("│", "").split()) for line in console.export_text().splitlines()]
    assert "feasible, greedy 0 % 50 %" in rows and "infeasible, greedy 100 % 0 %" in rows


def test_an_evaluation_reports_infeasible_families_apart(ledger: Ledger) -> None:
    evaluate(ledger, "eval/greedy", "play_music")
    evaluate(ledger, "eval/sampled", "write_note")
    summary = evaluation_summary(desktop(FAMILIES), ledger, Path("policy"))
    assert summary["success_by_category"] == {
        "feasible": {"greedy": 0.0, "sampled": 0.5},
        "infeasible": {"greedy": 1.0, "sampled": 0.0},
    }
    lines = [" ".join(line.split()) for line in result_lines(summary, Path("out"))]
    assert "all feasible greedy 0 % sampled 50 %" in lines
    assert "all infeasible greedy 100 % sampled 0 %" in lines


@pytest.mark.parametrize("families", [["write_note", "move_file"], ["play_music"]])
def test_a_category_of_all_or_no_families_is_left_out(families: list[str]) -> None:
    assert family_categories(desktop(families).env) == {}


def test_other_environments_have_no_categories() -> None:
    assert family_categories(recipe().env) == {}
