"""Texts that are split into tokens: the base class of their field kinds, and a fast splitter of words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import tokenizers

from seqclf.data.encoding.field_encoder import FieldEncoder
from seqclf.data.schema.casts import plain, spelled_sql
from seqclf.data.schema.problems import BLANK_REASON, Problems, true_rows
from seqclf.errors import InputError

MAX_CHARACTERS = 2**24  # a tokenizer needs 300 bytes for a character, and ends the process if it has no memory


class RunningTextEncoder(FieldEncoder):
    """A field whose cells are texts that the encoder splits into tokens.

    It must be the only field: another one would need a value per token, but tokens are known only after encoding.
    """

    holds_text = True
    canonical_type = pa.string()

    @property
    def expected(self) -> str:
        return "a text"

    @property
    def remedy_for_lists(self) -> str:
        """Return the remedy that an error suggests if the column holds lists instead of texts."""
        return f"set data.fields.{self.field.name}=category or number"

    def list_sql(self, types: Mapping[str, str], where: str) -> str:
        (column,) = self.field.columns
        kind = types[column]
        if kind.endswith("]"):
            raise InputError(where, f"column '{column}' holds lists ({kind}), not text", self.remedy_for_lists)
        return f"CAST({spelled_sql(plain(column, kind), kind)} AS VARCHAR)"

    def from_python(self, value: Any) -> Any:
        return pa.scalar(value, pa.string()).as_py()

    def parse(self, text: str) -> Any:
        return text

    def check(self, columns: pa.RecordBatch, problems: Problems) -> None:
        blank = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(columns.column(self.field.name)), ""), True)
        problems.mark(true_rows(blank), self.field.column, BLANK_REASON)
        long = pc.greater(pc.utf8_length(columns.column(self.field.name)), MAX_CHARACTERS)
        problems.mark(true_rows(long), self.field.column, f"has more than {MAX_CHARACTERS:,} characters")


class WordSplitter:
    """Splits texts at the same places as `BertPreTokenizer`: at whitespace and around each punctuation character.

    The pre-tokenizer treats a character the same way whatever its neighbours are, so it is asked once for each one.

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
        # Three times as fast as `str.translate`, but for all of Unicode its character classes would be too long.
        self.ascii_words = re.compile(f"[{punctuation}]|[^{punctuation}{spaces}]+").findall

    def words(self, text: str) -> list[str]:
        """Return the words and punctuation characters of a text, after normalization."""
        if text.isascii():  # NFC normalization does not change ASCII
            return self.ascii_words(text.lower() if self.lowercase else text)
        text = self.normalizer.normalize_str(text)
        return [word for word in text.translate(self.separated).split(" ") if word]


def _character_class(code_points: Iterable[int]) -> str:
    return "".join(f"\\x{code_point:02x}" for code_point in code_points)


class _SeparatedCharacters(dict[int, str]):
    """Dict for `str.translate`: code point → the character, with spaces where the pre-tokenizer splits."""

    def __init__(self, pre_tokenizer: tokenizers.pre_tokenizers.PreTokenizer):
        super().__init__()
        self.pre_tokenizer = pre_tokenizer

    def __missing__(self, code_point: int) -> str:
        character = chr(code_point)
        # Without letters around it, a character would always be one token.
        parts = [part for part, _ in self.pre_tokenizer.pre_tokenize_str(f"a{character}a")]
        joined = {1: character, 2: " ", 3: f" {character} "}[len(parts)]
        self[code_point] = joined
        return joined
