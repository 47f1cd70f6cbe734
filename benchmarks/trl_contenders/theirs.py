"""TRL's contenders as seen from here: one process for both, which may belong to another Python."""

import os
import subprocess
from pathlib import Path

import click
import msgspec

from benchmarks.trl_contenders.base import Job, Run

THEIRS = ("environment_factory", "rollout_func")
REPOSITORY = Path(__file__).parents[2]


class TrlProcess:
    """Runs jobs one after the other; sleeps in between."""

    def __init__(self, python: str, threads: int) -> None:
        """`python` has TRL installed. Raises `click.ClickException` when it has not."""
        found = subprocess.run([python, "-c", "import trl, msgspec, pydantic"], capture_output=True, text=True)
        if found.returncode:
            raise click.ClickException(
                f"{python} has no TRL: {found.stderr.strip().splitlines()[-1]}\n"
                "-> pip install -e '.[benchmarks]', there or in an environment that --trl-python names"
            )
        environment = os.environ | {
            "OMP_NUM_THREADS": str(threads),
            "PYTHONPATH": str(REPOSITORY),
            "TOKENIZERS_PARALLELISM": "false",
            "TRL_EXPERIMENTAL_SILENCE": "1",
            "HF_HUB_OFFLINE": "1",
        }
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.trl_contenders.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if not os.environ.get("QUARTET_BENCHMARK_STDERR") else None,
            text=True,
            env=environment,
        )

    def run(self, job: Job) -> Run:
        """Raises `click.ClickException` when the process dies."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(msgspec.json.encode(job).decode(), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise click.ClickException(f"TRL's process ended with code {self._process.wait()} in {job}")
        return msgspec.json.decode(answer, type=Run)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Trl:
    """One of TRL's ways."""

    def __init__(self, name: str, process: TrlProcess) -> None:
        self.name, self._process = name, process

    def run(self, job: Job, folder: Path) -> Run:
        """The process makes a folder of its own."""
        return self._process.run(job)

    def close(self) -> None:
        """The process belongs to both."""
