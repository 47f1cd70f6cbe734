"""The page of all commands, from the `quartet` command itself."""

import click

from quartet.cli import cli

HEAD = """\
# Commands

[Command line](../command-line.md) says what each is for. This page is made from the commands themselves;
`quartet COMMAND --help` shows the same.
"""


def commands_page() -> str:
    """Return the page in Markdown: a heading per command, and a table of its options."""
    context = click.Context(cli, info_name="quartet")
    return "\n".join([HEAD, _flat(cli.help), "", *_commands(cli, context)])


def _commands(group: click.Group, context: click.Context) -> list[str]:
    lines: list[str] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, parent=context, info_name=name)
        if isinstance(command, click.Group):
            lines += _commands(command, inner)
        else:
            lines += _command(command, inner)
    return lines


def _command(command: click.Command, context: click.Context) -> list[str]:
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    options = [p for p in command.params if isinstance(p, click.Option)]
    usage = " ".join([context.command_path, *(p.make_metavar(context) for p in arguments)])
    lines = [f"## {context.command_path}", "", f"`{usage}`", "", _flat(command.help), ""]
    if options:
        lines += ["| option | |", "|---|---|", *(_row(option, context) for option in options), ""]
    return lines


def _row(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    assert record is not None, f"{context.command_path} has an undocumented option {option.name}"
    return f"| `{record[0]}` | {_flat(record[1])} |".replace("|any", "/any")


def _flat(text: str | None) -> str:
    return " ".join((text or "").replace("\b", "").split())
