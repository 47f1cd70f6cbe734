"""One style: what every command has in common, what documents say of it, and what a user meets first."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from quartet.cli import COMMANDS, cli, main
from quartet.cli.parameters import RunFolder, RunsOf
from quartet.errors import EXIT_CODES, InterruptedByUser, QuartetError
from quartet.ledger import Ledger
from quartet.telemetry.record import Recorder

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
WITHOUT_JSON = {"view", "env play", "env serve", "join", "completion", "deploy"}
"""The first four serve until they are stopped, the last two print a file."""


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")
        else:
            yield path + name, command


ALL = dict(commands(cli))


@pytest.mark.parametrize("name", ALL)
def test_every_command_is_documented_and_answers_scripts(name):
    command = ALL[name]
    assert command.help and command.get_short_help_str()
    flags = {option for parameter in command.params for option in parameter.opts}
    assert ("--json" in flags) == (name not in WITHOUT_JSON)
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help or isinstance(parameter.type, click.Choice) or parameter.show_default, parameter.name
        elif parameter.name in ("run", "runs"):
            assert isinstance(parameter.type, RunFolder | RunsOf)


def errors(kind: type[QuartetError] = QuartetError) -> Iterator[type[QuartetError]]:
    yield kind
    for special in kind.__subclasses__():
        yield from errors(special)


def test_every_exit_code_is_explained_in_code_help_and_documentation():
    assert set(EXIT_CODES) == {0} | {error.exit_code for error in errors()}
    shown = CliRunner().invoke(cli, ["--help"]).output
    table = dict(re.findall(r"^\| (\d+) \| (.+) \|$", PAGE, re.MULTILINE))
    assert {int(code): meaning for code, meaning in table.items()} == EXIT_CODES
    for code, meaning in EXIT_CODES.items():
        assert re.search(rf"^  {code} +{re.escape(meaning)}$", shown, re.MULTILINE)


def test_the_documentation_lists_the_commands_as_the_help_does():
    assert dict(re.findall(r"^\| `quartet (\w+)[^`]*` \| (.+) \|$", PAGE, re.MULTILINE)) == COMMANDS


def ended(monkeypatch, capsys, *arguments: str) -> tuple[object, str]:
    """Exit code and standard error of the whole program."""
    monkeypatch.setattr(sys, "argv", ["quartet", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["statu"], "No such command 'statu'. Did you mean 'status'?\n  -> `quartet --help` shows the usage"),
        (
            ["ledger", "chek"],
            "No such command 'chek'. Did you mean 'check'?\n  -> `quartet ledger --help` shows the usage",
        ),
        (["recipes", "lst"], "Did you mean 'list'?"),
        (["train"], "Missing argument 'RECIPE'.\n  -> `quartet train --help` shows the usage"),
        (["train", "miniwop"], "no shipped recipe has that name\n  -> Did you mean 'miniwob'?"),
        (["train", "recipe"], "no shipped recipe has that name\n  -> Known: "),
        (["train", "recipe.toml"], "no recipe at recipe.toml: the file does not exist\n  -> `quartet recipes` lists"),
        (
            ["train", "miniwob.toml"],
            "does not exist\n  -> Did you mean the shipped recipe 'miniwob'? `quartet recipes`",
        ),
        (["train", "recipes/miniwbo/recipe.toml"], "Did you mean the shipped recipe 'miniwob'?"),
        (["train", "."], "no recipe at .: the folder has no recipe.toml"),
        (["status", "nowhere"], "no run at nowhere\n  -> "),
        (["compare"], "Missing argument 'RUNS...'."),
        (["view", "--port", "99999", "."], "99999 is not in the range 0<=x<=65535"),
    ],
)
def test_wrong_usage_is_one_line_and_a_next_step(monkeypatch, capsys, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, shown = ended(monkeypatch, capsys, *arguments)
    assert code == 2
    assert shown.startswith("error: ") and message in shown and shown.count("\n") <= 3


def test_ctrl_c_has_its_own_exit_code(monkeypatch, capsys):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("quartet.recipe.description.describe", interrupted)
    code, shown = ended(monkeypatch, capsys, "recipes", "list")
    assert code == InterruptedByUser.exit_code and "stopped by the user" in shown


def test_a_near_run_is_suggested(monkeypatch, capsys, tmp_path):
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    (tmp_path / "runs" / "demo" / "config.toml").touch()
    monkeypatch.chdir(tmp_path)
    code, shown = ended(monkeypatch, capsys, "status", "runs/dmo")
    assert (code, "Did you mean 'runs/demo'?" in shown) == (2, True)


def test_a_folder_of_runs_and_a_run_without_its_recipe_are_named(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("first", "my-run"):
        Ledger.create(Path("runs", name)).close()
        Path("runs", name, "config.toml").touch()
    for command in ("status", "compare"):
        assert ended(monkeypatch, capsys, command, "runs") == (
            2,
            "error: runs is not a run\n  -> give a run inside it: first, my-run\n",
        )
    code, shown = ended(monkeypatch, capsys, "train", "runs/first", "--resume")
    assert code == 2 and "give its recipe: runs/first/config.toml" in shown
    Path("runs/first/config.toml").unlink()
    code, shown = ended(monkeypatch, capsys, "compare", "runs/first")
    assert code == 2 and "the run's runs/first/config.toml is missing" in shown


def test_a_file_that_the_system_refuses_is_named(monkeypatch, capsys, tmp_path):
    """`/sys` takes no new file, from nobody."""
    run = tmp_path / "run"
    with Recorder(run, "worker") as recorder, recorder.span("generate"):
        pass
    (run / "config.toml").touch()
    code, shown = ended(monkeypatch, capsys, "trace", str(run), "-o", "/sys/trace.json")
    assert (code, shown.splitlines()[0].startswith("error: no permission for /sys/trace.json")) == (4, True)


def test_a_run_without_its_recipe_still_has_a_status(monkeypatch, capsys, tmp_path):
    ledger = Ledger.create(tmp_path / "run")
    ledger.policies.register_initial("policy")
    ledger.close()
    code, shown = ended(monkeypatch, capsys, "status", str(tmp_path / "run"))
    assert code == 0 and "run/config.toml is missing" in shown.replace("\n", "") and "Traceback" not in shown


@pytest.mark.slow
def test_help_imports_no_library_of_weight():
    program = (
        "import sys\nfrom click.testing import CliRunner\nfrom quartet.cli import cli\n"
        "assert CliRunner().invoke(cli, ['--help']).exit_code == 0\n"
        "print({'torch', 'pydantic', 'sqlalchemy', 'rich', 'msgspec', 'matplotlib'} & set(sys.modules) or 'light')"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert finished.stdout.strip() == "light", finished.stdout + finished.stderr


def completed(monkeypatch, words: str, number: int) -> list[str]:
    """What bash is offered for word `number`."""
    for name, value in {"_QUARTET_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(number)}.items():
        monkeypatch.setenv(name, value)
    shown = CliRunner().invoke(cli, prog_name="quartet", complete_var="_QUARTET_COMPLETE").output
    return [line.partition(",")[2] for line in shown.splitlines()]


def test_completion_knows_commands_options_recipes_and_runs(monkeypatch, tmp_path):
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    (tmp_path / "runs" / "demo" / "config.toml").touch()
    monkeypatch.chdir(tmp_path)
    assert completed(monkeypatch, "quartet st", 1) == ["status", "stop"]
    assert completed(monkeypatch, "quartet ledger ch", 2) == ["check"]
    assert "--watch" in completed(monkeypatch, "quartet status --", 2)
    assert "miniwob" in completed(monkeypatch, "quartet train mini", 2)
    assert completed(monkeypatch, "quartet status ru", 2) == ["runs/demo"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_every_shell(shell):
    shown = CliRunner().invoke(cli, ["completion", shell])
    assert shown.exit_code == 0 and f"_QUARTET_COMPLETE={shell}_complete" in shown.output
