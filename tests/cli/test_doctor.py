"""The doctor finds what is missing, says how to mend it, and ends with the exit code of a machine that lacks it."""

import json
import socket
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from benchmarks.bandit import bandit_recipe
from quartet.cli import cli
from quartet.config import Engine
from quartet.doctor import Place, fonts, memory, packages, vllm
from quartet.doctor.base import Finding, Grade
from quartet.errors import SetupError
from quartet.native.library import native_library
from quartet.part import NoSettings
from quartet.recipe.file import load_recipe, to_toml
from quartet.registry import find, names


@pytest.fixture
def recipe_path(tmp_path, bandit_policy):
    path = tmp_path / "recipe.toml"
    path.write_text(to_toml(bandit_recipe(bandit_policy)))
    return path


def doctor(*arguments: object) -> tuple[int, dict]:
    done = CliRunner().invoke(cli, ["doctor", "--json", *map(str, arguments)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, json.loads(done.stdout)


def test_every_check_answers_and_what_is_not_ok_says_what_to_do(recipe_path, tmp_path):
    code, found = doctor("--recipe", recipe_path, "--runs", tmp_path)
    assert list(found["checks"]) == names("doctor")
    findings = [finding for findings in found["checks"].values() for finding in findings]
    assert all(finding["advice"] for finding in findings if finding["grade"] != "ok")
    assert code == (SetupError.exit_code if found["lacking"] else 0)


def test_a_recipe_for_text_needs_no_browser(recipe_path, monkeypatch):
    monkeypatch.setenv("QUARTET_CHROMIUM", "/no/such/browser")
    _, found = doctor("--recipe", recipe_path)
    assert found["checks"]["browser"] == found["checks"]["fonts"] == []


def test_missing_requirement_ends_with_the_setup_exit_code(monkeypatch):
    monkeypatch.setenv("QUARTET_CHROMIUM", "/no/such/browser")
    code, found = doctor()
    assert code == SetupError.exit_code and found["lacking"] >= 1
    (browser,) = found["checks"]["browser"]
    assert browser["grade"] == "lacks" and "/no/such/browser" in browser["what"] and browser["advice"]


def test_a_gpu_on_which_the_trainer_cannot_compile_is_named(recipe_path, monkeypatch):
    monkeypatch.setattr("quartet.policy.device.usable_device", lambda name, setting: torch.device("cuda"))
    monkeypatch.setattr("quartet.train.gpu.support.find_spec", lambda name: None)
    code, found = doctor("--recipe", recipe_path)
    assert code == SetupError.exit_code
    assert any("needs Triton" in finding["what"] for finding in found["checks"]["gpu"])


def test_a_server_that_does_not_answer_and_a_taken_port_are_named(recipe_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = [f"runtime.engine_port={port}", "ledger.url=postgresql://nobody@127.0.0.1:1/none"]
        code, found = doctor("--recipe", recipe_path, *(f"--set={setting}" for setting in settings))
    assert code == SetupError.exit_code
    assert f"runtime.engine_port = {port}" in found["checks"]["ports"][0]["what"]
    assert [one["grade"] for one in found["checks"]["ports"]] == ["lacks", "ok"]
    assert found["checks"]["database"][-1]["grade"] == "lacks"


def check(name: str, place: Place) -> list[Finding]:
    part: Any = find("doctor", name)
    return list(part(NoSettings()).examine(place))


def grades(findings) -> list[Grade]:
    return [finding.grade for finding in findings]


def test_little_disk_and_a_missing_folder(recipe_path, tmp_path):
    roomy = Place(runs=tmp_path / "not" / "there", recipe=load_recipe(recipe_path))
    assert Grade.LACKS not in grades(check("disk", roomy))
    full = load_recipe(recipe_path, ["disk.min_free_megabytes=1000000000"])
    assert grades(check("disk", Place(runs=tmp_path, recipe=full)))[0] is Grade.LACKS


def test_more_threads_than_cores(recipe_path, tmp_path):
    recipe = load_recipe(recipe_path, ["engine.threads=4000", "train.threads=3", "train.processes=2"])
    found = list(check("processors", Place(runs=tmp_path, recipe=recipe)))
    assert any(
        "engine.threads + train.threads * train.processes = 4006" in one.what and one.grade is Grade.NOTE
        for one in found
    )


def test_little_memory(tmp_path, monkeypatch):
    meminfo, limit = tmp_path / "meminfo", tmp_path / "max"
    meminfo.write_text("MemTotal:       16000000 kB\nMemAvailable:    1000000 kB\n")
    limit.write_text("500000000\n")
    monkeypatch.setattr(memory, "_MEMINFO", meminfo)
    monkeypatch.setattr(memory, "_LIMIT", limit)
    assert grades(check("memory", Place(runs=tmp_path))) == [Grade.LACKS, Grade.LACKS]
    meminfo.write_text("MemAvailable:    9000000 kB\n")
    limit.write_text("max\n")
    assert grades(check("memory", Place(runs=tmp_path))) == [Grade.OK]


def test_missing_and_old_packages_and_extras(tmp_path, monkeypatch):
    lines = [
        "click>=8",
        "no-such-package>=1",
        "rich<1",
        "also-missing; extra == 'parquet'",
        "quartet-rl[parquet]; extra == 'test'",
    ]
    monkeypatch.setattr(packages, "requires", lambda name: lines)
    needed, extra = check("packages", Place(runs=tmp_path))
    assert (
        needed.grade is Grade.LACKS and "no no-such-package, rich " in needed.what and "also-missing" not in needed.what
    )
    assert extra.grade is Grade.NOTE and "quartet-rl[parquet]" in extra.advice


def test_a_machine_without_a_compiler(tmp_path, monkeypatch):
    assert grades(check("compiler", Place(runs=tmp_path))) == [Grade.OK]
    monkeypatch.setenv("PATH", str(tmp_path))
    native_library.cache_clear()
    assert grades(check("compiler", Place(runs=tmp_path))) == [Grade.NOTE]
    native_library.cache_clear()


def test_a_machine_without_fonts(tmp_path, monkeypatch):
    program = tmp_path / "fc-list"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert grades(check("fonts", Place(runs=tmp_path))) == [Grade.LACKS]
    program.write_text("#!/bin/sh\necho DejaVu Sans\n")
    assert grades(check("fonts", Place(runs=tmp_path))) == [Grade.OK]


def test_a_program_that_does_not_end_is_a_finding(tmp_path, bandit_policy, monkeypatch):
    program = tmp_path / "fc-list"
    program.write_text("#!/bin/sh\nexec /bin/sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setattr(fonts, "TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(vllm, "TIMEOUT_SECONDS", 0.1)
    with monkeypatch.context() as of_fonts:
        of_fonts.setenv("PATH", str(tmp_path))
        (finding,) = check("fonts", Place(runs=tmp_path))
    assert finding.grade is Grade.NOTE and f"{program} did not end within 0.1 s" in finding.what
    recipe = bandit_recipe(bandit_policy)
    engine = Engine(name="vllm", python=str(program))
    (finding,) = check("vllm", Place(runs=tmp_path, recipe=recipe.model_copy(update={"engine": engine})))
    assert finding.grade is Grade.LACKS and "did not say within 0.1 s" in finding.what and finding.advice


def test_a_free_port_is_found(tmp_path):
    assert grades(check("ports", Place(runs=tmp_path))) == [Grade.OK]
