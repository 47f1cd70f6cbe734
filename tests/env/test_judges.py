"""Judges, asked over HTTP: what a real server answers becomes a rating, a preference, or an error."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from quartet.config import Reward
from quartet.env.rewards.base import Case, Score
from quartet.registry import build
from quartet.types import Message


class JudgeServer:
    """OpenAI-compatible server whose answers a function chooses."""

    def __init__(self, answer: Callable[[str], web.Response | str]) -> None:
        self._answer, self.requests, self.keys = answer, [], []

    async def __aenter__(self) -> "JudgeServer":
        app = web.Application()
        app.add_routes([web.post("/v1/chat/completions", self.serve)])
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def serve(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.requests.append(body)
        self.keys.append(request.headers.get("Authorization"))
        answer = self._answer(body["messages"][0]["content"])
        if isinstance(answer, web.Response):
            return answer
        return web.json_response({"choices": [{"message": {"role": "assistant", "content": answer}}]})


async def judged(
    server: JudgeServer, name: str, response: str, timeout_seconds: float = 10.0, row: Any = None, **settings: Any
) -> Score:
    part = build(Reward.model_validate({"name": name, "url": server.url, "model": "m"} | settings))
    row = row or {"reference": "good", "rubric": "short"}
    case = Case(row=row, prompt=[Message("user", "Greet me.")], response=response, answer=response)
    return (await part.score_all([case], timeout_seconds))[0]


async def test_a_rating_is_the_number_on_the_last_line_over_the_best(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    async with JudgeServer(lambda question: "It is 100 times better.\n7.5") as server:
        assert await judged(server, "judge", "Hello") == Score(components={"judge": 0.75})
        question = "{{ rubric }}: {{ response }} of {{ best }}"
        assert await judged(server, "judge", "Hello", best=15, question=question) == Score(components={"judge": 0.5})
    assert "Greet me." in server.requests[0]["messages"][0]["content"]
    assert server.requests[1]["messages"][0]["content"] == "short: Hello of 15"
    assert server.keys == ["Bearer key"] * 2


async def test_the_right_answer_of_the_row_is_shown_and_not_the_policys():
    question = "{{ task }} right: {{ answer }}, given: {{ response }}"
    async with JudgeServer(lambda question: "7") as server:
        await judged(server, "judge", "5", row={"answer": "4", "response": "6"}, question=question)
        await judged(server, "judge", "5", row={"solution": "4"}, question=question)
    asked = [request["messages"][0]["content"] for request in server.requests]
    assert asked == ["Greet me. right: 4, given: 5", "Greet me. right: 5, given: 5"]


@pytest.mark.parametrize(
    "line",
    [
        "8/10",
        "8 / 10",
        "**8**",
        "Final rating: 8",
        "Rating: **8/10**",
        "8.",
        "**8**/10",
        "Rating: [[8]]",
        "Rating (0-10): 8",
        "8 out of 10",
        "8\n```",
    ],
)
async def test_a_rating_may_have_a_label_marks_or_the_best(line):
    async with JudgeServer(lambda question: f"It has 3 of 10 faults.\n{line}\n") as server:
        assert await judged(server, "judge", "Hello") == Score(components={"judge": 0.8})


async def test_a_rating_may_begin_with_its_point():
    async with JudgeServer(lambda question: "Weak.\n.5") as server:
        assert await judged(server, "judge", "Hello") == Score(components={"judge": 0.05})


async def test_an_answer_that_is_cut_off_is_an_error():
    cut_off = {"message": {"role": "assistant", "content": "It fails 3 of the\n10"}, "finish_reason": "length"}
    async with JudgeServer(lambda question: web.json_response({"choices": [cut_off]})) as server:
        score = await judged(server, "judge", "Hello")
    assert "cut off" in score.error and "raise max_tokens" in score.error and not score.components


@pytest.mark.parametrize(
    "said", ["I cannot tell.", "11", "-1", "Rating: -1", "3/5", "I rate it 2 out of 10", "9\nNo, it is bad."]
)
async def test_an_answer_without_a_rating_is_an_error_and_no_zero(said):
    async with JudgeServer(lambda question: said) as server:
        score = await judged(server, "judge", "Hello")
    assert "found no rating from 0 to 10" in score.error and not score.components


@pytest.mark.parametrize(("response", "value"), [("best", 1.0), ("good", 0.5), ("bad", 0.0)])
async def test_a_pair_is_compared_in_both_orders(response, value):
    order = ["bad", "good", "best"]

    def prefers_a_if_equal(question: str) -> str:
        a, b = (question.split(f"Response {name}:\n")[1].split("\n")[0] for name in "AB")
        return "Reasons about A and B.\n" + ("A" if order.index(a) >= order.index(b) else "B")

    async with JudgeServer(prefers_a_if_equal) as server:
        assert await judged(server, "judge_pair", response) == Score(components={"judge_pair": value})
    assert len(server.requests) == 2


@pytest.mark.parametrize("said", ["A good answer would", "A or B", "Neither."])
async def test_a_comparison_without_a_verdict_alone_on_its_last_line_is_an_error(said):
    async with JudgeServer(lambda question: said) as server:
        score = await judged(server, "judge_pair", "Hello")
    assert "found no verdict" in score.error and not score.components


@pytest.mark.parametrize("line", ["**TIE**", "Verdict: TIE", "TIE.", "[[TIE]]", "(TIE)"])
async def test_a_verdict_may_have_a_label_or_marks(line):
    async with JudgeServer(lambda question: f"Both are short.\n{line}") as server:
        assert await judged(server, "judge_pair", "Hello") == Score(components={"judge_pair": 0.5})


async def test_a_busy_judge_is_asked_again():
    answers = iter([web.Response(status=429), web.Response(status=503), "5"])
    async with JudgeServer(lambda question: next(answers)) as server:
        assert await judged(server, "judge", "Hello") == Score(components={"judge": 0.5})


async def test_a_judge_that_rejects_the_question_or_is_away_is_an_error():
    async with JudgeServer(lambda question: web.Response(status=401, text="wrong key")) as server:
        assert "HTTP status 401, 'wrong key'" in (await judged(server, "judge", "Hello")).error
    away = await judged(server, "judge", "Hello", timeout_seconds=0.2)
    assert away.error == "did not end within 0.2 s"


async def test_judges_are_asked_at_the_same_time():
    both = asyncio.Barrier(2)

    async def wait_for_another(request: web.Request) -> web.Response:
        await both.wait()
        return web.json_response({"choices": [{"message": {"content": "10"}}]})

    server = JudgeServer(lambda question: "")
    server.serve = wait_for_another  # type: ignore[method-assign]
    async with server:
        part = build(Reward.model_validate({"name": "judge", "url": server.url, "model": "m"}))
        case = Case(row={}, prompt=[Message("user", "Greet me.")], response="a", answer="a")
        assert await part.score_all([case, case], 10.0) == [Score(components={"judge": 1.0})] * 2


async def test_a_comparison_that_fails_leaves_no_question_to_the_judge_behind():
    over = asyncio.Event()

    async def answer_the_first(request: web.Request) -> web.Response:
        server.requests.append(request)
        if len(server.requests) == 2:
            return web.json_response({"choices": [{"message": {"content": "no verdict"}}]})
        await over.wait()
        return web.json_response({})

    server = JudgeServer(lambda question: "")
    server.serve = answer_the_first  # type: ignore[method-assign]
    async with server:
        assert "found no verdict" in (await judged(server, "judge_pair", "Hello", timeout_seconds=60.0)).error
        asking = [task.get_coro() for task in asyncio.all_tasks()]
        over.set()
    assert not [one for one in asking if getattr(one, "__name__", "") == "_value_of_a"]
