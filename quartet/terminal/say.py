"""Plain text output to the terminal."""

import click

from quartet.terminal.printable import printable


def say(text: str = "", *, fg: str | None = None, bold: bool = False, err: bool = False, nl: bool = True) -> None:
    """Print `text`, made printable, in colour if the terminal supports it."""
    shown = printable(text)
    click.echo(click.style(shown, fg=fg, bold=bold) if fg or bold else shown, err=err, nl=nl)
