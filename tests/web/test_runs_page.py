"""The list of runs with their notes and tags, and the commands that make it."""

import json

import pytest
from click.testing import CliRunner

from quartet.cli import cli
from quartet.cli.parameters import RunsOf
from quartet.errors import ConfigError, LedgerError
from quartet.ledger import Ledger
from quartet.run.notes import Notes, read_notes, write_notes
from quartet.run.run_files import NAMES
from quartet.web.app import build_app
from tests.web.conftest import SCRIPT, ask, make_run


@pytest.fixture
def runs(tmp_path):
    for name in ("a", "b"):
        make_run(tmp_path / name).close()
    return tmp_path


def note(*arguments: object) -> str:
    result = CliRunner().invoke(cli, ["note", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_notes_and_tags_are_written_and_read_back(runs):
    assert note(runs / "a") == "no note\n" and not (runs / "a" / "notes.json").exists()
    note(runs / "a", "twice the rate", "--tag", "sweep", "--tag", "old")
    assert json.loads(note(runs / "a", "--untag", "old", "--tag", "sweep", "--json")) == {
        "note": "twice the rate",
        "tags": ["sweep"],
    }
    assert "notes.json" in NAMES, "a file of the run, which --fresh deletes"


@pytest.mark.parametrize(
    "content", [b"[1]", b'{"note": "\xff"}', b'{"note": ' + b"[" * 20_000, b'{"note": "", "of": "another program"}']
)
def test_a_file_that_is_no_note_is_named(runs, content):
    (runs / "a" / "notes.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"notes\.json holds no notes"):
        read_notes(runs / "a")


def test_notes_have_a_largest_size(runs):
    with pytest.raises(ConfigError, match="would exceed 65536 bytes"):
        write_notes(runs / "a", Notes(note="x" * 65_536))
    (runs / "a" / "notes.json").write_text(json.dumps({"note": "x" * 65_536}))
    with pytest.raises(ConfigError, match="would exceed 65536 bytes"):
        read_notes(runs / "a")


def test_a_folder_that_is_no_run_gets_no_note(tmp_path):
    result = CliRunner().invoke(cli, ["note", str(tmp_path), "mine"])
    assert isinstance(result.exception, ConfigError) or result.exit_code
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_runs_stands_for_its_runs(runs):
    (runs / "no-run").mkdir()
    assert RunsOf().convert(runs, None, None) == [runs / "a", runs / "b"]
    assert RunsOf().convert(runs / "a", None, None) == [runs / "a"]
    with pytest.raises(ConfigError, match="no run at"):
        RunsOf().convert(runs / "gone", None, None)


async def test_the_list_shows_every_run_with_its_note(runs):
    note(runs / "b", SCRIPT, "--tag", "sweep")
    (runs / "a" / "notes.json").write_text("{")
    async with ask(build_app([runs / "a", runs / "b"])) as client:
        page = await client.get("/")
    assert page.status_code == 200 and "/runs/a/run" in page.text and "/runs/b/run" in page.text
    assert SCRIPT not in page.text and "&lt;script&gt;" in page.text and ">sweep</span>" in page.text
    assert "holds no notes" in page.text, "a broken note does not hide the list"
    assert read_notes(runs / "b") == Notes(note=SCRIPT, tags=("sweep",))


async def test_a_run_that_cannot_be_read_does_not_hide_the_others(runs):
    older = Ledger.open(runs / "a")
    older.set_value("schema_version", 1)
    older.close()
    make_run(runs / "broken").close()
    (runs / "broken" / "config.toml").write_text("[")
    async with ask(build_app([runs / "a", runs / "b", runs / "broken"])) as client:
        page = await client.get("/")
    assert page.status_code == 200 and "/runs/b/run" in page.text
    assert "schema version 1" in page.text and "config.toml" in page.text
    async with ask(build_app([runs / "a", runs / "b"])) as client:
        assert "schema version 1" in (await client.get("/")).text, "not passed over for the one that can be read"
    with pytest.raises(LedgerError, match="schema version 1"):
        build_app([runs / "a"])


async def test_a_single_run_needs_no_list(runs):
    async with ask(build_app([runs / "a"])) as client:
        assert (await client.get("/")).headers["location"] == "/runs/a/run"
