"""`quartet env list`: list the environments that a recipe can name."""

import json

import click

from quartet.cli.parameters import JSON
from quartet.terminal.say import say


@click.command(name="list", short_help="List the environments that a recipe can name.")
@JSON
def list_(as_json: bool) -> None:
    """List the environments of Quartet and of installed packages, and what each needs."""
    from quartet.env.base import Environment
    from quartet.recipe.part_description import describe_parts
    from quartet.registry import find

    rows = []
    for described in describe_parts("env"):
        part = find("env", described.name)
        assert issubclass(part, Environment)
        needs = f"pip install 'quartet-rl[{part.extra}]'" if part.extra else ""
        required = [name for name, field in part.Settings.model_fields.items() if field.is_required()]
        rows.append({"name": described.name, "summary": described.summary, "requires": required, "needs": needs})
    if as_json:
        say(json.dumps(rows))
        return
    for row in rows:
        settings = f" [set {', '.join(f'env.{name}' for name in row['requires'])}]" if row["requires"] else ""
        needs = f" [{row['needs']}]" if row["needs"] else ""
        say(f"{row['name']:<16} {row['summary']}{settings}{needs}")
