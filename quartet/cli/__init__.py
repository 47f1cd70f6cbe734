"""The `quartet` command. Each sub-command is a file that is imported when called, so that `--help` is fast."""

import sys
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from typing import NoReturn

import click

from quartet import __version__
from quartet.cli.group import LazyGroup
from quartet.errors import ConfigError, InterruptedByUser, QuartetError
from quartet.native.memory_allocator import use_huge_pages
from quartet.terminal.say import say

COMMANDS = {
    "train": "Train a policy with reinforcement learning.",
    "plan": "Forecast a run's throughput on given GPUs and desktops.",
    "sft": "Fine-tune a policy on demonstrations (the cold start).",
    "eval": "Evaluate a run or a policy on held-out tasks.",
    "export": "Write a run's policy as a model that other programs load.",
    "status": "Show what a run does and what it waits for.",
    "view": "Show live or finished runs in a browser.",
    "note": "Write a note and tags on a run.",
    "trace": "Write a run's timeline: a Chrome trace or a picture.",
    "sink": "Show a run in TensorBoard, W&B, Prometheus or OpenTelemetry.",
    "stop": "Stop a run cleanly.",
    "join": "Add an engine, environment host or worker to an active run.",
    "deploy": "Write a recipe's placement as manifests for Kubernetes or SkyPilot.",
    "compare": "Compare runs: success, cost, time to a target.",
    "report": "Write a page and pictures about runs.",
    "ledger": "Verify, audit, upgrade or tidy a run's ledger, export from it, import into it.",
    "parts": "List the parts that a recipe can choose, with their settings.",
    "recipes": "List and describe the shipped recipes.",
    "env": "Make, check, compare, play and list environments.",
    "model": "Download, import and list models.",
    "init": "Write a commented recipe for an environment and a model.",
    "doctor": "Check this machine for what a run needs.",
    "completion": "Print the completion script of a shell.",
}

NEAR = 0.75
"""Minimum similarity of a suggested option to an unknown one."""


@click.group(
    cls=LazyGroup,
    package="quartet.cli",
    described=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="quartet")
def cli() -> None:
    """Quartet trains language and GUI agents with reinforcement learning.

    To begin: `quartet doctor` checks the machine, `quartet recipes` lists the recipes that ship.
    """


def main() -> None:
    """Run the command. Show expected errors with the next step and without a traceback."""
    sys.excepthook = _show_bug
    use_huge_pages()
    sys.path.append(str(Path.cwd()))  # a recipe may name a part in a local file, `module:Class`
    try:
        sys.exit(cli.main(prog_name="quartet", standalone_mode=False) or 0)
    except QuartetError as error:
        _fail(error)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _fail(_wrong_usage(error))
    except click.Abort:
        _fail(InterruptedByUser("stopped by the user"))
    except OSError as error:
        from quartet.files.disk import disk_error

        if (told := disk_error(error)) is None:
            raise
        _fail(told)


def _show_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of an unexpected error, with control characters escaped: it may quote a model or a page."""
    import traceback

    say("".join(traceback.format_exception(kind, error, trace)).rstrip(), err=True)


def _wrong_usage(error: click.ClickException) -> ConfigError:
    """Convert an error of click's parser to a `ConfigError`."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    message = _unknown_option(error) if isinstance(error, click.NoSuchOption) else error.format_message()
    advice = f"`{context.command_path if context else 'quartet'} --help` shows the usage"
    unknown = isinstance(error, click.NoSuchOption) or type(error) is click.UsageError  # or an argument too many
    if unknown and context and any(param.name == "overrides" for param in context.command.params):
        advice += "; settings of the recipe are set with --set, for instance --set train.learning_rate=1e-5"
    return ConfigError(message, advice)


def _unknown_option(error: click.NoSuchOption) -> str:
    """Return the message with the most similar options. Click's own suggestion is not used: for every short option it
    is `--help`."""
    close = get_close_matches(error.option_name, error.possibilities or (), cutoff=NEAR)
    return error.message + (f" Did you mean {' or '.join(map(repr, close))}?" if close else "")


def _fail(error: QuartetError) -> NoReturn:
    say(f"error: {error}", fg="red", err=True)
    sys.exit(error.exit_code)
