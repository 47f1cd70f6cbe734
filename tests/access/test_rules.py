"""The rules for requests: which names, origins, tokens and content types pass."""

import pytest
from multidict import CIMultiDict

from quartet.access.rules import refuse_client

HONEST = {"Host": "127.0.0.1:8000", "Authorization": "Bearer secret", "Content-Type": "application/json"}


def status(method: str = "POST", **changes: str | None) -> int:
    """The status of the refusal; 200 for a request that passes. A header that is None is left out."""
    changed = HONEST | {name.replace("_", "-"): value for name, value in changes.items()}
    headers = CIMultiDict({name: value for name, value in changed.items() if value is not None})
    refusal = refuse_client(method, headers, "secret")
    return refusal.status if refusal else 200


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]:80", "127.8.9.1"])
def test_this_machine_s_names_pass(host):
    assert status(Host=host) == 200


@pytest.mark.parametrize(
    "host", [None, "", "evil.example", "localhost.evil.example:8000", "10.0.0.1", "127.0.0.1@evil"]
)
def test_other_names_are_refused(host):
    assert status(Host=host) == 403


@pytest.mark.parametrize("origin", ["null", "file://", "http://evil.example", "http://127.0.0.1:9999", "http://[", ""])
def test_pages_of_other_servers_are_refused(origin):
    assert status(Origin=origin) == 403


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer secre",
        "Bearer secrett",
        "secret",
        "Basic secret",
        "Bearer \udcff",
        "Bearer é",
    ],
)
def test_other_tokens_are_refused(authorization):
    assert status(Authorization=authorization) == 401
    assert status("GET", Authorization=authorization) == 401


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonx"])
def test_bodies_that_a_form_could_send_are_refused(content_type):
    assert status(Content_Type=content_type) == 415
    assert status("GET", Content_Type=content_type) == 200


def test_parameters_of_the_content_type_do_not_matter():
    assert status(Content_Type="Application/JSON; charset=utf-8") == 200
