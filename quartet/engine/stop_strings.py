"""Stop strings: searched in the text of the last few tokens after each token, so that long responses cost no more."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MARGIN_TOKENS = 4
"""Tokens of a window beyond those that a stop string may take. A window's first tokens may decode differently than in
the response: a character may be cut in two, or a tokenizer drops a leading space."""


class StopStrings:
    """The stop strings of one request."""

    def __init__(self, strings: list[str], tokenizer: "PreTrainedTokenizerBase", begun_ids: Sequence[int] = ()) -> None:
        """Match `strings`; a match may begin in `begun_ids`, tokens of the response that were sampled earlier."""
        self._strings, self._tokenizer = strings, tokenizer
        # A token decodes to at least one byte.
        self._window_tokens = max(len(string.encode()) for string in strings) + MARGIN_TOKENS
        self._begun_ids = [*begun_ids][-self._window_tokens :]

    def completed(self, token_ids: list[int]) -> str:
        """Return the first stop string that the last token of a response completes, or ""."""
        window = token_ids[-self._window_tokens :]
        if len(window) < self._window_tokens:
            window = (self._begun_ids + window)[-self._window_tokens :]
        text = self._decode(window)
        found = [string for string in self._strings if string in text]
        if not found:
            return ""
        # The last token may complete a character that decoded to a replacement character before.
        before = self._decode(window[:-1]).rstrip("\N{REPLACEMENT CHARACTER}")
        return next((string for string in found if text.rfind(string) + len(string) > len(before)), "")

    def _decode(self, token_ids: list[int]) -> str:
        """Decode with special tokens: stop strings match sampled tokens, not displayed text."""
        text = self._tokenizer.decode(token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        assert isinstance(text, str)
        return text
