"""A very small policy, made once."""

from pathlib import Path

import pytest
import torch

from quartet.policy.load import LoadedPolicy
from quartet.policy.make import make_policy

TEXTS = ['Press "next".\nbutton next [1]\ninput name [2]', "click next [1]", 'type name [2] "bob"']


@pytest.fixture(scope="session")
def policy_folder(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("policy") / "tiny"
    make_policy(TEXTS, folder, vocab_size=600, hidden_size=32, num_layers=2, num_heads=2, seed=1)
    return folder


@pytest.fixture
def policy(policy_folder: Path) -> LoadedPolicy:
    from quartet.policy.load import load_policy

    return load_policy(policy_folder)
