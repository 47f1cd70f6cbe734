"""`quartet parts`: list every part that a recipe can choose, with its source and its settings."""

import json

import click

from quartet.cli.parameters import JSON
from quartet.terminal.say import say


@click.command(name="parts", short_help="List the parts that a recipe can choose.")
@click.argument("kind", required=False)
@JSON
def command(kind: str | None, as_json: bool) -> None:
    """List the parts that a recipe can choose, with their sources, settings and metrics. KIND limits the list."""
    from quartet.recipe.part_description import describe_all_parts, describe_parts

    described = describe_parts(kind) if kind else describe_all_parts()
    if as_json:
        say(json.dumps([part.to_dict() for part in described]))
        return
    from rich.table import Table
    from rich.text import Text

    from quartet.terminal.console import PrintableConsole

    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for heading in ("kind", "part", "what it does", "settings"):
        table.add_column(heading, overflow="fold")
    for part in described:
        what = Text(part.summary)
        if part.source:
            what.append(f"\n{part.source}", style="dim")
        for name, meaning in part.metrics.items():
            what.append(f"\n{name}: {meaning}", style="dim")
        settings = "\n".join(f"{setting.name} = {json.dumps(setting.default)}" for setting in part.settings)
        table.add_row(Text(part.kind, style="dim"), Text(part.name, style="bold"), what, Text(settings))
    PrintableConsole().print(table)
