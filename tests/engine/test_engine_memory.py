"""Short memory is reported as such: the policy is not refused, and a later attempt can load it."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from engine_kinds import engine_recipe
from engine_models import make_model, publish

from quartet.engine import torch_engine, verified_load
from quartet.engine.start import start_with_newest
from quartet.engine.torch_engine import TorchEngine
from quartet.errors import CheckpointError, OutOfMemoryError
from quartet.ledger import Ledger
from quartet.policy.files import raising_checkpoint_errors


def on_a_gpu(*_: object) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def on_a_cpu(*_: object) -> None:
    torch.empty(2**55)


def in_python(*_: object) -> None:
    bytes(2**60)


@pytest.mark.parametrize("allocate", [on_a_gpu, on_a_cpu, in_python])
def test_short_memory_is_no_damage_and_its_advice_names_settings(allocate: Callable[[], None]) -> None:
    with (
        pytest.raises(OutOfMemoryError, match=r"(?s)the policy: memory ran out: .*engine\.kv_cache_megabytes"),
        raising_checkpoint_errors("the policy"),
    ):
        allocate()
    with pytest.raises(CheckpointError), raising_checkpoint_errors("the policy"):
        torch.zeros(2).view(3)


async def test_an_update_that_lacks_memory_can_be_loaded_later(
    engine_of: Callable[..., TorchEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, folder = engine_of(make_model()), publish(make_model(seed=1), tmp_path / "v1")
    with monkeypatch.context() as patched:
        patched.setattr(verified_load, "verify", on_a_gpu)
        with pytest.raises(OutOfMemoryError):
            await engine.load_policy(folder, 1)
    assert await engine.version() == 0
    assert (await engine.load_policy(folder, 1)).version == 1


async def test_an_engine_that_lacks_memory_at_its_start_does_not_go_back_to_an_older_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.create(tmp_path)
    ledger.policies.register_initial(str(publish(make_model(), tmp_path / "v0")))
    monkeypatch.setattr(torch_engine, "verify", on_a_gpu)
    with pytest.raises(OutOfMemoryError):
        await start_with_newest(engine_recipe("torch"), ledger, "engine")
    assert not [event for event in ledger.events() if event.kind == "policy_refused"]
    ledger.close()
