"""Tables and figures of the documentation are what the raw results say."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from benchmarks import record, tables
from benchmarks.against_trl import results_file
from benchmarks.lag.arms import SYNCHRONOUS
from benchmarks.lag.run import Learned
from benchmarks.modes.figures import Figures
from benchmarks.raw_results import RawResults
from benchmarks.trl_contenders.base import Run, TrainStep

PAGE = """# Schedules

<!-- results: modes.jsonl table -->

| mode | old |
|---|---|

<!-- /results -->

Rollout-wise over the other: **<!-- results: modes.jsonl throughput_ratio -->9.99<!-- /results -->**, by hand: 3.
"""


def run(**changed: float) -> Figures:
    figures = {
        "actions_per_minute": 1000.0,
        "rollouts_per_second": 1.0,
        "generated_tokens_per_second": 4000.0,
        "environment_utilisation": 0.34,
        "engine_utilisation": 0.5,
        "trainer_utilisation": 0.25,
        "seconds_to_train_steps": 25.5,
        "length_ratio": 1.0,
    }
    return Figures(lag_histogram={"0": 3, "2": 1}, **(figures | changed))


@pytest.fixture
def root(tmp_path) -> Path:
    """Two repetitions, of which one mode has a third; a page that says something else."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text(PAGE)
    raw = RawResults(tmp_path / "modes.jsonl", Figures)
    for seed, speeds in ((1, (1000.0, 2000.0)), (2, (1100.0, 3300.0))):
        for mode, speed in zip(("batch_synchronous", "rollout_wise"), speeds, strict=True):
            raw.add({"mode": mode, "sessions": 8, "seed": seed}, run(actions_per_minute=speed))
    raw.add({"mode": "rollout_wise", "sessions": 8, "seed": 3}, run(actions_per_minute=1e6))
    return tmp_path


def invoke(root: Path, option: str) -> Result:
    return CliRunner().invoke(tables.main, [option, "--root", str(root), "--results", str(root)])


def test_the_documentation_of_this_repository_says_what_its_raw_results_say():
    outcome = CliRunner().invoke(tables.main, ["--check"])
    assert outcome.exit_code == 0, outcome.output


def test_a_page_that_differs_is_found_and_renewed(root):
    page = root / "docs" / "page.md"
    found = invoke(root, "--check")
    assert found.exit_code == 1
    assert "docs/page.md" in found.output and "9.99" in found.output
    assert page.read_text() == PAGE, "a check writes nothing"
    assert invoke(root, "--write").exit_code == 0
    assert invoke(root, "--check").exit_code == 0
    renewed = page.read_text()
    assert "| batch_synchronous | 1,050 | 34 % | 50 % | 25 % | 25.5 | 0.50 |" in renewed
    assert "| rollout_wise | 2,650 | 34 % | 50 % | 25 % | 25.5 | 0.50 |" in renewed
    number = "<!-- results: modes.jsonl throughput_ratio -->2.50 (2.00 to 3.00)<!-- /results -->"
    assert f"**{number}**, by hand: 3." in renewed


def test_a_single_changed_digit_is_found(root):
    invoke(root, "--write")
    page = root / "docs" / "page.md"
    page.write_text(page.read_text().replace("2,650", "2,651"))
    assert invoke(root, "--check").exit_code == 1


@pytest.mark.parametrize(
    ("mark", "told"),
    [
        ("lag.jsonl objectives", "lag.jsonl, which does not exist"),
        ("train_step.jsonl seconds", "train_step.jsonl, which does not exist"),
        ("modes.jsonl beauty", "has no view 'beauty'"),
    ],
)
def test_a_table_without_raw_results_is_refused(root, mark, told):
    (root / "README.md").write_text(f"<!-- results: {mark} -->1<!-- /results -->")
    outcome = invoke(root, "--check")
    assert outcome.exit_code == 1
    assert told in outcome.output


def test_a_number_of_a_recorded_benchmark_is_its_median_over_the_lines(root):
    raw = RawResults(root / "ledger.jsonl", dict[str, Any])
    for appends in (4000.0, 6000.0, 5000.4):
        raw.add({}, {"appends": {"per_second": appends}})
    page = root / "README.md"
    page.write_text("<!-- results: ledger.jsonl appends.per_second:,.0f -->1<!-- /results -->")
    invoke(root, "--write")
    assert ">5,000<" in page.read_text()
    page.write_text("<!-- results: ledger.jsonl appends.per_minute -->1<!-- /results -->")
    assert "has no number 'appends.per_minute': appends" in invoke(root, "--check").output


@pytest.mark.slow
def test_a_benchmark_that_prints_json_is_recorded(tmp_path):
    arguments = ["--times", "2", "--results", str(tmp_path), "recording", "--records", "200"]
    outcome = CliRunner().invoke(record.main, arguments)
    assert outcome.exit_code == 0, outcome.output
    lines = (tmp_path / "recording.jsonl").read_text().splitlines()
    assert len(lines) == 2
    assert '"command":"python -m benchmarks.recording --records 200 --json"' in lines[0]


def test_a_line_says_how_it_was_taken(root):
    (line, *_) = (root / "modes.jsonl").read_text().splitlines()
    for part in ('"commit":"', '"command":"python -m benchmarks.', '"machine":"', '"load_average_1min":'):
        assert part in line


def test_the_table_of_lag_is_over_the_seeds_that_all_arms_have(tmp_path):
    raw = RawResults(tmp_path / "lag.jsonl", Learned)
    for arm, max_lag, ends in (("decoupled, max_lag 4", 4, (0.71, 0.73, 0.0)), (SYNCHRONOUS, 0, (0.7, 0.72))):
        for seed, end in enumerate(ends):
            learned = Learned(curve=[end] * 10, lag_histogram={max_lag: 8}, cpu_seconds=1.0)
            raw.add({"arm": arm, "objective": "decoupled", "max_lag": max_lag, "seed": seed}, learned)
    _, _, synchronous, lagging = tables.views_of("lag")["objectives"](raw.file).splitlines()
    assert synchronous.startswith("| 0 | decoupled | 0.00 | 71.0 % | – |")
    assert lagging.startswith("| 4 | decoupled | 4.00 | 72.0 % | +1.0 (+1.0 to +1.0) |")


def add_runs_against_trl(file: Path, *, delay: int) -> None:
    """Begin the experiment in this file, and add one run of each contender, with a rate of its own."""
    raw = RawResults(file, Run)
    raw.begin()
    for name, seconds, share in (("environment_factory", 8.0, 1.0), ("rollout_func", 4.0, 1.0), ("quartet", 2.0, 0.5)):
        steps = [
            TrainStep(ended=n * seconds, reward=0.5, generated_tokens=100.0, trained_share=share) for n in range(3)
        ]
        raw.add({"contender": name, "delay": delay, "repetition": 0, "warm_up_steps": 1}, Run(steps))


def test_the_table_against_trl_compares_trained_rollouts(tmp_path):
    add_runs_against_trl(file := results_file(tmp_path, None), delay=50)
    *_, line = tables.views_of("against_trl")["table"](file).splitlines()
    assert line == "| 50 | 2.00 | 4.00 | 4.00 | 8.00 | 2.0 | 1.0 |"


def test_results_of_another_model_replace_and_show_only_their_own(tmp_path):
    add_runs_against_trl(results_file(tmp_path, None), delay=50)
    add_runs_against_trl(results_file(tmp_path, Path("models/qwen2.5-0.5b")), delay=200)
    for name, shown in (("against_trl", "| 50 |"), ("against_trl.qwen2.5-0.5b", "| 200 |")):
        page = tables.renew(f"<!-- results: {name}.jsonl table --><!-- /results -->", tmp_path)
        assert page.splitlines()[4].startswith(shown)
