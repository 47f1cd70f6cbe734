"""Search for stop strings after each sampled token.

Only the text of the last few tokens is searched, so that the time per token does not grow with the response.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MARGIN_TOKENS = 4
"""Number of tokens by which the searched window exceeds the longest possible stop string. The window's first tokens may
decode differently than in the whole response: a character may be cut in two, or a tokenizer may drop a leading
space."""


class StopStrings:
    """Stop strings of one request."""

    def __init__(self, strings: list[str], tokenizer: "PreTrainedTokenizerBase", begun_ids: Sequence[int] = ()) -> None:
        """Search for `strings`. A match may begin in `begun_ids`, the beginning of the response, sampled earlier."""
        self._strings, self._tokenizer = strings, tokenizer
        # A token decodes to at least one byte, so a string takes at most as many tokens as bytes.
        self._window_tokens = max(len(string.encode()) for string in strings) + MARGIN_TOKENS
        self._begun_ids = [*begun_ids][-self._window_tokens :]

    def completed(self, token_ids: list[int]) -> str:
        """Return the first stop string that the last token of `token_ids` completes, or ""."""
        window = token_ids[-self._window_tokens :]
        if len(window) < self._window_tokens:
            window = (self._begun_ids + window)[-self._window_tokens :]
        text = self._decode(window)
        found = [string for string in self._strings if string in text]
        if not found:
            return ""
        # Without the last token, an incomplete character may decode to a replacement character.
        before = self._decode(window[:-1]).rstrip("\N{REPLACEMENT CHARACTER}")
        return next((string for string in found if text.rfind(string) + len(string) > len(before)), "")

    def _decode(self, token_ids: list[int]) -> str:
        """Decode tokens, including special tokens, since stop strings are matched with all sampled tokens."""
        text = self._tokenizer.decode(token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        assert isinstance(text, str)
        return text
