"""The smallest possible run, for tests and benchmarks: a tiny policy for the two-armed bandit, and its recipe."""

import json
from pathlib import Path

from quartet.config import Recipe, Sft
from quartet.env.environment.bandit import ARMS, PAGE
from quartet.recipe.file import parse_recipe


def make_bandit_policy(folder: Path, *, num_heads: int = 2) -> Path:
    """Train a policy that pulls either arm about equally often: it only knows the action grammar. Takes seconds.

    With one attention head, which then has 32 dimensions, vLLM's kernels for CPUs can compute the policy.
    """
    import torch

    from quartet.policy.make import make_policy
    from quartet.train.sft import run_sft

    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    turns = [
        {
            "messages": [
                {"role": "user", "content": f"{goal}\n{PAGE}"},
                {"role": "assistant", "content": f"click {arm} [{ref}]"},
            ]
        }
        for goal in ("Pull an arm.", "Pull the left arm.", "Pull the right arm.")
        for ref, arm in enumerate(ARMS, 1)
    ]
    data = folder / "turns.jsonl"
    data.write_text("".join(json.dumps(turn) + "\n" for turn in turns))
    texts = [message["content"] for turn in turns for message in turn["messages"]]
    make_policy(texts, folder / "new", vocab_size=600, hidden_size=32, num_layers=2, num_heads=num_heads, seed=0)
    sft = Sft(data=str(data), output=str(folder / "policy"), steps=250, tokens_per_batch=256, learning_rate=5e-3)
    run_sft(bandit_recipe(folder / "new").model_copy(update={"sft": sft}))
    return folder / "policy"


def bandit_recipe(policy: Path, **sections: dict) -> Recipe:
    """Return the recipe of a run that ends within seconds; `sections` are merged over the defaults."""
    data = {
        "name": "bandit",
        "model": {"path": str(policy)},
        "env": {"name": "bandit", "families": ["fixed"], "sessions": 8, "screenshots": False},
        "rollout": {"max_turns": 2, "max_tokens": 8, "lease_seconds": 3.0},
        "control": {"sampler": "uniform", "rollouts_per_group": 8},
        "filters": ["mixed_outcome"],
        "train": {"groups_per_batch": 2, "learning_rate": 3e-3, "max_train_steps": 25, "max_seconds": 60.0},
        "evaluation": {"episodes_per_family": 40},
    }
    for section, values in sections.items():
        data[section] = data.get(section, {}) | values
    return parse_recipe(data, "benchmarks.bandit")
