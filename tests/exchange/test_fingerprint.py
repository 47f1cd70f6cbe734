"""Fingerprints: the same where the same text becomes the same ids, and different where it does not."""

import hashlib
import json
from pathlib import Path

import pytest

import quartet.env
from quartet.env import make_environment
from quartet.env.environment.bandit import PAGE, Bandit
from quartet.errors import ConfigError
from quartet.exchange.fingerprint import Fingerprint, fingerprint, observation_hash, settle_fingerprint
from quartet.policy.model import make_model
from quartet.policy.prompt import TURN_FORMAT, turn_text
from quartet.policy.save import save_policy
from quartet.policy.tokenizer import train_tokenizer
from quartet.policy.tokenizer_files import load_tokenizer
from quartet.types import Observation
from tests.ledger.samples import recipe

TEXTS = ["Pull the left arm.\nbutton left [1]", "click left [1]", "Pull the right arm."] * 2


def test_it_survives_the_way_to_disk_and_back(tmp_path):
    tokenizer = train_tokenizer(TEXTS, 600)
    mark = fingerprint(tokenizer, recipe())
    save_policy(make_model(len(tokenizer), hidden_size=8, num_layers=1, num_heads=1), tokenizer, tmp_path / "policy")
    loaded = load_tokenizer(tmp_path / "policy")
    loaded(["a", "a b"], padding=True, truncation=True, max_length=2)  # leaves its mark on the tokenizer
    assert fingerprint(loaded, recipe()) == mark
    shipped = load_tokenizer(Path("recipes/miniwob/policy"))
    assert fingerprint(shipped, recipe()).tokenizer_hash != mark.tokenizer_hash
    assert fingerprint(shipped, recipe()).chat_template_hash == mark.chat_template_hash


def test_what_changes_it():
    tokenizer = train_tokenizer(TEXTS, 600)
    mark = fingerprint(tokenizer, recipe())
    other = fingerprint(train_tokenizer([*TEXTS, "more more"], 600), recipe())
    assert other.tokenizer_hash != mark.tokenizer_hash and other.chat_template_hash == mark.chat_template_hash
    tokenizer.chat_template = tokenizer.chat_template + " "
    assert fingerprint(tokenizer, recipe()).chat_template_hash != mark.chat_template_hash
    assert fingerprint(tokenizer, recipe()).tokenizer_hash == mark.tokenizer_hash
    assert observation_hash(recipe(rollout={"loop": "append"})) != observation_hash(recipe())
    assert observation_hash(recipe(train={"learning_rate": 0.1})) == observation_hash(recipe())


def test_a_run_keeps_its_own(ledger, monkeypatch):
    tokenizer = train_tokenizer(TEXTS, 600)
    mark = settle_fingerprint(ledger, recipe(), tokenizer)
    assert settle_fingerprint(ledger, recipe(), tokenizer) == mark == fingerprint(tokenizer, recipe())
    monkeypatch.setattr(Bandit, "observation_format", 99)
    with pytest.raises(ConfigError, match="began with another observation format"):
        settle_fingerprint(ledger, recipe(), tokenizer)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("tokenizer_hash", "tokenizer"),
        ("chat_template_hash", "chat template"),
        ("observation_hash", "observation format"),
    ],
)
def test_a_refusal_names_what_differs(name, word):
    same = dict.fromkeys(("tokenizer_hash", "chat_template_hash", "observation_hash"), "aa")
    mine = Fingerprint(**same)
    mine.refuse_other(Fingerprint(**same), "x.jsonl:1")
    with pytest.raises(ConfigError, match=rf"x.jsonl:1 has another {word} than this run \(hash bb, here aa\)\n  ->"):
        mine.refuse_other(Fingerprint(**same | {name: "bb"}), "x.jsonl:1")
    with pytest.raises(ConfigError, match="does not name the tokenizer"):
        mine.refuse_other(None, "x.jsonl:1")


def test_changed_observation_texts_need_a_new_format_version():
    """Whoever sees this fail: if goals, pages or turns now read differently, raise the number beside the code, then
    update what stands here. If they read as before, only update."""
    seen = Observation(goal="Press next.", text="button next [2]", error="no element [9]")
    turn = turn_text(seen, ["click ok [1]"])
    assert (TURN_FORMAT, turn) == (1, "Press next.\nbutton next [2]\ndid click ok [1]\nerror no element [9]")
    assert (make_environment(recipe().env).observation_format, PAGE) == (1, "button left [1]\nbutton right [2]")
    browser = recipe(env={"name": "miniwob", "families": []}).env
    source = (Path(quartet.env.__file__).parent / "observe.js").read_bytes()
    digest = hashlib.sha256(source).hexdigest()[:16]
    assert (make_environment(browser).observation_format, digest) == (1, "87a8ca3ec378a7f1"), json.dumps(digest)
