"""`quartet deploy`: write a recipe's placement as manifests."""

from pathlib import Path

import click

from quartet import __version__
from quartet.cli.parameters import RECIPE, SET
from quartet.errors import ConfigError
from quartet.recipe.file import load_recipe
from quartet.terminal.say import say

SETUP = f"pip install 'quartet-rl[ray,postgresql]=={__version__}'"


@click.command(name="deploy")
@RECIPE
@SET
@click.option("--to", "target", type=click.Choice(["kubernetes", "skypilot"]), required=True, help="The scheduler.")
@click.option("--image", help="Kubernetes: image with this version of Quartet and its extras ray and postgresql.")
@click.option("--storage", default="100Gi", help="Kubernetes: size of the volume for runs.")
@click.option("--storage-class", help="Kubernetes: storage class that many nodes can mount (ReadWriteMany).")
@click.option("--volume", default="runs", help="SkyPilot: volume for runs that all nodes can mount.")
@click.option("--gpu", help="SkyPilot: type of the GPUs, such as H100.")
@click.option("--setup", default=SETUP, help="SkyPilot: command that installs Quartet.")
def command(
    recipe: Path,
    overrides: tuple[str, ...],
    target: str,
    image: str | None,
    storage: str,
    storage_class: str | None,
    volume: str,
    gpu: str | None,
    setup: str,
) -> None:
    """Print manifests that make a Ray cluster from the plan of RECIPE and train there.

    RECIPE and its files must exist under the same name on the nodes: give the name of a shipped recipe, or a path in
    the image or on the volume.
    """
    import yaml

    from quartet.runtime.check.training import check_training
    from quartet.runtime.deploy.base import FIXED, deployment

    resolved = load_recipe(recipe, [*overrides, *FIXED])
    check_training(resolved)
    one = deployment(resolved, str(recipe), overrides)
    if target == "kubernetes":
        from quartet.runtime.deploy.kubernetes import kubernetes

        if image is None:
            raise ConfigError("Kubernetes needs an image with Quartet", "add --image NAME")
        documents = kubernetes(one, image=image, storage=storage, storage_class=storage_class)
    else:
        from quartet.runtime.deploy.skypilot import skypilot

        documents = skypilot(one, setup=setup, volume=volume, gpu=gpu)
    say(yaml.safe_dump_all(documents, sort_keys=False, width=1000).rstrip())
