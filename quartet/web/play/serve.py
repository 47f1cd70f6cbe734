"""Server of `quartet env play`: for one person on this machine."""

import secrets

from quartet import config
from quartet.terminal.say import say
from quartet.web.play.app import build_play_app
from quartet.web.play.player import Player
from quartet.web.serve import listen, serve

HOST = "127.0.0.1"


def play_in_browser(env: config.Env, family: str | None, seed: int, port: int) -> None:
    """Serve an environment until Ctrl-C or SIGTERM, beginning with a task of `family`, by default the first.

    Raise `ConfigError` for an unknown environment or family, `SetupError` if the port cannot be used.
    """
    player = Player(env)
    family = family or player.families[0]
    player.require(family)
    token = secrets.token_urlsafe(32)
    app, listener = build_play_app(player, token=token, family=family, seed=seed), listen(HOST, port)
    say(f"http://{HOST}:{listener.getsockname()[1]}/?token={token}")
    say("stop with Ctrl-C", err=True)
    serve(app, listener)
