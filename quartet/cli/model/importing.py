"""`quartet model import`: put a model from this machine into the user's cache."""

import json
from pathlib import Path

import click

from quartet.cli.parameters import JSON
from quartet.terminal.say import say


@click.command(name="import", short_help="Import a GGUF file, or a folder in Hugging Face format.")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--name", help="Name of the model; by default that of the file or folder.")
@click.option("--force", is_flag=True, help="Replace a model of that name.")
@JSON
def import_(path: Path, name: str | None, force: bool, as_json: bool) -> None:
    """Write the model at PATH into the user's cache: safetensors, tokenizer and chat template, with checksums.

    PATH is a GGUF file, whose quantised weights are unpacked to float32, or a folder in Hugging Face format, which is
    copied. The chat template is checked. A recipe then names the model: model.path = "NAME".
    """
    from quartet.errors import ConfigError
    from quartet.policy.download import DOWNLOADS
    from quartet.policy.importing import import_model
    from quartet.shipped import models_folder, named_policies

    name = name or (path.stem if path.is_file() else path.resolve().name).lower()
    if Path(name).name != name or name.startswith("."):
        raise ConfigError(f"{name!r} cannot name a model", "give a name without '/' with --name")
    if name in named_policies() and not force:
        raise ConfigError(f"there is a model {name!r} already", "give another --name, or replace it with --force")
    if name in DOWNLOADS:
        raise ConfigError(f"{name!r} is the name of a model that `quartet model get` downloads", "give another --name")
    folder = models_folder() / name
    import_model(path, folder)
    if as_json:
        say(json.dumps({"name": name, "folder": str(folder)}))
    else:
        say(f'{folder}\n\nin a recipe: model.path = "{name}"')
