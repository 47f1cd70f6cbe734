"""The dashboard under addresses that no page links to: an answer in words, never an error of its own."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from quartet.web.app import build_app
from tests.fuzz.mutations import NUMBERS, TEXTS
from tests.web.recorded import record

pytestmark = pytest.mark.campaign
PAGES = ["", "/now", "/run", "/tasks", "/rollouts", "/timeline", "/curves.json", "/timeline/window", "/family"]
NUMBERED = ["1", "0", "9" * 30, "-1", "²"]
PATHS = [
    *(f"/runs/run{page}" for page in PAGES),
    *(f"/runs/run/rollouts/{rollout}{rest}" for rollout in NUMBERED for rest in ("", "/turns/0")),
    *(f"/runs/run/rollouts/1/turns/{turn}" for turn in NUMBERED),
    *("/", "//", "/%00", "/%ff", "/static/style.css", "/runs/other/now", "/runs/%2e%2e/now"),
]
PARAMETERS = [
    *("purpose", "family", "seed", "status", "kind", "success", "min_reward", "max_reward", "version", "min_turns"),
    *("max_turns", "train_step", "older_than", "attempt", "axis", "cursor", "start", "end", "seconds", "with", "name"),
]
ODD = ["nan", "inf", "-0", "1e400", "10@1790000000", "0@0", "train_step", "run", "true", "completed", "eval"]
VALUES = st.one_of(
    st.sampled_from([*map(str, NUMBERS), *TEXTS, *ODD]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)


@pytest.fixture(scope="module")
def client(tmp_path_factory) -> Iterator[TestClient]:
    run_dir = tmp_path_factory.mktemp("dashboard") / "run"
    record(run_dir).close()
    with TestClient(build_app([run_dir]), base_url="http://localhost", raise_server_exceptions=False) as client:
        yield client


@settings(max_examples=300)
@given(path=st.sampled_from(PATHS), query=st.lists(st.tuples(st.sampled_from(PARAMETERS), VALUES), max_size=4))
def test_any_address_is_answered(client, path, query):
    encoded = [(name, value.encode("utf-8", "surrogatepass").decode("latin-1")) for name, value in query]
    answer = client.get(path, params=encoded, follow_redirects=False)
    assert answer.status_code < 500, answer.text


@settings(max_examples=100)
@given(
    name=st.sampled_from(["host", "origin", "cookie", "accept", "if-none-match", "range", "x-quartet-trace"]),
    value=st.one_of(st.sampled_from(TEXTS), st.text(max_size=8)).map(lambda text: text.encode("utf-8", "replace")),
)
def test_any_header_is_answered(client, name, value):
    assert client.get("/runs/run/now", headers={name: value}).status_code < 500
