"""Models that read only text: any causal language model of `transformers`."""

from pathlib import Path
from typing import Any

from quartet.policy.kind.base import ModelKind


class TextModel(ModelKind):
    """Causal language model, which reads no pictures."""

    def load(self, folder: Path, **options: Any) -> Any:
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM.from_pretrained(str(folder), **options)

    def pictures(self, folder: Path) -> None:
        return None
