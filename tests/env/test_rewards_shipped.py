"""The rewards that ship: values by hand, and errors where the row is at fault, never a zero."""

import asyncio
import json
import sys
import threading
import time
from typing import Any

import pytest

from quartet.config import Reward
from quartet.env.dataset.answers import extract, unfenced
from quartet.env.rewards.base import Case, Score
from quartet.env.rewards.code import read_tests
from quartet.env.scoring.program import run_program
from quartet.errors import SetupError
from quartet.registry import build
from quartet.types import Message


async def scored(name: str, row: dict[str, Any], response: str, *, answer: str | None = None, **settings: Any) -> Score:
    part = build(Reward.model_validate({"name": name} | settings))
    case = Case(
        row=row, prompt=[Message("user", "Do it.")], response=response, answer=response if answer is None else answer
    )
    return (await part.score_all([case], 100.0))[0]


@pytest.mark.parametrize(
    ("how", "response", "answer"),
    [
        ("text", " a b \n", "a b"),
        ("number", "It costs $1,250.50, no: -3/4.", "-3/4"),
        ("number", "12 then 007", "007"),
        ("number", "so x = \N{MINUS SIGN}5", "-5"),
        ("number", "none", ""),
        ("boxed", r"\boxed{1} so \boxed{\frac{1}{2}}!", r"\frac{1}{2}"),
        ("boxed", r"\boxed{1", ""),
        (r"#### (.*)", "#### 3\n#### 4", "4"),
        (r"[AB]", "A or B", "B"),
        (r"[AB]", "neither", ""),
    ],
)
def test_answers_are_extracted(how, response, answer):
    assert extract(how, response) == answer


@pytest.mark.parametrize(
    ("response", "code"),
    [
        ("[1]", "[1]"),
        ("So:\n```json\n[1]\n```\n", "[1]\n"),
        ("So: ```json\n[1]```", "[1]"),
        ("```\n[0]\n```\nno:\n  ```json\r\n[1]\r\n  ``` is right", "[1]\r\n"),
        ("```json\n[1]\n```\nIt is a list, as in ```[2]```", "[1]\n"),
        ("```json\n[1]\n```\n```[2]``` is another", "[1]\n"),
        ("```json\n[1]\n```\nOr:\n```json\n[2", "[1]\n"),
        ("So:\n```json\n[1]", "[1]"),
        ("```[1]```", "[1]"),
        ("```python\nprint('```')\n```", "print('```')\n"),
        ("````\n```\n[1]\n```\n````", "```\n[1]\n```\n"),
        ("```\n```", ""),
        ("No ``` needed, but:\n```json\n[1]\n```", "[1]\n"),
    ],
)
def test_the_last_block_of_code_is_the_answer(response, code):
    assert unfenced(response) == code


@pytest.mark.parametrize(
    ("name", "settings", "row", "response", "value"),
    [
        ("exact_match", {}, {"answer": "Paris"}, " Paris\n", 1.0),
        ("exact_match", {}, {"answer": "Paris"}, "paris", 0.0),
        ("exact_match", {"ignore_case": True}, {"answer": ["Rome", "Paris"]}, "paris", 1.0),
        ("exact_match", {"column": "n"}, {"n": 3}, "3", 1.0),
        ("number", {}, {"answer": "6 * 12 #### 72"}, "72.0 apples", 1.0),
        ("number", {}, {"answer": "1,000"}, "1000", 1.0),
        ("number", {}, {"answer": "1/3"}, "0.3333", 0.0),
        ("number", {}, {"answer": "0.5"}, "1/2", 1.0),
        ("number", {}, {"answer": "2.5"}, "12.5/5", 1.0),
        ("number", {}, {"answer": "5"}, "x = \N{MINUS SIGN}5", 0.0),
        ("number", {}, {"answer": "5"}, "none", 0.0),
        ("number", {}, {"answer": "5"}, "1/0", 0.0),
        ("regex", {"pattern": r"<think>.*</think>\d+"}, {}, "<think>a\nb</think>7", 1.0),
        ("regex", {"pattern": r"\d+"}, {}, "7 or 8", 0.0),
        ("json_schema", {}, {"schema": '{"type": "object", "required": ["a"]}'}, '{"a": 1}', 1.0),
        ("json_schema", {}, {"schema": {"type": "array"}}, "Here:\n```json\n[1]\n```", 1.0),
        ("json_schema", {}, {"schema": {"type": "array"}}, "{}", 0.0),
        ("json_schema", {}, {"schema": {"type": "array"}}, "[1", 0.0),
        ("json_schema", {}, {"schema": {"type": "array"}}, "[NaN]", 0.0),
        ("json_schema", {}, {"schema": {"type": "number"}}, "-Infinity", 0.0),
        ("json_schema", {}, {"schema": {"multipleOf": 0.1}}, "1e999", 0.0),
        ("json_schema", {}, {"schema": {"items": {"$ref": "#"}}}, "[" * 400 + "]" * 400, 0.0),
        ("json_schema", {}, {"schema": {"items": {"$ref": "#"}}}, "[[[]]]", 1.0),
    ],
)
async def test_values(name, settings, row, response, value):
    assert await scored(name, row, response, **settings) == Score(components={name: value})


@pytest.mark.parametrize(
    ("name", "settings", "row", "message"),
    [
        ("exact_match", {}, {"solution": "4"}, "no column 'answer', only solution"),
        ("number", {}, {"answer": "four"}, "found no number"),
        ("json_schema", {}, {"schema": {"type": "nonsense"}}, "cannot read the row's schema"),
        ("code", {"sandbox": "none"}, {"tests": []}, "the row has no test"),
        ("code", {"sandbox": "none"}, {"tests": None}, "None is not a test"),
        ("code", {"sandbox": "none"}, {"tests": "null"}, "None is not a test"),
        ("code", {"sandbox": "none"}, {"tests": [["assert x"]]}, "['assert x'] is not a test"),
        ("code", {"sandbox": "none"}, {"tests": [" "]}, "' ' is not a test"),
        ("code", {"sandbox": "none"}, {"tests": '{"output": "3"}'}, "{'output': '3'} is not a test"),
        ("code", {"sandbox": "none"}, {"tests": {"inputs": ["1"], "outputs": []}}, "is not a test"),
        ("json_schema", {}, {"schema": {"$ref": "file:///etc/hostname"}}, "refers to 'file:///etc/hostname'"),
        ("json_schema", {}, {"schema": {"$ref": "#"}}, "refers to itself without end"),
        ("json_schema", {}, {"schema": {"$ref": "http://127.0.0.1:9/schema"}}, "refers to 'http://127.0.0.1:9/schema'"),
    ],
)
async def test_a_wrong_row_is_an_error_and_no_zero(name, settings, row, message):
    score = await scored(name, row, "4", **settings)
    assert message in score.error and not score.components


async def test_a_response_that_makes_a_pattern_slow_is_wrong_and_not_an_error():
    settings = {"pattern": "(a+)+b", "response_seconds": 0.2}
    assert await scored("regex", {}, "a" * 60, **settings) == Score(components={"regex": 0.0})
    assert await scored("regex", {}, "aab", **settings) == Score(components={"regex": 1.0}), "later responses are read"


PAIR = {"input": "1", "output": "2"}


@pytest.mark.parametrize(
    ("column", "tests"),
    [
        ("assert x", ["assert x"]),
        ('["assert x", "assert y"]', ["assert x", "assert y"]),
        (PAIR, [PAIR]),
        ([json.dumps(PAIR), PAIR], [PAIR, PAIR]),
        ('{"inputs": ["1", "1"], "outputs": ["2", "2"]}', [PAIR, PAIR]),
    ],
)
def test_tests_are_code_pairs_or_their_json(column, tests):
    assert read_tests(column) == tests


@pytest.mark.slow
async def test_a_power_without_end_is_a_wrong_response_and_not_an_error():
    row = {"answer": "7"}
    assert await scored("math", row, r"\boxed{9^{9^{9}}}", response_seconds=1) == Score(components={"math": 0.0})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gold", "response", "value"),
    [
        (r"\frac{1}{2}", r"so \boxed{0.5}", 1.0),
        ("1/2", "The answer is $\\frac{2}{4}$", 1.0),
        (r"x^2 + 2x + 1", r"\boxed{(x+1)^2}", 1.0),
        (r"\{1, 2\}", r"\boxed{\{2, 1\}}", 1.0),
        ("(1, 2]", r"\boxed{(1, 2)}", 0.0),
        (r"\sqrt{2}", r"\boxed{1.5}", 0.0),
        ("7", "I do not know", 0.0),
    ],
)
async def test_symbolic_equality(gold, response, value):
    assert await scored("math", {"answer": gold}, response) == Score(components={"math": value})


@pytest.mark.parametrize(("name", "package"), [("math", "math_verify"), ("json_schema", "jsonschema")])
def test_a_missing_package_is_an_error_of_the_setup(name, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SetupError, match=r"pip install 'quartet-rl\[rewards\]'"):
        build(Reward.model_validate({"name": name}))


ADD = "def add(a, b):\n    return a + b\n"
PATIENT = {"test_timeout_seconds": 30}
"""Time for programs of a test on a busy machine."""
REACH = """
import os, socket
try:
    socket.create_connection(("127.0.0.1", {port}), 1)
except OSError:
    print("no network", end=" ")
try:
    open("program.py", "a")
except OSError:
    print("no writing", end=" ")
print(os.path.exists({folder!r}), "SECRET" in os.environ)
"""


@pytest.mark.desktop
@pytest.mark.slow
async def test_programs_are_tested():
    row = {"tests": ["assert add(1, 2) == 3", "assert add(0, 0) == 0"]}
    assert await scored("code", row, f"```python\n{ADD}```", **PATIENT) == Score(components={"code": 1.0})
    assert await scored("code", row, ADD.replace("+", "-"), **PATIENT) == Score(components={"code": 0.0})
    part = await scored("code", row, ADD.replace("+", "-"), all_or_nothing=False, **PATIENT)
    assert part == Score(components={"code": 0.5})
    given = {"tests": [{"input": "2 3\n", "output": "5"}]}
    assert (await scored("code", given, "print(sum(map(int, input().split())))", **PATIENT)).components["code"] == 1.0


@pytest.mark.desktop
@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        "import sys; sys.exit(0)",
        "while True: pass",
        "x = bytearray(1 << 31)",
        "while True: print('a' * 10000)",
        "import time\ntime.sleep(1000)",
        "import mmap\nmmap.mmap(-1, 1 << 29)",
        "import os\nos.kill(os.getppid(), 9)\nos.fork() or os.setsid()\nwhile True: pass",
    ],
)
async def test_a_program_that_misbehaves_fails_its_test(program):
    settings = {"test_timeout_seconds": 0.5, "test_memory_megabytes": 256}
    assert await scored("code", {"tests": ["pass"]}, program, **settings) == Score(components={"code": 0.0})


@pytest.mark.desktop
@pytest.mark.slow
async def test_tests_of_a_row_have_a_total_time_and_the_rest_counts_as_failed():
    """Only the tests before the time ran out are run: the last would pass."""
    tests = ["pass", "while True: pass", "while True: pass", "pass"]
    score = await scored(
        "code",
        {"tests": tests},
        "x = 1",
        all_or_nothing=False,
        test_timeout_seconds=1,
        total_seconds=1.5,
    )
    assert score == Score(components={"code": 0.25})


async def test_many_fast_tests_use_up_the_total_time_of_a_row():
    row = {"tests": ["import time\ntime.sleep(0.03)"] * 60}
    score = await scored("code", row, "x = 1", sandbox="none", all_or_nothing=False, total_seconds=0.5)
    assert 0.0 < score.components["code"] < 1.0


def test_a_program_that_soon_ends_takes_time():
    ends = [run_program("x = 1", "", 30, 512, confined=False) for _ in range(20)]
    assert all(ended.exited and ended.seconds > 0.0 for ended in ends), ends


def test_a_long_input_reaches_a_program_that_reads_it_late():
    program = "import sys, time\ntime.sleep(0.5)\nprint(len(sys.stdin.read()))"
    ended = run_program(program, "x" * 300_000, 30, 512, confined=False)
    assert (ended.exited, ended.output) == (True, "300000\n")


def test_a_program_that_reads_no_input_leaves_no_thread_behind():
    before = threading.active_count()
    assert run_program("x = 1", "x" * 300_000, 30, 512, confined=False).exited
    wait_until = time.monotonic() + 60
    while threading.active_count() > before:
        assert time.monotonic() < wait_until
        time.sleep(0.01)


async def test_a_program_may_open_its_output_anew():
    program = "import sys\nsys.stdout = open('/dev/stdout', 'w')\nprint(5)"
    row = {"tests": [{"input": "", "output": "5"}]}
    assert await scored("code", row, program, sandbox="none", **PATIENT) == Score(components={"code": 1.0})


async def test_a_program_that_empties_all_its_files_fails_its_test():
    program = """import os
for number in range(3, 40):
    try:
        os.ftruncate(number, 0)
    except OSError:
        pass
os._exit(0)"""
    score = await scored("code", {"tests": ["pass"]}, program, sandbox="none", **PATIENT)
    assert score == Score(components={"code": 0.0})


async def test_a_program_that_cannot_start_is_an_error_and_no_zero(monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho cannot mount >&2\nexit 1\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    score = await scored("code", {"tests": ["pass"]}, "x = 1", sandbox="none")
    assert "could not start a program: cannot mount" in score.error


async def test_classes_of_a_program_can_be_pickled_and_need_their_own_imports():
    program = "import pickle\nclass A: pass\n"
    assert (await scored("code", {"tests": ["pickle.dumps(A())"]}, program, sandbox="none")).components["code"] == 1.0
    assert (await scored("code", {"tests": ["sys.path"]}, program, sandbox="none")).components["code"] == 0.0


@pytest.mark.desktop
@pytest.mark.slow
async def test_a_program_reaches_no_network_no_file_and_no_secret(monkeypatch, tmp_path):
    monkeypatch.setenv("SECRET", "1")
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        program = REACH.format(port=server.sockets[0].getsockname()[1], folder=str(tmp_path))
        given = {"tests": [{"input": "", "output": "no network no writing False False"}]}
        assert await scored("code", given, program, **PATIENT) == Score(components={"code": 1.0})
