"""Weights from the trainer's memory: exact, one engine at a time, and never a reason for the trainer to wait."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]  (documented)

from quartet.config import Publisher as PublisherChoice
from quartet.engine.vllm.extension import QuartetExtension
from quartet.errors import BroadcastError, ConfigError
from quartet.policy import transfer
from quartet.policy.publisher.base import Publisher
from quartet.policy.transfer import MAX_TRANSFERS, OFFER_FILE, Offer, Sender, receive
from quartet.recipe.file import parse_recipe
from quartet.registry import build
from quartet.train.ranks.rendezvous import INTERFACE

PROCESS = """
import sys
from pathlib import Path
from quartet.policy.transfer import receive
weights = receive(Path(sys.argv[1]), 60.0)
print(sum(float(tensor.double().sum()) for tensor in weights.values()))
"""


def weights_of(seed: int, dtype: torch.dtype = torch.bfloat16) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return {f"layer.{n}": torch.randn(64, 33, generator=draw).to(dtype) for n in range(5)}


def folder_of(root: Path, name: str) -> Path:
    folder = root / name
    folder.mkdir()
    return folder


def same(found: Mapping[str, torch.Tensor] | None, expected: Mapping[str, torch.Tensor]) -> bool:
    assert found is not None
    return found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in found)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_engines_receive_the_newest_two_versions_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    sender, folders = Sender("127.0.0.1", "gloo", 30.0), [folder_of(tmp_path, f"v{n}") for n in range(3)]
    for n, folder in enumerate(folders):
        sender.offer(folder, folder.name, weights_of(n, dtype))
    with ThreadPoolExecutor(3) as engines:
        newest = list(engines.map(lambda _: receive(folders[2], 30.0), range(3)))
    assert all(same(found, weights_of(2, dtype)) for found in newest)
    assert same(receive(folders[1], 30.0), weights_of(1, dtype))
    with pytest.raises(BroadcastError, match="has forgotten version v0"):
        receive(folders[0], 30.0)


def test_the_trainer_may_change_its_weights_while_an_engine_still_takes_them(tmp_path: Path) -> None:
    sender, folder, weights = Sender("127.0.0.1", "gloo", 30.0), folder_of(tmp_path, "v1"), weights_of(1)
    sender.offer(folder, "v1", weights)
    for tensor in weights.values():
        tensor.zero_()
    assert same(receive(folder, 30.0), weights_of(1))


def test_the_interface_of_the_ranks_is_not_that_of_transfers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks on loopback set the interface in the whole process, but an engine may be on another machine."""
    monkeypatch.setenv(INTERFACE, "no-such-interface")
    Sender("127.0.0.1", "gloo", 10.0).offer(tmp_path, "v1", weights_of(1))
    assert same(receive(tmp_path, 10.0), weights_of(1))


def test_tensors_that_differ_from_the_offer_are_refused(tmp_path: Path) -> None:
    sender, folder = Sender("127.0.0.1", "gloo", 30.0), folder_of(tmp_path, "v1")
    sender.offer(folder, "v1", weights_of(1))
    offer = (folder / OFFER_FILE).read_text()
    other = folder_of(tmp_path, "other")
    sender.offer(other, "v1", weights_of(2))
    (folder / OFFER_FILE).write_text(offer)
    with pytest.raises(BroadcastError, match="do not match their digest"):
        receive(folder, 30.0)


def test_a_trainer_that_is_gone_is_noticed_at_once(tmp_path: Path) -> None:
    Sender("127.0.0.1", "gloo", 30.0).offer(tmp_path, "v1", weights_of(1))
    offer = Offer.read(tmp_path)
    assert offer is not None
    (tmp_path / OFFER_FILE).write_text((tmp_path / OFFER_FILE).read_text().replace(str(offer.port), "9"))
    with pytest.raises(BroadcastError, match=r"the trainer at 127\.0\.0\.1:9 did not send v1"):
        receive(tmp_path, 30.0)


@pytest.mark.slow
def test_asking_again_and_again_exhausts_no_trainer_and_others_are_answered_later(tmp_path: Path) -> None:
    earlier = sum(thread.name == "weights-transfer" for thread in threading.enumerate())
    Sender("127.0.0.1", "gloo", 1.0).offer(tmp_path, "v1", weights_of(1))
    offer = Offer.read(tmp_path)
    assert offer is not None
    store = TCPStore(offer.host, offer.port, is_master=False, timeout=timedelta(seconds=30))
    store.add("asks", 3 * MAX_TRANSFERS // 2)  # none of them says what it wants

    at_once = 0
    with ThreadPoolExecutor(1) as pool:
        received = pool.submit(receive, tmp_path, 60.0)
        while not received.done():
            at_once = max(at_once, sum(thread.name == "weights-transfer" for thread in threading.enumerate()) - earlier)
            time.sleep(0.01)
    assert same(received.result(), weights_of(1))
    assert 0 < at_once <= MAX_TRANSFERS


@pytest.mark.slow
def test_an_engine_that_hangs_or_dies_delays_no_other_and_not_the_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is stopped while the trainer is in the middle of its transfer."""
    sender, folder = Sender("127.0.0.1", "gloo", 2.0), folder_of(tmp_path, "v1")
    sender.offer(folder, "v1", weights_of(1))
    begun, may_send, send = threading.Event(), threading.Event(), transfer.broadcast_tensor

    def held(*arguments: object) -> None:
        if threading.current_thread().name == "weights-transfer" and not may_send.is_set():
            begun.set()
            may_send.wait(60)
        send(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(transfer, "broadcast_tensor", held)
    with subprocess.Popen([sys.executable, "-c", PROCESS, str(folder)], stdout=subprocess.PIPE) as engine:
        assert begun.wait(240)
        engine.send_signal(signal.SIGSTOP)
        may_send.set()
        later = folder_of(tmp_path, "v2")
        sender.offer(later, "v2", weights_of(2))
        assert same(receive(later, 30.0), weights_of(2))
        engine.kill()
    assert same(receive(folder, 30.0), weights_of(1))


@pytest.mark.slow
def test_a_process_receives_what_the_trainer_holds(tmp_path: Path) -> None:
    sender = Sender("127.0.0.1", "gloo", 60.0)
    sender.offer(tmp_path, "v1", weights_of(1))
    told = subprocess.run([sys.executable, "-c", PROCESS, str(tmp_path)], capture_output=True, text=True, check=True)
    assert float(told.stdout) == sum(float(tensor.double().sum()) for tensor in weights_of(1).values())


class Worker(QuartetExtension):
    """What the extension needs of vLLM's worker."""

    def __init__(self) -> None:
        self.loaded: dict[str, torch.Tensor] = {}
        self.model_runner = SimpleNamespace(get_model=lambda: torch.nn.Module())
        self.reload_weights = lambda weights_iterator: self.loaded.update(weights_iterator)


def test_vllm_s_worker_receives_tensors_and_reads_the_file_if_they_do_not_come(tmp_path: Path) -> None:
    save_file(weights_of(7), tmp_path / "model.safetensors")
    worker = Worker()
    worker.quartet_load_policy(str(tmp_path), 5.0)
    assert same(worker.loaded, weights_of(7)), "no trainer has offered them"
    Sender("127.0.0.1", "gloo", 30.0).offer(tmp_path, "v1", weights_of(1))
    worker.quartet_load_policy(str(tmp_path), 30.0)
    assert same(worker.loaded, weights_of(1))
    offer = Offer.read(tmp_path)
    assert offer is not None
    (tmp_path / OFFER_FILE).write_text((tmp_path / OFFER_FILE).read_text().replace(str(offer.port), "9"))
    worker.quartet_load_policy(str(tmp_path), 5.0)
    assert same(worker.loaded, weights_of(7))


def test_a_server_that_reads_files_refuses_the_publisher() -> None:
    engine = {"name": "openai", "url": "http://127.0.0.1:30000", "reload": "update_weights_from_disk"}
    data = {"name": "x", "model": {"path": "unused"}, "env": {"name": "bandit"}, "engine": engine}
    with pytest.raises(ConfigError, match="has no effect on the engine 'openai'"):
        parse_recipe(data | {"publisher": "broadcast"}, "test")


def test_a_recipe_chooses_it() -> None:
    assert isinstance(build(PublisherChoice(name="broadcast")), Publisher)
