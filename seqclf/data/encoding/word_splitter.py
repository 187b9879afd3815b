"""Fast splitting of texts into words and punctuation, equal to that of the tokenizer, which takes ten times as long."""

from __future__ import annotations

import re
from collections.abc import Iterable

import tokenizers


class WordSplitter:
    """Splits as `BertPreTokenizer` does: at whitespace, and before and after each punctuation character.

    Each character is one of three kinds, whatever stands next to it. The tokenizer is asked once for every character
    that occurs, so both always agree.

    >>> from tokenizers import normalizers, pre_tokenizers
    >>> splitter = WordSplitter(normalizers.Lowercase(), pre_tokenizers.BertPreTokenizer(), lowercase=True)
    >>> splitter.words("It's *good*.")
    ['it', "'", 's', '*', 'good', '*', '.']
    """

    def __init__(
        self,
        normalizer: tokenizers.normalizers.Normalizer,
        pre_tokenizer: tokenizers.pre_tokenizers.PreTokenizer,
        lowercase: bool,
    ):
        self.normalizer = normalizer
        self.lowercase = lowercase
        self.separated = _SeparatedCharacters(pre_tokenizer)
        ascii_parts = {code_point: self.separated[code_point] for code_point in range(128)}
        spaces = _character_class(code_point for code_point, text in ascii_parts.items() if text == " ")
        punctuation = _character_class(code_point for code_point, text in ascii_parts.items() if len(text) == 3)
        # Three times as fast as `str.translate`, but its classes would have to list every character of Unicode.
        self.ascii_words = re.compile(f"[{punctuation}]|[^{punctuation}{spaces}]+").findall

    def words(self, text: str) -> list[str]:
        """Return the normalized words and punctuation characters of a text."""
        if text.isascii():  # which NFC does not change
            return self.ascii_words(text.lower() if self.lowercase else text)
        text = self.normalizer.normalize_str(text)
        return [word for word in text.translate(self.separated).split(" ") if word]


def _character_class(code_points: Iterable[int]) -> str:
    return "".join(f"\\x{code_point:02x}" for code_point in code_points)


class _SeparatedCharacters(dict[int, str]):
    """Code point → the character with spaces where the pre-tokenizer splits. For `str.translate`."""

    def __init__(self, pre_tokenizer: tokenizers.pre_tokenizers.PreTokenizer):
        super().__init__()
        self.pre_tokenizer = pre_tokenizer

    def __missing__(self, code_point: int) -> str:
        character = chr(code_point)
        # Between letters, since a character alone would be a token whether or not it splits.
        parts = [part for part, _ in self.pre_tokenizer.pre_tokenize_str(f"a{character}a")]
        joined = {1: character, 2: " ", 3: f" {character} "}[len(parts)]
        self[code_point] = joined
        return joined
