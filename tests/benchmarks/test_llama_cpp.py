"""llama.cpp is measured with the other contenders' weights: the GGUF file that is written for it has them."""

from pathlib import Path

import pytest
import torch

from benchmarks.engine_contenders import gguf_file
from benchmarks.engine_contenders.base import Workload, tiny_model
from benchmarks.engine_contenders.llama_cpp import LlamaCpp, server_params
from quartet.policy.importing import import_model
from quartet.policy.load import load_model
from tests.policy.tiny_gguf import TOKENS, make_model, write_gguf

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a small Llama with its tokenizer."""
    write_gguf(tmp_path / "source.gguf", make_model(max_position=2048))
    import_model(tmp_path / "source.gguf", tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_file_that_is_written_has_the_same_weights(folder: Path, tmp_path: Path, dtype: torch.dtype) -> None:
    model = load_model(folder).to(dtype)
    assert gguf_file.write(model, folder, tmp_path / "model.gguf")
    import_model(tmp_path / "model.gguf", tmp_path / "again")
    again = load_model(tmp_path / "again").state_dict()
    for name, weights in model.state_dict().items():
        assert torch.equal(weights.float(), again[name]), name


def test_another_architecture_is_not_written(tmp_path: Path) -> None:
    assert not gguf_file.write(tiny_model(torch.float32), tmp_path, tmp_path / "model.gguf")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_server_answers_conversations_of_the_workload(folder: Path, tmp_path: Path, dtype: torch.dtype) -> None:
    pytest.importorskip("xllamacpp", reason="llama.cpp is a contender of the benchmark only")
    assert gguf_file.write(load_model(folder).to(dtype), folder, tmp_path / "model.gguf")
    contender = LlamaCpp(tmp_path / "model.gguf", dtype, threads=1, slots=2)
    word = len(TOKENS) - 1
    contender.run(Workload([[word, 5], [word, 6]], [[[7, 8]]] * 2, 3), seed=0)  # it asserts the lengths
    contender.close()


@pytest.mark.parametrize(("dtype", "name"), [(torch.float32, "GGML_TYPE_F32"), (torch.bfloat16, "GGML_TYPE_BF16")])
def test_keys_and_values_have_the_type_of_the_weights(tmp_path: Path, dtype: torch.dtype, name: str) -> None:
    xllamacpp = pytest.importorskip("xllamacpp", reason="llama.cpp is a contender of the benchmark only")
    params = server_params(tmp_path / "model.gguf", dtype, threads=1, slots=2)
    assert params.cache_type_k == params.cache_type_v == xllamacpp.ggml_type[name]
