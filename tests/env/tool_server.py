"""An MCP server with state: a shop whose stock the policy changes. Arguments: the transport, and perhaps a port.

With the environment variable `SHOP_OWNER` it has two more tools, with `SHOP_PAGES` it lists one tool per page. With
`SHOP_TOKEN` it answers by HTTP only requests with this bearer token.
"""

import asyncio
import os
import sys
from typing import Any

import uvicorn
from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ListToolsResult, PaginatedRequestParams


class Shop(MCPServer):
    """Server that lists one tool per page if `SHOP_PAGES` is set; the cursor is the number of the next one."""

    async def _handle_list_tools(self, ctx: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        tools = await self.list_tools()
        if "SHOP_PAGES" not in os.environ:
            return ListToolsResult(tools=tools)
        number = int((params and params.cursor) or 0)
        following = str(number + 1) if number + 1 < len(tools) else None
        return ListToolsResult(tools=tools[number : number + 1], next_cursor=following)


server = Shop("shop")
stock: dict[str, int] = {}


@server.tool()
async def restart(item: str, count: int, seconds: float = 0.0) -> str:
    """Begin a task with `count` pieces of an item, after some `seconds`."""
    if count < 0:
        raise ToolError("no such stock")
    await asyncio.sleep(seconds)
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


if OWNER := os.environ.get("SHOP_OWNER"):

    @server.tool()
    def owner() -> str:
        """Return the owner of the shop, whom the environment of the process names."""
        return OWNER

    @server.tool()
    async def wait_for_owner() -> str:
        """Wait for longer than a step may take."""
        await asyncio.sleep(600)
        return "never"


def guarded(app: Any, token: str) -> Any:
    """Return the server's application, which answers only requests with the bearer token."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and dict(scope["headers"]).get(b"authorization") != f"Bearer {token}".encode():
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await app(scope, receive, send)

    return answer


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    elif token := os.environ.get("SHOP_TOKEN"):
        uvicorn.run(guarded(server.streamable_http_app(), token), port=int(sys.argv[2]))
    else:
        server.run("streamable-http", port=int(sys.argv[2]))
