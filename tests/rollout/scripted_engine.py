"""A scripted engine and a tiny tokenizer: what the rollout tests speak to instead of a model."""

from collections.abc import Callable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from quartet.engine.base import GenerateRequest, GenerateResult
from quartet.types import FinishReason

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def make_tokenizer(chat_template: str | None = CHAT_TEMPLATE) -> PreTrainedTokenizerFast:
    """Byte-level, so any text can be encoded; a few words are whole tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials = ["<|pad|>", "<|user|>", "<|assistant|>", "<|end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(
        ["click left [1]", "click right [2]", "Pull the left arm.", "button right"] * 4, trainer
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        additional_special_tokens=["<|user|>", "<|assistant|>"],
        chat_template=chat_template,
    )


class ScriptedEngine:
    """Answers with what `script` says: a text (with its end token), a ready result, or an exception to raise."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        script: Callable[[GenerateRequest, int], str | GenerateResult | BaseException],
        max_context_tokens: int = 4096,
    ) -> None:
        self.tokenizer, self.script, self.max_context_tokens = tokenizer, script, max_context_tokens
        self.requests: list[GenerateRequest] = []

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        self.requests.append(request)
        answer = self.script(request, len(self.requests) - 1)
        if isinstance(answer, BaseException):
            raise answer
        return answer if isinstance(answer, GenerateResult) else self.result(answer)

    def result(self, text: str, *, ended: bool = True, version: int = 7) -> GenerateResult:
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        ids = [*ids, self.tokenizer.eos_token_id] if ended else ids
        return GenerateResult(
            token_ids=ids,
            logprobs=[-0.5] * len(ids),
            entropies=[0.7] * len(ids),
            versions=[version] * len(ids),
            finish_reason=FinishReason.STOP if ended else FinishReason.LENGTH,
        )

    def prompt(self, index: int) -> str:
        return str(self.tokenizer.decode(self.requests[index].prompt_ids))

    async def abort(self, request_id: str) -> None: ...

    async def version(self) -> int:
        return 7

    async def close(self) -> None: ...
