"""The `quartet` command. Sub-commands live in files of their own and are imported when called: `--help` is instant."""

import importlib
import sys
from typing import NoReturn

import click

from quartet import __version__
from quartet.errors import QuartetError, nearest

COMMANDS = {
    "train": "Train a policy with reinforcement learning.",
    "sft": "Fine-tune a policy on demonstrations (the cold start).",
    "eval": "Evaluate a run or a policy on held-out tasks.",
    "status": "Show what a run is doing and what it waits for.",
    "stop": "Stop a run cleanly.",
    "ledger": "Verify, audit or upgrade a run's ledger, export from it, import into it.",
}


class LazyGroup(click.Group):
    """Imports `quartet.cli.NAME` only when NAME is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return importlib.import_module(f"quartet.cli.{cmd_name}").command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}. {nearest(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="quartet")
def cli() -> None:
    """Quartet trains language and GUI agents with reinforcement learning.

    Exit codes: 0 done, 1 failed (the message says what to do), 2 wrong usage (of the command or in the recipe),
    3 starved (nothing to train), 4 the machine lacks something, 5 the ledger's server does not answer, 130 stopped by
    the user.
    """


def main() -> None:
    """Entry point: shows a `QuartetError` as one screen, without a traceback."""
    try:
        cli()
    except QuartetError as error:
        _fail(error)
    except OSError as error:
        from quartet.data.disk import full_disk_error

        if (full := full_disk_error(error)) is None:
            raise
        _fail(full)


def _fail(error: QuartetError) -> NoReturn:
    click.secho(f"error: {error}", fg="red", err=True)
    sys.exit(error.exit_code)
