"""The recipe `llm_tools`, with a tiny model of the same architecture: chat template, tools, LoRA, evaluation."""

from pathlib import Path

import pytest

from quartet.ledger import Ledger
from quartet.policy.importing import import_model
from quartet.recipe.file import load_recipe
from quartet.runtime.run import run_recipe
from tests.policy.tiny_gguf import make_model, write_gguf

RECIPE = Path(__file__).parents[2] / "recipes" / "llm_tools" / "recipe.toml"
SHORT = [
    *("runtime.kind=synchronous", "admission.max_lag=0", "train.max_train_steps=1", "train.groups_per_batch=1"),
    *("env.families=['table_1']", "control.rollouts_per_group=2", "control.allocator=fixed", "filters=[]"),
    *("rollout.max_tokens=4", "rollout.max_turns=2", "evaluation.episodes_per_family=1", "lora.rank=2"),
    *("engine.max_context_tokens=2000", "replay=none"),
]


@pytest.mark.slow
def test_a_short_run_tells_the_tools_and_trains_an_adapter(tmp_path):
    write_gguf(tmp_path / "tiny.gguf", make_model(max_position=2048))
    import_model(tmp_path / "tiny.gguf", tmp_path / "model")
    recipe = load_recipe(RECIPE, [*SHORT, f"model.path={tmp_path / 'model'}"])
    summary = run_recipe(recipe, tmp_path / "run", resume=False, fresh=False, quiet=True)
    assert summary["train_steps"] == 1 and summary["lost"] == summary["trained_twice"] == 0
    ledger = Ledger.open(tmp_path / "run")
    policy = ledger.policies.latest()
    ledger.close()
    assert (tmp_path / "run" / policy.path / "adapter_model.safetensors").is_file()
