"""`quartet recipes`: list the shipped recipes, and describe one."""

import json
from pathlib import Path
from shlex import quote

import click

from quartet.cli.group import CommandGroup
from quartet.cli.parameters import JSON, RECIPE
from quartet.terminal.say import say


@click.group(name="recipes", cls=CommandGroup, invoke_without_command=True)
@JSON
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """List and describe the shipped recipes. `quartet train NAME` trains one."""
    if context.invoked_subcommand is None:
        context.invoke(list_, as_json=as_json)
    elif as_json:  # before the name of the sub-command, which then has the option too
        context.default_map = {context.invoked_subcommand: {"as_json": True}}


@command.command(name="list", short_help="List the shipped recipes.")
@JSON
def list_(as_json: bool) -> None:
    """List the shipped recipes."""
    from quartet.recipe.description import describe
    from quartet.shipped import named_policies, shipped_recipes

    described = [describe(path) for path in shipped_recipes().values()]
    if as_json:
        say(json.dumps([one.to_dict() for one in described]))
        return
    from rich.table import Table
    from rich.text import Text

    from quartet.terminal.console import PrintableConsole

    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for heading in ("recipe", "environment", "what it is"):
        table.add_column(heading)
    for one in described:
        table.add_row(
            Text(one.name, style="bold"), Text(one.environment), Text(one.summary.partition(". ")[0].rstrip(".") + ".")
        )
    PrintableConsole().print(table)
    say(f"\npolicies, for model.path and `quartet eval`: {', '.join(named_policies())}")
    say("quartet recipes describe NAME shows more, quartet train NAME trains it")


@command.command(name="describe", short_help="Describe a recipe.")
@RECIPE
@JSON
def describe_(recipe: Path, as_json: bool) -> None:
    """Describe RECIPE (a name or a file): its claim, the settings it changes, and its files."""
    from quartet.recipe.description import describe
    from quartet.recipe.file import find_recipe

    description = describe(find_recipe(recipe))
    if as_json:
        say(json.dumps(description.to_dict()))
        return
    from rich.markdown import Markdown
    from rich.table import Table
    from rich.text import Text

    from quartet.terminal.console import PrintableConsole

    console = PrintableConsole()
    console.print(Text(description.name, style="bold"), Text(f"(environment: {description.environment})", style="dim"))
    console.print(Text(f"\n{description.summary}\n"))
    if description.claim:
        console.print(Markdown(f"{description.claim}\n\n{description.result}", hyperlinks=False))
    settings = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    settings.add_column("setting", no_wrap=True)
    for heading in ("here", "default"):
        settings.add_column(heading, overflow="fold")
    for setting in description.settings:
        settings.add_row(Text(setting.name), Text(setting.value, style="bold"), Text(setting.default or "required"))
    console.print("", settings, "")
    console.print(Text(f"{description.file}\n{description.readme or 'no README.md in its folder'}", style="dim"))
    train = f"quartet train {quote(str(recipe))}"
    say(f"\n{train} --dry-run prints batch sizes and limits; without --dry-run the command trains")
