"""Desktop tasks as data: what files may say, what the seed draws, and how an episode is judged, without a desktop."""

import gzip
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from quartet.env.check.experts import FamilyCheck
from quartet.env.desktop.expert import ScriptedExpert
from quartet.env.desktop.task.evaluator import Evaluator
from quartet.env.desktop.task.family import SHIPPED, family_files, folders, load_task
from quartet.env.desktop.task.getter import Cell, Entries, File, Mode, Setting
from quartet.env.desktop.task.metric import METRICS
from quartet.errors import ConfigError, ExpertError
from quartet.types import Observation


def home(folder: Path) -> Any:
    return SimpleNamespace(home=folder)


def evaluator(conj: str, *checks: tuple[str, str, Any]) -> Evaluator:
    found = [
        {"result": {"get": "file", "path": path}, "metric": metric, "expected": wanted}
        for path, metric, wanted in checks
    ]
    return msgspec.convert({"conj": conj, "checks": found}, Evaluator)


@pytest.mark.parametrize(
    ("metric", "result", "expected", "score"),
    [
        ("equals", "a", "a", 1),
        ("equals", None, "a", 0),
        ("differs", "b", "a", 1),
        ("differs", None, "a", 0),
        ("contains", ["a", "b"], "b", 1),
        ("contains", None, "b", 0),
        ("lacks", ["a"], "b", 1),
        ("lacks", None, "b", 0),
        ("any_contains", ["abc"], "b", 1),
        ("none_contains", ["abc"], "b", 0),
        ("none_contains", None, "b", 0),
        ("matches", "A B", "[A-Z ]+", 1),
        ("matches", "A b", "[A-Z ]+", 0),
        ("number", "12.0", "12", 1),
        ("number", "nan", "nan", 0),
        ("number", None, "12", 0),
        ("same_lines", "a\nx", "a\nb", 0.5),
        ("same_lines", "a\nb\nc", "a\nb", 0),
        ("same_lines", None, "a", 0),
    ],
)
def test_a_metric_scores(metric: str, result: Any, expected: Any, score: float) -> None:
    assert METRICS[metric](result, expected) == score


def test_and_is_the_mean_or_0_and_or_is_the_maximum(tmp_path: Path) -> None:
    (tmp_path / "half").write_text("a\nx")
    (tmp_path / "whole").write_text("a")
    half, whole, wrong = ("half", "same_lines", "a\nb"), ("whole", "equals", "a"), ("none", "equals", "a")
    assert evaluator("and", half, whole).score(home(tmp_path)) == 0.75
    assert evaluator("and", half, whole, wrong).score(home(tmp_path)) == 0
    assert evaluator("or", wrong, half).score(home(tmp_path)) == 0.5
    assert evaluator("or", wrong).score(home(tmp_path)) == 0
    with pytest.raises(ConfigError, match="no checks"):
        Evaluator().score(home(tmp_path))


SHEET = """<gnm:Workbook xmlns:gnm="http://www.gnumeric.org/v10.dtd"><gnm:Sheets><gnm:Sheet><gnm:Cells>
<gnm:Cell Row="2" Col="1">42</gnm:Cell><gnm:Cell Row="2" Col="26">43</gnm:Cell>
<gnm:Cell Row="9" Col="703">44</gnm:Cell></gnm:Cells></gnm:Sheet></gnm:Sheets></gnm:Workbook>"""


def test_getters_read_files_of_the_home_only(tmp_path: Path) -> None:
    desk, outside = home(tmp_path / "home"), tmp_path / "secret"
    desk.home.mkdir()
    outside.write_text("secret")
    (desk.home / "link").symlink_to(outside)
    (desk.home / "a.gnumeric").write_bytes(gzip.compress(SHEET.encode()))
    (desk.home / "bomb.gnumeric").write_bytes(gzip.compress(bytes(64 << 20)))
    (desk.home / "keys").write_text("[view]\nwrap=true\n")
    (desk.home / "keys").chmod(0o640)
    assert [File(path).read(desk) for path in ("link", "../secret", "none", ".")] == [None] * 4
    assert File("keys").read(desk) == "[view]\nwrap=true"
    assert Entries().read(desk) == ["a.gnumeric", "bomb.gnumeric", "keys", "link"]
    assert Entries("..").read(desk) is None
    assert Mode("keys").read(desk) == "rw-r-----"
    assert Setting(path="keys", section="view", key="wrap").read(desk) == "true"
    assert Setting(path="a.gnumeric", section="view", key="wrap").read(desk) is None
    assert [Cell("a.gnumeric", cell).read(desk) for cell in ("B3", "A1")] == ["42", ""]
    assert [Cell("a.gnumeric", cell).read(desk) for cell in ("AA3", "aa3", "AAB10", "AA1")] == ["43", "43", "44", ""]
    assert [Cell(path, "B3").read(desk) for path in ("bomb.gnumeric", "keys", "none")] == [None] * 3


@contextmanager
def as_a_user() -> Iterator[None]:
    """Drop the rights of root, for which permissions do not apply."""
    user = os.geteuid()
    os.seteuid(user or 65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_what_a_policy_has_made_unreadable_is_a_missing_result() -> None:
    with TemporaryDirectory() as folder:
        desk = home(Path(folder))
        desk.home.chmod(0o755)
        for name in ("open", "shut"):
            (desk.home / name).mkdir()
            (desk.home / name / "notes.txt").write_text("x")
        (desk.home / "notes.txt").write_text("x")
        (desk.home / "long").symlink_to("x" * 300)
        (desk.home / "loop").symlink_to("loop")
        (desk.home / "notes.txt").chmod(0)
        (desk.home / "shut").chmod(0)
        with as_a_user():
            assert File("open/notes.txt").read(desk) == "x"
            paths = ("notes.txt", "shut/notes.txt", "long", "long/x", "loop", "open/notes.txt/x")
            assert [File(path).read(desk) for path in paths] == [None] * 6
            assert Entries("open").read(desk) == ["notes.txt"]
            assert [Entries(path).read(desk) for path in ("shut", "long", "notes.txt")] == [None] * 3
            assert [Mode(path).read(desk) for path in ("notes.txt", "shut/notes.txt", "long")] == ["-" * 9, None, None]


def test_a_file_that_the_environment_cannot_open_is_no_missing_result(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            File("notes.txt").read(home(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize("address", ["", "3", "B", "B0", "3B", "B-1", "B 3", "B3:C4", "ABCD1", "ß1", "B٣"])
def test_a_malformed_address_of_a_cell_is_an_error_of_the_file(tmp_path: Path, address: str) -> None:
    cell = f'{{get = "cell", path = "a.gnumeric", cell = "{address}"}}'
    (tmp_path / "sums.toml").write_text(FAMILY.replace('{get = "file", path = "{text}.txt"}', cell))
    with pytest.raises(ConfigError, match=r"(?s)sums\.toml.*no address of a cell"):
        load_task(tmp_path / "sums.toml", 0)


@pytest.mark.parametrize(
    "content",
    [
        SHEET.replace('Col="1"', 'Col="one"'),
        SHEET.replace('Row="2"', 'Row=""'),
        f'<?xml version="1.0" encoding="nope"?>{SHEET}',
        f'<?xml version="1.0" encoding="utf-32"?>{SHEET}',
    ],
)
def test_a_sheet_that_a_policy_has_written_wrongly_is_a_missing_result(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.gnumeric").write_text(content)
    assert Cell("a.gnumeric", "B3").read(home(tmp_path)) is None


FAMILY = """
app = "mousepad"
instruction = "{a} and {b} is {c}, {text}"
max_turns = 3
[values]
a = {from = 1, to = 9}
b = {from = 1, to = 9}
c = {sum = ["a", "b"]}
d = {product = ["a", "c"]}
e = {difference = ["a", "b"]}
f = {number = "{a}{b}"}
g = {upper = "x{a}{b}"}
text = ["x", "y"]
[[evaluator.checks]]
result = {get = "file", path = "{text}.txt"}
metric = "equals"
expected = "{c} {d} {e} {f} {g} {unknown}"
"""


def test_the_seed_draws_the_values(tmp_path: Path) -> None:
    (tmp_path / "sums.toml").write_text(FAMILY)
    (file,) = family_files([tmp_path]).values()
    drawn = {load_task(file, seed).instruction for seed in range(50)}
    assert len(drawn) > 20 and load_task(file, 7) == load_task(file, 7)
    task = load_task(file, 7)
    a, b = int(task.instruction[0]), int(task.instruction[6])
    assert task.evaluator.checks[0].expected == f"{a + b} {a * (a + b)} {a - b} {a}{b} X{a}{b} {{unknown}}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max_turns = 3", ""),
        ("max_turns = 3", "max_turns = 3\nmaximum = 4"),
        ('get = "file"', 'get = "page"'),
        ('metric = "equals"', 'metric = "equal"'),
        ('["x", "y"]', "[]"),
        ('{sum = ["a", "b"]}', '{sum = ["a", "z"]}'),
        ("[values]", "[values"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, old: str, new: str) -> None:
    (tmp_path / "sums.toml").write_text(FAMILY.replace(old, new))
    with pytest.raises(ConfigError, match=r"sums\.toml"):
        load_task(tmp_path / "sums.toml", 0)


def test_own_families_are_added_and_replace_shipped_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no task families"):
        family_files(folders(str(tmp_path)))
    for name in ("sums", "write_note"):
        (tmp_path / f"{name}.toml").write_text(FAMILY)
    found = family_files(folders(str(tmp_path)))
    assert found["write_note"].parent == found["sums"].parent == tmp_path
    assert found["move_file"].parent == SHIPPED


def test_a_family_whose_wrong_solution_is_rewarded_does_not_pass() -> None:
    assert FamilyCheck(family="a", seed=0, expert=1.0).passed
    assert not FamilyCheck(family="a", seed=0, expert=1.0, wrong=0.5).passed


def test_every_shipped_family_has_an_expert_and_checks_or_is_infeasible() -> None:
    tasks = [load_task(file, seed) for file in family_files([SHIPPED]).values() for seed in range(5)]
    assert len(tasks) >= 5 * 20
    assert all(task.expert and task.infeasible == (not task.evaluator.checks) for task in tasks)
    assert {task.app for task in tasks} == {"mousepad", "galculator", "pcmanfm", "gnumeric", "lxterminal"}
    assert not [text for task in tasks for text in (task.instruction, *task.expert, *task.wrong) if "{" in text]


def test_an_expert_names_elements_by_kind_and_label() -> None:
    lines = 'button * [3]\nwindow a.txt - Mousepad [1]\ntextarea 1st [2] = "x [9]"'
    expert = ScriptedExpert(
        ["click <button *>", "click <window …Mousepad>", 'type <textarea 1st> "a < b > c"', "click <menu File>"]
    )
    seen = Observation(goal="", text=lines)
    assert expert(seen) == "click * [3]"
    assert expert(seen) == "click a.txt - Mousepad [1]"
    assert expert(seen) == 'type 1st [2] "a < b > c"'
    with pytest.raises(ExpertError, match="no element 'menu File'"):
        expert(seen)
    assert expert(seen) == "done"
