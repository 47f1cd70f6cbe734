"""Who is let in, what a page may do, and that nothing outside a run is served."""

import json
import re
from pathlib import Path

import pytest

import quartet.web
from quartet.web.app import build_app
from quartet.web.pages import NAVIGATION
from quartet.web.security import POLICY
from quartet.web.viewed_run import ViewedRun
from tests.web.conftest import SCRIPT, ask

TEMPLATES = sorted((Path(quartet.web.__file__).parent / "templates").glob("*"))
TOKEN = "correct-horse"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.0.1:7842", "[::1]:80", "LOCALHOST:1"])
async def test_this_machine_is_let_in_by_its_names(run_dir, host):
    async with ask(build_app([run_dir])) as client:
        assert (await client.get("/runs/run/now", headers={"host": host})).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:7842", "10.0.0.1", ""]
)
async def test_a_foreign_name_for_this_machine_is_refused(run_dir, host):
    """A page whose name was pointed at 127.0.0.1 sends its own name."""
    async with ask(build_app([run_dir])) as client:
        for path in ("/runs/run/now", "/static/style.css", "/runs/run/curves.json"):
            answer = await client.get(path, headers={"host": host})
            assert answer.status_code == 403 and "admission" not in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_only_reading_requests_are_answered(run_dir, method):
    async with ask(build_app([run_dir])) as client:
        assert (await client.request(method, "/runs/run/now")).status_code == 405


@pytest.mark.parametrize("path", ["/", "/runs/run/now", "/runs/run/curves.json", "/static/style.css", "/nowhere"])
async def test_without_the_token_nothing_is_shown(run_dir, path):
    async with ask(build_app([run_dir], token=TOKEN), "machine.example") as client:
        assert (await client.get(path)).status_code == 401
        assert (await client.get(path, params={"token": TOKEN + "x"})).status_code == 401
        assert (await client.get(path, params={"token": ""})).status_code == 401
        name = (await client.get("/", params={"token": TOKEN})).headers["set-cookie"].partition("=")[0]
        client.cookies.clear()
        for cookie in (f"{name}=wrong", f"{name}=", f"other={TOKEN}", "=;=,;"):
            assert (await client.get(path, headers={"cookie": cookie})).status_code == 401


async def test_the_token_moves_from_the_address_into_a_cookie(run_dir):
    async with ask(build_app([run_dir], token=TOKEN), "machine.example") as client:
        first = await client.get("/runs/run/run", params={"with": "run", "token": TOKEN})
        assert (first.status_code, first.headers["location"]) == (303, "/runs/run/run?with=run")
        cookie = first.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=strict" in cookie
        assert (await client.get(first.headers["location"])).status_code == 200


@pytest.mark.parametrize("path", ["//evil.example/", "/%5Cevil.example/", "/%2F/evil.example/"])
async def test_the_token_s_redirect_stays_on_this_server(run_dir, path):
    async with ask(build_app([run_dir], token=TOKEN), "machine.example") as client:
        location = (await client.get(f"http://machine.example{path}?token={TOKEN}")).headers["location"]
    assert re.fullmatch(r"/[^/\\].*", location)


async def test_two_servers_of_one_machine_keep_their_own_cookies(run_dir):
    names = set()
    for token in ("first", "second"):
        async with ask(build_app([run_dir], token=token), "machine.example") as client:
            answer = await client.get("/", params={"token": token})
            names.add(answer.headers["set-cookie"].partition("=")[0])
    assert len(names) == 2


@pytest.mark.parametrize("path", ["/", "/runs/run/now", "/runs/run/curves.json", "/static/style.css", "/nowhere"])
@pytest.mark.parametrize("token", [None, TOKEN])
async def test_every_answer_carries_the_policy(run_dir, path, token):
    async with ask(build_app([run_dir], token=token)) as client:
        headers = (await client.get(path)).headers
    assert headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY and POLICY.startswith("default-src 'none'")
    assert headers["x-content-type-options"] == "nosniff"


async def test_a_page_that_fails_says_so_and_carries_the_policy(run_dir, monkeypatch):
    app = build_app([run_dir])
    monkeypatch.setattr(ViewedRun, "summary", lambda self: json.loads("no JSON"))
    async with ask(app) as client:
        answer = await client.get("/runs/run/run")
    assert answer.status_code == 500 and "JSONDecodeError" in answer.text and "Traceback" not in answer.text
    assert answer.headers["content-security-policy"] == POLICY


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static/%2fetc%2fpasswd",
        "/runs/..%2f..%2frun/now",
        "/runs/%2e%2e/now",
        "/runs/run/..%2fconfig.toml",
        "/runs/run/config.toml",
        "/runs/other/now",
    ],
)
async def test_nothing_outside_is_served(run_dir, path):
    async with ask(build_app([run_dir])) as client:
        answer = await client.get(path)
    assert answer.status_code == 404
    assert "root:" not in answer.text and "import" not in answer.text and "config_version" not in answer.text


@pytest.mark.parametrize("page", NAVIGATION)
async def test_model_output_is_shown_as_text(run_dir, page):
    async with ask(build_app([run_dir])) as client:
        html = (await client.get(f"/runs/run/{page}")).text
    assert SCRIPT not in html and "<img src=x" not in html


async def test_the_script_is_shown_where_it_was_said(run_dir):
    async with ask(build_app([run_dir])) as client:
        assert "&lt;script&gt;document.title" in (await client.get("/runs/run/now")).text


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_templates_hold_no_inline_script_or_style(template):
    """The policy would stop them; and what is marked safe would not be escaped."""
    text = template.read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|\|\s*safe\b|Markup", text)
