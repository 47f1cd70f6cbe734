"""`quartet env play`: act in an environment, in a browser."""

import click

from quartet.cli.env.naming import environment_name, first_loop, require_settings
from quartet.cli.parameters import SET


@click.command(name="play", short_help="Act in an environment yourself, in a browser.")
@click.argument("name")
@click.argument("family", required=False)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the first task.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port of the page; 0 picks a free one.")
@SET
def play(name: str, family: str | None, seed: int, port: int, overrides: tuple[str, ...]) -> None:
    """Act in the environment NAME, in a task of FAMILY (the first by default), and see reward and outcome.

    The page shows what a policy would see. It takes clicks, drags and keys on the screen, or the text of an action, and
    steps the real environment. Only this machine can open it, with the token in the printed address. Settings of the
    environment are given as in a recipe: --set env.width=1280.
    """
    from quartet.recipe.file import parse_recipe
    from quartet.web.play.serve import play_in_browser

    chosen = environment_name(name)
    require_settings(chosen, overrides)
    env: dict[str, object] = {"name": chosen, "sessions": 1, "step_timeout_seconds": 60.0}
    given = {"name": "play", "model": {"path": "."}, "env": env, "rollout": first_loop(chosen)}
    recipe = parse_recipe(given, f"quartet env play {name}", [*overrides])
    play_in_browser(recipe.env, family, seed, port)
