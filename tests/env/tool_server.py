"""An MCP server with state: a shop whose stock the policy changes. Arguments: the transport, and perhaps a port."""

import sys

from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("shop")
stock: dict[str, int] = {}


@server.tool()
def restart(item: str, count: int) -> str:
    """Begin a task with `count` pieces of an item."""
    stock.clear()
    stock[item] = count
    return "ok"


@server.tool()
def sell(item: str, count: int) -> str:
    """Sell pieces of an item."""
    if count < 0:
        raise MCPError(-32602, "count is negative")
    if count == 0:
        raise MCPError(-32603, "the stock is out of reach")
    if stock.get(item, 0) < count:
        raise ToolError(f"only {stock.get(item, 0)} of {item}")
    stock[item] -= count
    return f"{stock[item]} left"


@server.tool()
def judge(item: str, goal: int) -> float:
    """Return 1 if the stock is as the row wants it."""
    return float(stock.get(item) == goal)


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", port=int(sys.argv[2]))
