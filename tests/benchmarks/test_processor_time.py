"""Processor time counts descendants, those that have ended included."""

import subprocess
import sys

import psutil
import pytest

from benchmarks.processor_time import processor_seconds, tree_seconds

pytestmark = pytest.mark.slow

BURN = "import time\nwhile time.process_time() < 0.3: pass\n"
"""Program that uses 0.3 s of processor time."""
BURN_BELOW = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BURN!r}])\nprint('ended', flush=True)\n"
"""Program whose child uses that time and has ended."""


def burn() -> None:
    subprocess.run([sys.executable, "-c", BURN], check=True)


def test_a_call_costs_what_its_ended_child_has_used():
    assert processor_seconds(burn) >= 0.25


def test_a_call_costs_what_a_child_that_goes_on_has_used():
    """As the process of an engine that serves several calls."""
    answering = "import sys\nfor line in sys.stdin:\n    exec(line)\n    print('done', flush=True)\n"
    command = [sys.executable, "-c", answering]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        stdin, stdout = server.stdin, server.stdout
        assert stdin and stdout

        def ask(line: str) -> None:
            stdin.write(f"{line}\n")
            stdin.flush()
            stdout.readline()

        ask("began = __import__('time').process_time()")
        work = "while __import__('time').process_time() < began + 0.3: pass"
        assert processor_seconds(lambda: ask(work)) >= 0.25
        assert processor_seconds(lambda: ask("pass")) < 0.2


def test_a_tree_counts_a_process_that_has_ended_and_one_that_has_not():
    with subprocess.Popen([sys.executable, "-c", f"{BURN_BELOW}input()"], stdin=-1, stdout=-1, text=True) as parent:
        assert parent.stdout and parent.stdin
        parent.stdout.readline()
        root = psutil.Process(parent.pid)
        assert not root.children()
        assert tree_seconds(root) >= 0.25
        parent.stdin.close()
