"""Stop strings: looked for in the text of the last few tokens as each token comes, so a long response costs no more."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MARGIN_TOKENS = 4
"""Beyond those that a stop string may take: the text of a window's first tokens may differ from theirs in the response,
where a character is cut in two or a tokenizer drops a leading space."""


class StopStrings:
    """The stop strings of one request."""

    def __init__(self, strings: list[str], tokenizer: "PreTrainedTokenizerBase", begun_ids: Sequence[int] = ()) -> None:
        """A stop string may begin in `begun_ids`, tokens of the response that were sampled earlier."""
        self._strings, self._tokenizer = strings, tokenizer
        # A token stands for at least one byte.
        self._window_tokens = max(len(string.encode()) for string in strings) + MARGIN_TOKENS
        self._begun_ids = [*begun_ids][-self._window_tokens :]

    def completed(self, token_ids: list[int]) -> str:
        """The first stop string that the last token of a response completes, or ""."""
        window = token_ids[-self._window_tokens :]
        if len(window) < self._window_tokens:
            window = (self._begun_ids + window)[-self._window_tokens :]
        text = self._decode(window)
        found = [string for string in self._strings if string in text]
        if not found:
            return ""
        # The last token may have completed a character, which was a replacement character until then.
        before = self._decode(window[:-1]).rstrip("\N{REPLACEMENT CHARACTER}")
        return next((string for string in found if text.rfind(string) + len(string) > len(before)), "")

    def _decode(self, token_ids: list[int]) -> str:
        """With special tokens: stop strings are looked for in what was sampled, not in what is shown."""
        text = self._tokenizer.decode(token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        assert isinstance(text, str)
        return text
