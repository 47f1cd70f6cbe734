"""A small guest server that speaks OSWorld's protocol: it runs commands in a folder, and records what PyAutoGUI is
asked for."""

import asyncio
import io
import json
import os
from pathlib import Path
from typing import Any

from aiohttp import web
from PIL import Image

RECORDER = """
import json, os
class Module:
    def __getattr__(self, name):
        def call(*positional, **named):
            with open(os.environ["CALLS"], "a") as file:
                file.write(json.dumps([name, *positional, named]) + "\\n")
        return call
    __setattr__ = lambda *_: None
import sys
sys.modules["pyautogui"] = Module()
"""
STATE, COMPONENT = (f"https://accessibility.ubuntu.example.org/ns/{name}" for name in ("state", "component"))
TREE = f"""<desktop-frame xmlns:st="{STATE}" xmlns:cp="{COMPONENT}"><application name="gedit">
<frame name="notes - gedit" st:showing="true" st:active="true" cp:screencoord="(0, 0)" cp:size="(640, 400)">
<push-button name="Save" st:showing="true" st:sensitive="true" cp:screencoord="(100, 20)" cp:size="(40, 20)"/>
<push-button name="Gone" st:sensitive="true"/>
<text name="" st:showing="true" st:sensitive="true" st:multi_line="true" cp:screencoord="(0, 50)"
 cp:size="(640, 300)">some [text]</text></frame></application></desktop-frame>"""


class GuestServer:
    """The server. `requests` holds the paths and bodies of all requests that change something."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.requests = folder, list[tuple[str, Any]]()
        self.url = ""
        self.lost_answers: list[str] = []
        """Paths of which the next answer is lost after the request was carried out."""
        self.failures: list[str] = []
        """Paths of which the next answer is an error of the server."""
        self.picture = b""
        """Content of every screenshot; empty for a blue screen."""
        self.tree = TREE
        self.after_launch: list[tuple[str, bytes]] = []
        """Tree and picture from each next read of the tree on, once a program was launched."""
        self._launched = False
        self.reads: list[str] = []
        """Paths of all requests that change nothing."""
        (folder / "pyautogui.py").write_text(RECORDER)
        app = web.Application()
        app.add_routes(
            [
                web.get("/screenshot", self._screenshot),
                web.get("/accessibility", self._accessibility),
                web.post("/screen_size", self._screen_size),
                web.post("/file", self._file),
                web.post("/execute", self._execute),
                web.post("/setup/{verb}", self._setup),
            ]
        )
        self._runner = web.AppRunner(app)

    async def start(self) -> None:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    def forget_calls(self) -> None:
        """Forget what PyAutoGUI was asked for so far."""
        (self.folder / "calls").unlink()

    def calls(self) -> list[Any]:
        """What PyAutoGUI was asked for."""
        file = self.folder / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    async def _answer(self, request: web.Request, answer: web.Response) -> web.Response:
        if request.path in self.failures:
            self.failures.remove(request.path)
            return web.Response(status=500)
        if request.path in self.lost_answers:
            self.lost_answers.remove(request.path)
            assert request.transport is not None
            request.transport.abort()
        return answer

    async def _screenshot(self, request: web.Request) -> web.Response:
        self.reads.append(request.path)
        file = io.BytesIO()
        Image.new("RGB", (640, 400), "navy").save(file, "PNG")
        return await self._answer(request, web.Response(body=self.picture or file.getvalue(), content_type="image/png"))

    async def _accessibility(self, request: web.Request) -> web.Response:
        if self._launched and self.after_launch:
            self.tree, self.picture = self.after_launch.pop(0)
        return await self._answer(request, web.json_response({"AT": self.tree}))

    async def _screen_size(self, request: web.Request) -> web.Response:
        self.reads.append(request.path)
        return await self._answer(request, web.json_response({"width": 640, "height": 400}))

    async def _file(self, request: web.Request) -> web.Response:
        path = Path(str((await request.post())["file_path"]))
        return web.Response(body=path.read_bytes()) if path.exists() else web.Response(status=404)

    async def _execute(self, request: web.Request) -> web.Response:
        given = await request.json()
        self.requests.append(("/execute", given))
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "CALLS": str(self.folder / "calls")}
        command = ["sh", "-c", given["command"]] if given["shell"] else given["command"]
        process = await asyncio.create_subprocess_exec(
            *command, cwd=self.folder, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        output, error = await process.communicate()
        told = {
            "status": "success",
            "output": output.decode(),
            "error": error.decode(),
            "returncode": process.returncode,
        }
        return await self._answer(request, web.json_response(told))

    async def _setup(self, request: web.Request) -> web.Response:
        self.requests.append((request.path, await request.json()))
        self._launched |= request.path == "/setup/launch"
        return await self._answer(request, web.Response(text="ok"))
