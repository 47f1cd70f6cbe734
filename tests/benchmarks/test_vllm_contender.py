"""vLLM as a contender: the time of its engine's process counts, and that process ends."""

import time
from multiprocessing import resource_tracker
from pathlib import Path

import psutil
import pytest
import torch

from benchmarks.engine_contenders.base import distinct, tiny_model
from benchmarks.engine_contenders.vllm import Vllm
from benchmarks.processor_time import processor_seconds

pytest.importorskip("vllm", reason="`make test-vllm` installs vLLM")
pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]


def test_the_process_of_the_engine_counts_and_ends(tmp_path: Path) -> None:
    model = tiny_model(torch.float32)
    model.save_pretrained(tmp_path)
    resource_tracker.ensure_running()  # Python's own process, which ends with this one
    others = {*psutil.Process().children(recursive=True)}  # also servers of other tests
    contender, own = Vllm(model, str(tmp_path), threads=1), []
    processes = [one for one in psutil.Process().children(recursive=True) if one not in others]
    assert processes

    def call() -> None:
        began = time.process_time()
        contender.run(distinct(8, 256, 48, "measured"), seed=0)
        own.append(time.process_time() - began)

    assert processor_seconds(call) >= own[0] + 0.05
    contender.close()
    _, alive = psutil.wait_procs(processes, timeout=30)
    assert not alive
