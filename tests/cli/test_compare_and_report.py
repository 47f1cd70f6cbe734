"""Comparing and reporting real runs: grouped by method, paired by seed, escaped, and without a link to anywhere."""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from quartet.cli import cli
from quartet.errors import ConfigError
from quartet.ledger import Ledger
from quartet.report.comparison.intervals import interval, student_t
from quartet.report.comparison.results import read_result

pytestmark = pytest.mark.slow


def invoke(*arguments: object) -> str:
    result = CliRunner().invoke(cli, list(map(str, arguments)), catch_exceptions=False, env={"COLUMNS": "100"})
    assert result.exit_code == 0, result.output
    return result.stdout


def test_an_interval_is_students(benchmark_t=((1, 12.706), (10, 2.228), (30, 2.0423), (100, 1.9840))):
    for degrees, value in benchmark_t:
        assert student_t(degrees) == pytest.approx(value, abs=1e-3)
    found = interval([1.0, 2.0, 3.0])
    assert (found.mean, found.n) == (2.0, 3)
    assert found.high == pytest.approx(2 + 4.303 / 3**0.5)
    assert interval([5.0]).low is None


def test_a_result_agrees_with_the_summary_of_the_run(small_runs):
    summary, result = json.loads((small_runs[0] / "summary.json").read_text()), read_result(small_runs[0])
    assert result.success_before == summary["success_before"]
    assert result.success == summary["success_after"]
    assert result.success_sampled == summary["success_after_sampled"]
    assert (result.rollouts, result.train_steps) == (summary["rollouts_finished"], summary["train_steps"])
    assert result.train_seconds == pytest.approx(summary["train_seconds"], abs=0.06)
    assert [point.train_step for point in result.curve] == [0, 2]
    assert result.curve[0].rollouts == 0 and result.curve[-1].rollouts == result.rollouts


def test_runs_are_grouped_by_what_they_train_and_paired_by_seed(small_runs):
    slow0, slow1, fast0, fast1 = small_runs
    found = json.loads(invoke("compare", fast1, slow0, fast0, slow1, "--json"))
    fast, slow = found["groups"]
    assert (fast["seeds"], slow["seeds"]) == ([1, 0], [0, 1])
    assert fast["label"] == "bandit (train.learning_rate = 0.005)"
    assert found["settings"] == {"train.learning_rate": [0.005, 0.001]}
    results = {run: read_result(run) for run in small_runs}
    gains = [results[slow0].generated_tokens - results[fast0].generated_tokens]
    gains.append(results[slow1].generated_tokens - results[fast1].generated_tokens)
    assert slow["minus_first"]["generated_tokens"]["mean"] == sum(gains) / 2
    assert fast["minus_first"] is None and slow["train_steps"]["mean"] == 2


def test_the_target_is_the_first_evaluation_that_reached_it(small_runs):
    result = read_result(small_runs[0])
    before = result.success_before
    assert before is not None
    point = result.reached(before)
    assert point is not None and point.seconds == 0 and point.rollouts == 0
    assert result.reached(1.01) is None
    shown = invoke("compare", *small_runs, "--target", "1")
    assert "to 100 %: rollouts" in shown and "train.learning_rate" in shown
    (alone,) = json.loads(invoke("compare", small_runs[0], "--json"))["groups"]
    assert alone["success"]["low"] is None and alone["label"] == "slow-0"
    assert "with that success, as asked for" in shown
    assert "every run reached; --target names another" in invoke("compare", *small_runs)


def changed(run: Path, copy: Path, old: str, new: str) -> Path:
    """A copy of a run with another recipe."""
    shutil.copytree(run, copy)
    text = (copy / "config.toml").read_text()
    assert re.search(old, text, flags=re.MULTILINE)
    (copy / "config.toml").write_text(re.sub(old, new, text, count=1, flags=re.MULTILINE))
    return copy


@pytest.mark.parametrize("command", ["compare", "report"])
def test_a_run_beside_its_copy_is_refused(small_runs, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(small_runs[0], tmp_path / "copy")
    for twin in (small_runs[0], tmp_path / "copy"):
        refused = CliRunner().invoke(cli, [command, str(small_runs[0]), str(twin)])
        assert isinstance(refused.exception, ConfigError) and "would count as two seeds" in str(refused.exception)
    # Gone on with under a higher limit the copy is a method of its own.
    further = changed(small_runs[0], tmp_path / "further", "^max_train_steps = .*", "max_train_steps = 9")
    assert len(json.loads(invoke("compare", small_runs[0], further, "--json"))["groups"]) == 2


def test_incomparable_runs_are_reported(small_runs, tmp_path):
    slow0, slow1, _, fast1 = small_runs
    assert json.loads(invoke("compare", *small_runs, "--json"))["cautions"] == []
    same_seed = changed(slow1, tmp_path / "same_seed", "^seed = 1", "seed = 0")
    (caution,) = json.loads(invoke("compare", slow0, same_seed, "--json"))["cautions"]
    assert "2 runs have the seed 0" in caution
    other_tasks = changed(slow0, tmp_path / "other_tasks", "^first_seed = .*", "first_seed = 2000000")
    (caution,) = json.loads(invoke("compare", slow0, other_tasks, "--json"))["cautions"]
    assert caution.startswith("NOT COMPARABLE") and "4 seeds each from 2,000,000" in caution
    assert invoke("compare", slow0, other_tasks).startswith(caution)
    (caution,) = json.loads(invoke("compare", slow0, fast1, "--json"))["cautions"]
    assert "fast-1 and slow-0 have no seed in common" in caution
    assert invoke("compare", slow0, fast1).startswith(caution)
    invoke("report", slow0, other_tasks, "--output", tmp_path / "report")
    assert "NOT COMPARABLE" in (tmp_path / "report" / "report.html").read_text()


def test_a_target_that_the_initial_policy_met_took_no_time(small_runs):
    assert "to 0 %: s on the clock  at the start" in re.sub(
        " +", lambda gap: gap[0][:2], invoke("compare", *small_runs[:2], "--target", "0")
    )
    (alone,) = json.loads(invoke("compare", small_runs[0], "--target", "0", "--json"))["groups"]
    assert alone["reached_target_at_start"] == 1


@pytest.mark.parametrize("place", ["file/inside", "/proc/none", "folder"])
def test_an_output_that_cannot_be_is_wrong_usage(small_runs, bandit_policy, tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "folder" / "report.html").mkdir(parents=True)
    (tmp_path / "folder" / "x.json").mkdir()
    (tmp_path / "folder" / "recipe.toml").mkdir()
    run = small_runs[0]
    for arguments in (
        ("report", run, "--output", place),
        ("trace", run, "--output", f"{place}/x.json"),
        ("ledger", "export", run, "--format", "chat", "--any-outcome", "--output", f"{place}/x.json"),
        ("init", place, "--env", "bandit", "--model", bandit_policy, "--force"),
    ):
        refused = CliRunner().invoke(cli, list(map(str, arguments)))
        assert isinstance(refused.exception, ConfigError) or refused.exit_code == 2, (arguments, refused.exception)
    assert (tmp_path / "file").read_bytes() == b""


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


SCRIPT = "<script src=x>alert('x')"


@pytest.fixture
def hostile_run(small_runs, tmp_path) -> Path:
    """A run whose name and recipe carry markup."""
    run = tmp_path / "<img src=x onerror=alert(1)>"
    shutil.copytree(small_runs[0], run)
    config = run / "config.toml"
    config.write_text(re.sub(r'^name = ".*"', f'name = "{SCRIPT}"', config.read_text(), count=1, flags=re.MULTILINE))
    return run


def test_a_report_is_one_page_that_holds_all_it_shows(small_runs, hostile_run, tmp_path):
    shown = invoke("report", *small_runs[1:], hostile_run, "--output", tmp_path / "report", "--json")
    files = [Path(file) for file in json.loads(shown)["files"]]
    page, source = Page(), (tmp_path / "report" / "report.html").read_text()
    page.feed(source)
    for tag, attributes in page.tags:
        assert tag not in ("script", "link", "iframe", "object", "a"), tag
        assert not any(name.startswith("on") for name in attributes)
        assert all(
            value is None or value.startswith("data:") for name, value in attributes.items() if name in ("src", "href")
        )
    images = [attributes for tag, attributes in page.tags if tag == "img"]
    assert len(images) == len(files) - 1 and all(image["alt"] for image in images)
    assert SCRIPT in page.text and SCRIPT not in source
    assert "default-src 'none'" in source and "url(" not in source
    for file in files[1:]:
        assert file.read_bytes().startswith(b"\x89PNG")


def test_an_export_does_not_even_open_the_run_for_writing(small_runs, tmp_path, monkeypatch):
    """So it works on a read-only disk."""
    monkeypatch.setattr(Ledger, "open", lambda run_dir: pytest.fail(f"{run_dir} was opened for writing"))
    invoke("ledger", "export", small_runs[0], "--format", "jsonl", "--output", tmp_path / "x.jsonl")
    before = {path: path.stat().st_mtime_ns for path in small_runs[0].rglob("*")}
    invoke("report", small_runs[0], "--output", tmp_path)
    invoke("compare", small_runs[0])
    invoke("status", small_runs[0])
    invoke("view", small_runs[0], "--terminal")
    assert {path: path.stat().st_mtime_ns for path in small_runs[0].rglob("*")} == before
