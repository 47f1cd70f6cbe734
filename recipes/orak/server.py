"""MCP server of the games, by standard input and output: `python -m recipes.orak.server`.

A client plays one game at a time: `reset` begins one, `play` makes a move, `score` returns the share of the full score.
"""

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from .games import GAMES
from .games.base import Game

server = MCPServer("orak")
playing: dict[str, Game] = {}
"""The game that is played, under `now`."""


@server.tool()
def reset(game: str, seed: int) -> str:
    """Begin a game, and return its board."""
    if game not in GAMES:
        raise ToolError(f"no game {game!r}: {', '.join(GAMES)}")
    playing["now"] = GAMES[game](seed)
    return playing["now"].text()


@server.tool()
def play(move: str) -> str:
    """Make a move, which is one of those below the board, and return the new board."""
    try:
        _game().play(move)
    except ValueError as error:
        raise ToolError(str(error)) from error
    return _game().text()


@server.tool()
def score() -> float:
    """Return the share of the full score, from 0 to 1."""
    return _game().score() / 100


def _game() -> Game:
    if "now" not in playing:
        raise ToolError("no game has begun: call reset")
    return playing["now"]


def main() -> None:
    """Serve until the client closes the connection."""
    server.run("stdio")


if __name__ == "__main__":
    main()
