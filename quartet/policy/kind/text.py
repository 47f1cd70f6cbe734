"""Models that read only text: any causal language model of `transformers`."""

from pathlib import Path
from typing import Any

from quartet.policy.kind.base import ModelKind


class TextModel(ModelKind):
    """Causal language model, which reads no pictures."""

    def __init__(self, model_type: str) -> None:
        self._model_type = model_type

    @property
    def decoder_prefix(self) -> str:
        import transformers
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

        name = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(self._model_type)
        return f"{getattr(transformers, name).base_model_prefix}." if name else ""

    @property
    def converts_weights(self) -> bool:
        from transformers.conversion_mapping import get_checkpoint_conversion_mapping

        return get_checkpoint_conversion_mapping(self._model_type) is not None

    def load(self, folder: Path, **options: Any) -> Any:
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM.from_pretrained(str(folder), **options)

    def pictures(self, folder: Path) -> None:
        return None
