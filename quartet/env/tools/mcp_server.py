"""Connection to an MCP server, which is started as a child process or reached by its URL."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from quartet.access.token import bearer
from quartet.env.extra import import_extra
from quartet.types import Function, Tool

EXTRA = "mcp"


class McpServer:
    """One connection. A task of its own holds it, since the client of MCP must be closed where it was opened."""

    def __init__(
        self, command: Sequence[str], url: str, timeout_seconds: float, variables: Mapping[str, str], token: str
    ) -> None:
        """Describe the connection: to the process that `command` starts, which gets the environment `variables`, or to
        the server at `url`, which gets `token` in every request unless it is empty. `timeout_seconds` bounds requests
        without a limit of their own."""
        self._mcp = import_extra("mcp", EXTRA)
        self._command, self._url, self._timeout_seconds = command, url, timeout_seconds
        self._variables, self._token = variables, token
        self._client: Any = None
        self._ended = asyncio.Event()
        self._holder: asyncio.Task[None] | None = None
        self.tools: list[Tool] = []

    async def open(self) -> None:
        """Connect and list the tools. Raise the error of the client if the server cannot be reached."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._holder = asyncio.create_task(self._hold(opened))
        await asyncio.wait([opened, self._holder], return_when=asyncio.FIRST_COMPLETED)
        if not opened.done():
            self._holder.result()

    async def call(self, name: str, arguments: Mapping[str, Any], seconds: float | None = None) -> tuple[str, bool]:
        """Call a tool. Return its text, and whether it is an error of the tool.

        A server may refuse arguments by an error of the protocol, which is returned as well. Raise `TimeoutError` if
        the tool has not answered after `seconds`, and `MCPError` for any other error of the protocol, such as a closed
        connection.
        """
        try:
            result = await self._client.call_tool(name, dict(arguments), read_timeout_seconds=seconds)
        except self._mcp.MCPError as error:
            if seconds is not None and error.code == self._mcp.types.REQUEST_TIMEOUT:
                raise TimeoutError from error
            if error.code != self._mcp.types.INVALID_PARAMS:
                raise
            return error.message, True
        texts = [getattr(part, "text", f"[{part.type}]") for part in result.content]
        return "\n".join(texts), bool(result.is_error)

    async def close(self) -> None:
        """End the connection, also one that is still being made, and the child process; safe to call twice."""
        self._ended.set()
        if self._holder is not None:
            if self._client is None:  # and the server may never answer
                self._holder.cancel()
            await asyncio.wait([self._holder])

    async def _hold(self, opened: "asyncio.Future[None]") -> None:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(await self._described(stack))
            self.tools = [
                Tool(function=Function(name=one.name, description=one.description or "", parameters=one.input_schema))
                async for one in _listed(client)
            ]
            self._client = client
            opened.set_result(None)
            await self._ended.wait()

    async def _described(self, stack: AsyncExitStack) -> Any:
        """Return the client of the package for the server; what it needs besides is closed with the stack."""
        if not self._url:
            program, *arguments = self._command
            program = sys.executable if program == "python" else program
            target = self._mcp.StdioServerParameters(command=program, args=arguments, env={**self._variables})
        else:
            http = import_extra("mcp.client.streamable_http", EXTRA)
            sender = http.create_mcp_http_client(headers=bearer(self._token))
            target = http.streamable_http_client(self._url, http_client=await stack.enter_async_context(sender))
        return self._mcp.Client(target, read_timeout_seconds=self._timeout_seconds)


async def _listed(client: Any) -> AsyncIterator[Any]:
    """Yield the server's tools, which it may list in several pages."""
    cursor = None
    while True:
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            yield tool
        cursor = page.next_cursor
        if cursor is None:
            return
