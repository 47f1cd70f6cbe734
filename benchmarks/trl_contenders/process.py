"""The process that runs TRL: it reads one job per line from standard input and writes one run per line.

It is started with the Python interpreter that has TRL, and ends at the end of its input.
"""

import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

import msgspec

from benchmarks.trl_contenders import environment_factory, rollout_func
from benchmarks.trl_contenders.base import Job

WAYS = {"environment_factory": environment_factory.run, "rollout_func": rollout_func.run}


def main() -> None:
    answers = sys.stdout
    with redirect_stdout(sys.stderr):  # TRL prints
        for line in sys.stdin:
            job = msgspec.json.decode(line, type=Job)
            with tempfile.TemporaryDirectory() as folder:
                answer = WAYS[job.contender](job, Path(folder))
            print(msgspec.json.encode(answer).decode(), file=answers, flush=True)


if __name__ == "__main__":
    main()
