"""Checks of a dataset against the file it was prepared from: no row is lost, moved or changed."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

from fuzzing.files import Base, first_of
from fuzzing.truth import Truth
from tokenizers import decoders

from seqclf.data.encoding.kinds.tree import INNER
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.store import Split


def check_rows(base: Base, dataset: Dataset, truth: Truth) -> Iterator[str]:
    """Yield a finding unless all rows are used or refused, and every refused row is in the quarantine."""
    total = sum(part.used + part.refused for part in dataset.report.values())
    refused = sum(part.refused for part in dataset.report.values())
    if truth.damage is not None:
        yield f"a damaged file was read as {total} rows ({truth.damage})"
    if truth.rows is not None and not truth.rows[0] <= total <= truth.rows[1]:
        yield f"rows: {total} used and refused, but the file has {truth.rows[0]}"
    if total < len(truth.untouched or {}):
        yield f"rows: {total} used and refused, but {len(truth.untouched or {})} are untouched"
    path = dataset.folder / "quarantine.jsonl"
    written = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    row_lines = [line for line in written if not base.events or "line" not in json.loads(line)]
    if len(row_lines) != refused:
        yield f"quarantine: {len(row_lines)} lines for {refused} refused rows"
    events = sum(part.events or 0 for part in dataset.report.values())
    if truth.events is not None and events != truth.events:
        yield f"events: {events} used and refused, but the file has {truth.events}"
    for line in written:
        if not str(json.loads(line).get("reason", "")).strip():
            yield f"quarantine: no reason: {line[:300]}"
    for name, split in dataset.splits.items():
        if len(split.labels) != dataset.report[name].used:
            yield f"{name}: {len(split.labels)} rows stored, {dataset.report[name].used} reported"


def check_order(base: Base, dataset: Dataset, truth: Truth) -> Iterator[str]:
    """Yield a finding unless rows keep the order of the file, groups that of their keys, and ids their rows."""
    untouched = truth.untouched or {}
    for name, split in dataset.splits.items():
        rows, keys = split.row_numbers.tolist(), keys_of(base, dataset, split)
        if base.events:
            if keys != sorted(keys):
                yield f"{name}: groups are not in order: {keys}"
            continue
        positions = [untouched[key] for key in keys if key in untouched]
        if positions != sorted(positions):
            yield f"{name}: rows are in another order than in the file: {keys}"
        if base.form in ("separated", "json", "columnar", "series") and rows != sorted(set(rows)):
            yield f"{name}: row numbers do not ascend: {rows}"
        if truth.keys is not None and base.options.get("id", "id") == "id":
            wrong = [(row, key) for row, key in zip(rows, keys, strict=True) if truth.keys[row - 1] != key]
            if wrong:
                yield f"{name}: ids of other rows: {wrong[:3]}"


def check_tokens(base: Base, dataset: Dataset, truth: Truth) -> Iterator[str]:
    """Yield a finding for each untouched row whose tokens are not those of the base."""
    expected = base.tokens()
    for name, split in dataset.splits.items():
        keys, stored = keys_of(base, dataset, split), decoded_tokens(base, dataset, split)
        for key, tokens in zip(keys, stored or [], strict=stored is not None):
            if key in (truth.untouched or {}) and not tokens_match(tokens, comparable_tokens(base, expected[key])):
                yield f"{name}: '{key}' has the tokens {tokens} instead of {expected[key]}"


def keys_of(base: Base, dataset: Dataset, split: Split) -> list[str]:
    """Return the key of each row: its id, or the first token in a file without ids."""
    if base.key:
        return split.ids.to_pylist()
    decoded = decoded_tokens(base, dataset, split) or [[]] * len(split.labels)
    return [str(first_of(tokens)) if tokens else "" for tokens in decoded]


def comparable_tokens(base: Base, tokens: list[Any]) -> list[Any]:
    """Return the tokens of a row. Trees are reduced to their leaves."""
    return re.findall(r"k\w+|w\d", tokens[0]) if base.options["fields"].get(base.main) == "tree" else tokens


def tokens_match(tokens: list[Any], expected: list[Any]) -> bool:
    """Return True if the tokens equal the expected ones. None matches anything, and trailing space is ignored."""
    values, expected_values = list(_flat(tokens)), list(_flat(expected))
    return len(values) == len(expected_values) and all(
        value is None or value == other or str(value).rstrip() == str(other).rstrip()
        for value, other in zip(values, expected_values, strict=True)
    )


def _flat(tokens: list[Any]) -> Iterator[Any]:
    for token in tokens:
        yield from _flat(token) if isinstance(token, list) else [token]


def decoded_tokens(base: Base, dataset: Dataset, split: Split) -> list[list[Any]] | None:
    """Return the decoded tokens of each sequence, with None for a value that training has not seen.

    The result is None if the encoder of the main field does not keep values.
    """
    main = next((entry for entry in dataset.schema.fields if entry.name == base.main), None)
    encoder: Any = dataset.encoders.get(base.main)
    if main is None or main.kind == "time":
        return None
    encoded, bounds = split.sequences.fields[base.main].tolist(), split.sequences.offsets.tolist()
    rows = [encoded[start:stop] for start, stop in itertools.pairwise(bounds)]
    if main.kind == "number":
        return rows if encoder.option("scale") == "none" else None
    if main.kind == "text":
        if encoder.option("tokenizer") != "byte":
            return None
        letters, decoder = encoder.tokenizer.id_to_token, decoders.ByteLevel()
        return [[decoder.decode([letters(token) for token in tokens])] for tokens in rows]
    values = [None, *(encoder.tokens if main.kind == "tree" else encoder.vocabulary.values.to_pylist())]
    return [[values[id] for id in ids if values[id] != INNER] for ids in rows]
