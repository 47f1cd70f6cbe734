"""The pages of tasks, rollouts and spans, asked through the application itself."""

import re
from contextlib import closing
from urllib.parse import quote

import pytest

from quartet.telemetry.record import Recorder as SpanRecorder
from quartet.types import RolloutPlan, Task
from quartet.web.app import build_app
from quartet.web.pictures import media_type
from tests.ledger.samples import spoil
from tests.web.conftest import ask
from tests.web.recorded import SCRIPT, Recorder, png, record

PAGES = [
    "tasks",
    "family?name=left",
    f"family?name={quote(SCRIPT)}",
    "rollouts",
    "rollouts?family=left&success=true&min_turns=1",
    "rollouts/2",
    "rollouts/7",
    "rollouts/7?attempt=1",
    "rollouts/8",
    "rollouts/11",
    "rollouts/2/turns/1",
    "rollouts/8/turns/2",
    "timeline",
]


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    """A run that its tests only read."""
    folder = tmp_path_factory.mktemp("pages") / "run"
    with closing(record(folder)) as ledger:
        recorder = SpanRecorder(folder, "worker")
        with recorder.span("generate", lane="session 0", trace="rollout 2.1"):
            pass
        recorder.close()
        yield ledger


@pytest.fixture
async def client(ledger):
    async with ask(build_app([ledger.run_dir])) as client:
        yield client


@pytest.mark.parametrize("page", PAGES)
async def test_text_of_models_and_pages_is_escaped(client, page):
    answer = await client.get(f"/runs/run/{page}")
    assert answer.status_code == 200, answer.text
    assert "<script>" not in answer.text and "<img src=x" not in answer.text
    assert not re.search(r"\son\w+=", re.sub(r"&[^;]*;", "", answer.text.replace("onerror=&#34;", "")))
    assert not re.search(r"<[^>]*\sstyle=", answer.text)
    assert "script-src 'self'" in answer.headers["content-security-policy"]


async def test_hostile_text_is_shown_escaped(client):
    page = (await client.get("/runs/run/rollouts/8")).text
    assert page.count("&lt;script&gt;") >= 5  # family, goal, page text, response, page text at the end


@pytest.mark.parametrize(
    ("page", "status"),
    [
        ("rollouts/999", 404),
        ("rollouts/2/turns/9", 404),
        ("rollouts/2?attempt=4", 404),
        ("rollouts?status=nonsense", 400),
        ("rollouts?min_turns=many", 400),
        ("family?name=nowhere", 404),
        ("family?name=left&older_than=x", 400),
        ("trajectories/999/pictures/1/1", 404),
        ("trajectories/1/pictures/9/1", 404),
        ("trajectories/5/pictures/1/1", 404),
        ("timeline/window?start=0&seconds=1e9", 400),
        ("timeline/window?start=nan&seconds=1", 400),
    ],
)
async def test_missing_page_is_explained(client, page, status):
    answer = await client.get(f"/runs/run/{page}")
    assert answer.status_code == status
    assert "cannot be shown" in answer.text


LONG = "9" * 25


@pytest.mark.parametrize(
    "page",
    [
        "curves.json?start=nan",
        "curves.json?start=inf",
        "curves.json?end=-inf",
        "curves.json?end=soon",
        "curves.json?cursor=²@²",
        "curves.json?cursor=1@1~0@1",
        f"curves.json?cursor={LONG}@{LONG}",
        f"curves.json?cursor=1@{'9' * 5000}",
        "timeline/window?start=inf&seconds=1",
        "timeline/window?start=1",
        f"family?name=left&older_than={LONG}",
        "family?name=left&older_than=²",
        "rollouts?rollout=-1",
        *(
            f"rollouts?{name}={LONG}"
            for name in ("rollout", "older_than", "seed", "version", "min_turns", "train_step")
        ),
        f"rollouts/{LONG}",
        f"rollouts/{2**63}",
        f"rollouts/{2**63 - 1}",
        f"rollouts/{'9' * 5000}",
        "rollouts/-1",
        f"rollouts/2/turns/{LONG}",
        f"trajectories/{LONG}/pictures/1/1",
        f"trajectories/1/pictures/{LONG}/1",
    ],
    ids=lambda page: page[:48],
)
async def test_malformed_number_in_an_address_is_a_client_error(client, page):
    answer = await client.get(f"/runs/run/{page}")
    assert answer.status_code == (400 if "?" in page else 404), answer.text
    assert "cannot be shown" in answer.text


@pytest.mark.parametrize(
    "page",
    [
        "curves.json?start=-1e300&end=1e300",
        "curves.json?start=1e300",
        "curves.json?cursor=1@999999999999999",
        "timeline/window?start=1e300&seconds=1",
        "timeline/window?start=-1e300&seconds=1",
        f"rollouts?older_than={2**63 - 1}&version={2**63 - 1}",
    ],
)
async def test_times_and_ids_out_of_range_give_empty_pages(client, page):
    assert (await client.get(f"/runs/run/{page}")).status_code == 200


async def test_picture_is_served_with_its_media_type(client):
    answer = await client.get("/runs/run/trajectories/1/pictures/1/1")
    assert (answer.status_code, answer.headers["content-type"], answer.content) == (200, "image/png", png())


async def test_final_observation_is_shown_with_text_and_picture(client):
    page = (await client.get("/runs/run/rollouts/1")).text
    assert 'id="end"' in page and 'alt="What the page looked like at the end"' in page
    (address,) = set(re.findall(r"/runs/run/trajectories/1/pictures/3/1", page))
    assert (await client.get(address)).content == png()
    assert (await client.get(address.replace("/3/1", "/3/2"))).status_code == 404
    assert (await client.get(address.replace("/3/1", "/0/1"))).status_code == 404


async def test_cached_picture_is_revalidated_by_its_content(client, ledger):
    """`--fresh` begins another run at the same address, whose trajectories have the same numbers."""
    address = "/runs/run/trajectories/1/pictures/1/1"
    first = await client.get(address)
    assert "no-cache" in first.headers["cache-control"]
    known = {"if-none-match": first.headers["etag"]}
    assert (await client.get(address, headers=known)).status_code == 304
    other = address.replace("trajectories/1", "trajectories/2")
    assert (await client.get(other, headers=known)).status_code == 304, "the same picture"
    assert (await client.get(address, headers={"if-none-match": '"another"'})).status_code == 200


async def test_bytes_that_are_no_picture_are_not_served(client, ledger):
    page = (await client.get("/runs/run/rollouts/8")).text
    (address,) = set(re.findall(r"/runs/run/trajectories/\d+/pictures/1/1", page))
    answer = await client.get(address)
    assert answer.status_code == 404 and SCRIPT not in answer.text
    assert media_type(SCRIPT.encode()) is None


async def test_parent_and_child_link_each_other(tmp_path):
    with closing(record(tmp_path / "run")) as ledger:
        (running,) = ledger.rollouts.claim("w", 1, 60)
        (child_id,) = ledger.forks.add(running, ledger.trajectories.load_final(1).calls, 0, 1, 8)
    async with ask(build_app([tmp_path / "run"])) as client:
        parents = (await client.get(f"/runs/run/rollouts/{running.rollout_id}")).text
        childs = (await client.get(f"/runs/run/rollouts/{child_id}")).text
    assert f"/runs/run/rollouts/{child_id}" in parents and "was forked from it after call\n      1" in parents
    assert f'Forked from <a href="/runs/run/rollouts/{running.rollout_id}">' in childs and "after call 1:" in childs


async def test_a_missing_record_is_explained(tmp_path):
    with closing(record(tmp_path / "run")) as ledger:
        spoil(ledger, 2)
    async with ask(build_app([tmp_path / "run"])) as client:
        answer = await client.get("/runs/run/rollouts/2")
        assert answer.status_code == 200 and "cannot be read" in answer.text and "train step 1" in answer.text
        assert (await client.get("/runs/run/trajectories/2/pictures/1/1")).status_code == 404


async def test_search_for_a_rollout_id_redirects_to_its_page(client):
    answer = await client.get("/runs/run/rollouts?rollout=7")
    assert (answer.status_code, answer.headers["location"]) == (307, "/runs/run/rollouts/7")


async def test_counts_of_running_and_queued_rollouts_go_beyond_the_listed_ones(tmp_path):
    run = Recorder(tmp_path / "run")
    with closing(run.ledger):
        run.open_group("left", 60)
        task = Task(env="bandit", family="right", seed=1)
        run.ledger.groups.admit(RolloutPlan(task=task, num_rollouts=55, max_turns=5))
        async with ask(build_app([run.run_dir])) as client:
            page = " ".join((await client.get("/runs/run/rollouts")).text.split())
    assert "60 running (the oldest 50 are listed), 55 queued (the oldest 50 are listed)" in page


async def test_pages_follow_each_other(client):
    first = (await client.get("/runs/run/rollouts?family=left")).text
    assert 'rel="next"' not in first and first.count("/rollouts/") >= 7


async def test_a_window_of_spans(client):
    page = (await client.get("/runs/run/timeline")).text
    first = float(re.search(r'data-first="([\d.]+)"', page)[1])
    answer = (await client.get(f"/runs/run/timeline/window?start={first - 1}&seconds=10")).json()
    (row,) = answer["rows"]
    assert (row["role"], row["lane"], row["spans"][0][2]) == ("worker", "session 0", "generate")
    assert answer["shares"][0]["activities"][0]["name"] == "generate"
    empty = (await client.get(f"/runs/run/timeline/window?start={first - 1000}&seconds=10")).json()
    assert empty["rows"] == []
