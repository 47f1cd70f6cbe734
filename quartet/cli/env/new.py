"""`quartet env new`: write an environment of your own, with a test and a recipe."""

import json
from keyword import iskeyword
from pathlib import Path

import click

from quartet.cli.parameters import JSON
from quartet.errors import ConfigError
from quartet.terminal.say import say


@click.command(name="new", short_help="Write an environment of your own, with a test and a recipe.")
@click.argument("name")
@JSON
def new(name: str, as_json: bool) -> None:
    """Write NAME.py, test_NAME.py and NAME.toml into the current folder: an environment that works, to be changed.

    NAME is the name of a Python module, such as `doors`.
    """
    from importlib.util import find_spec

    from quartet.env.skeleton import skeleton
    from quartet.files.disk import usable_output
    from quartet.registry import names

    if not name.isidentifier() or iskeyword(name):
        advice = "use letters, digits and underscores, and no keyword of Python"
        raise ConfigError(f"{name!r} is not the name of a Python module", advice)
    if name in names("env"):
        raise ConfigError(f"an environment {name!r} exists, which commands would take for yours", "give another name")
    files = {Path(file): text for file, text in skeleton(name).items()}
    if there := [file for file in files if file.exists()]:
        raise ConfigError(f"{there[0]} already exists", "give another name")
    if find_spec(name):
        raise ConfigError(f"a module {name!r} is installed, which {name}.py would hide", "give another name")
    for file, text in files.items():
        with usable_output(file):
            file.write_text(text)
    if as_json:
        say(json.dumps({"files": [str(file) for file in files]}))
        return
    say(
        f"wrote {', '.join(str(file) for file in files)}\n\nquartet env check {name}    checks the environment\n"
        f"quartet train {name}.toml   trains on it"
    )
