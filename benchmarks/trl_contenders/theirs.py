"""TRL's contenders: one process for both, which may use another Python interpreter."""

import os
import subprocess
from pathlib import Path

import click
import msgspec

from benchmarks.trl_contenders.base import Job, Run
from quartet.die_with import child_command

THEIRS = ("environment_factory", "rollout_func")
REPOSITORY = Path(__file__).parents[2]


class TrlProcess:
    """Process that runs jobs one after the other, and sleeps in between."""

    def __init__(self, python: str, threads: int) -> None:
        """Start the interpreter `python`. Raises `click.ClickException` if it has no TRL."""
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
            child_command("benchmarks.trl_contenders.process", python=python),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if not os.environ.get("QUARTET_BENCHMARK_STDERR") else None,
            text=True,
            env=environment,
        )

    def run(self, job: Job) -> Run:
        """Return the result of a job. Raises `click.ClickException` if the process dies."""
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
    """Contender that trains with TRL in one of the two ways."""

    def __init__(self, name: str, process: TrlProcess) -> None:
        self.name, self._process = name, process

    def run(self, job: Job, folder: Path) -> Run:
        """Train in the process of TRL, which uses its own folder."""
        return self._process.run(job)

    def close(self) -> None:
        """Do nothing: both contenders use the same process."""
