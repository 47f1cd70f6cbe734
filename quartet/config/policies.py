"""Settings of a run with several policies: where each one comes from, and whether it is trained."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from quartet.config.section import PolicyPath, Section
from quartet.types.call import MAIN

_NAME = re.compile("[a-z][a-z0-9-]{0,39}")


class PolicySource(Section):
    """`[policies.NAME]`, one table for each policy of a run with several, the first trained one being what control and
    evaluations go by. Without any table a run has one policy, `main`, which is trained from `model.path`."""

    source: PolicyPath = ""
    """Folder of the policy's first weights and of its tokenizer, or the name of a policy that ships; empty is
    `model.path`."""
    trained: bool = True
    """Whether it is trained. A frozen policy (an opponent, a judge, a user simulator) answers requests with the weights
    of `source` for the whole run; what it sampled is stored, and trained by no policy."""
    weights: Annotated[str, AfterValidator(lambda value: _all_weights(value))] = "full"
    """Which weights are trained: `full`, all of them."""


def _all_weights(value: str) -> str:
    if value == "lora":
        raise ValueError("LoRA adapters cannot be trained yet; they come with a later version -> write 'full'")
    if value != "full":
        raise ValueError(f"{value!r} is no kind of weights -> write 'full'")
    return value


def _are_tables(policies: Any) -> Any:
    """Refuse what is no table of tables before each is read, with an example."""
    if not isinstance(policies, dict) or not all(isinstance(one, dict | PolicySource) for one in policies.values()):
        raise ValueError(
            "each policy is a table -> write [policies.opponent], and trained = false below it for a frozen one"
        )
    return policies


def _are_named(policies: dict[str, PolicySource]) -> dict[str, PolicySource]:
    if wrong := [name for name in policies if not _NAME.fullmatch(name)]:
        raise ValueError(
            f"{wrong[0]!r} cannot name a policy -> up to 40 lower-case letters, digits and '-', a letter first"
        )
    if policies and not any(one.trained for one in policies.values()):
        raise ValueError("every policy is frozen, so there is nothing to train -> leave trained = false out of one")
    return policies


Policies = Annotated[dict[str, PolicySource], BeforeValidator(_are_tables), AfterValidator(_are_named)]
"""The policies of a run by name; empty for a run with one."""
ONE = {MAIN: PolicySource()}
"""What a run without any table has."""
