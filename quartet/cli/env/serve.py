"""`quartet env serve`: serve an environment to clients of OpenEnv."""

import click

from quartet.cli.env.naming import environment_name, first_loop, require_settings
from quartet.cli.parameters import SET


@click.command(name="serve", short_help="Serve an environment to clients of OpenEnv.")
@click.argument("name")
@click.argument("families", nargs=-1)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address on which the server listens.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port of the server; 0 picks a free one.")
@click.option("--token-variable", help="Environment variable with the token; by default a new token is printed.")
@click.option(
    "--quota",
    "quotas",
    type=(str, click.IntRange(min=1)),
    multiple=True,
    metavar="VARIABLE SESSIONS",
    help="Serve the client with the token in this environment variable too, at most so many sessions; repeatable.",
)
@SET
def serve(
    name: str,
    families: tuple[str, ...],
    host: str,
    port: int,
    token_variable: str | None,
    quotas: tuple[tuple[str, int], ...],
    overrides: tuple[str, ...],
) -> None:
    """Serve FAMILIES (all by default) of the environment NAME over OpenEnv's session protocol, until Ctrl-C.

    Each connection is a session. A reset names its family in the field `family`; without one it starts a task of the
    first. The header `Authorization: Bearer TOKEN` is required. Settings of the environment are given as in a recipe:
    --set env.sessions=16.
    """
    from quartet.env.serve import serve_environment
    from quartet.recipe.file import parse_recipe

    chosen = environment_name(name)
    require_settings(chosen, overrides)
    env: dict[str, object] = {"name": chosen, "families": [*families], "screenshots": False}
    given = {"name": "serve", "model": {"path": "."}, "env": env, "rollout": first_loop(chosen)}
    recipe = parse_recipe(given, f"quartet env serve {name}", [*overrides])
    serve_environment(recipe.env, host, port, token_variable, dict(quotas))
