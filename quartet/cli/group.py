"""Command groups: one that suggests the nearest name, and one that imports a command only when it is called."""

import importlib
from collections.abc import Mapping

import click
from click.shell_completion import CompletionItem

from quartet.errors import EXIT_CODES, nearest


class CommandGroup(click.Group):
    """Group that suggests the nearest name for a misspelt command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}. {nearest(args[0], known)}")
        return super().resolve_command(ctx, args)


class LazyGroup(CommandGroup):
    """Group that knows only the name and one line of each command; `PACKAGE.NAME` is imported when NAME is called."""

    def __init__(self, *, package: str, described: Mapping[str, str], **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self._package, self._described = package, described

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._described)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._described:
            return None
        return importlib.import_module(f"{self._package}.{cmd_name}").command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self._described.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete without importing commands, which would delay every key press."""
        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        return [
            CompletionItem(name, help=line) for name, line in self._described.items() if name.startswith(incomplete)
        ]
