"""The data sheet of a GPU is found by its whole name."""

import pytest
import torch

from benchmarks.gpu import data_sheet
from quartet.errors import SetupError
from quartet.forecast.gpus import GPUS


def named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: name)


@pytest.mark.parametrize(
    ("name", "kind"), [("NVIDIA H200", "H200"), ("NVIDIA H20", "H20"), ("NVIDIA H100 80GB HBM3", "H100")]
)
def test_a_gpu_has_the_peaks_of_its_kind(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    named(name, monkeypatch)
    assert data_sheet() == (name, GPUS[kind])


@pytest.mark.parametrize("name", ["NVIDIA A100-PCIE-40GB", "NVIDIA H100 PCIe", "NVIDIA GeForce RTX 4090"])
def test_other_variants_and_unknown_gpus_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    named(name, monkeypatch)
    with pytest.raises(SetupError, match="are not known"):
        data_sheet()
