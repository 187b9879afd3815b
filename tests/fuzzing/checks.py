"""A dataset against the file it was prepared from: no row lost, none out of order, untouched rows as they were."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

from fuzzing.files import Base, first_of
from fuzzing.truth import Truth
from tokenizers import decoders

from seqclf.data.encoding.tree_tokenizer import INNER
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.ragged import Split


def kept_rows(base: Base, dataset: Dataset, found: Truth) -> Iterator[str]:
    """Used and refused rows are all rows, and what is refused is written down."""
    total = sum(part["used"] + part["refused"] for part in dataset.report.values())
    refused = sum(part["refused"] for part in dataset.report.values())
    if found.damage is not None:
        yield f"a damaged file was taken for whole, {total} rows ({found.damage})"
    if found.rows is not None and not found.rows[0] <= total <= found.rows[1]:
        yield f"rows: {total} used and refused, but the file has {found.rows[0]}"
    if total < len(found.places or {}):
        yield f"rows: {total} used and refused, but {len(found.places or {})} are untouched"
    path = dataset.folder / "quarantine.jsonl"
    written = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    of_rows = [line for line in written if not base.events or "line" not in json.loads(line)]
    if len(of_rows) != refused:
        yield f"quarantine: {len(of_rows)} lines for {refused} refused rows"
    events = sum(part.get("events", 0) for part in dataset.report.values())
    if found.events is not None and events != found.events:
        yield f"events: {events} used and refused, but the file has {found.events}"
    for line in written:
        if not str(json.loads(line).get("reason", "")).strip():
            yield f"quarantine: no reason: {line[:300]}"
    for name, split in dataset.splits.items():
        if len(split.labels) != dataset.report[name]["used"]:
            yield f"{name}: {len(split.labels)} rows stored, {dataset.report[name]['used']} reported"


def kept_order(base: Base, dataset: Dataset, found: Truth) -> Iterator[str]:
    """Rows of a split come as in the file, groups of events by their key; numbers of rows and ids belong together."""
    places = found.places or {}
    for name, split in dataset.splits.items():
        rows, keys = split.rows.tolist(), keys_of(base, dataset, split)
        if base.events:
            if keys != sorted(keys):
                yield f"{name}: groups are not in order: {keys}"
            continue
        known = [places[key] for key in keys if key in places]
        if known != sorted(known):
            yield f"{name}: rows are in another order than in the file: {keys}"
        if base.form in ("separated", "json", "columnar", "series") and rows != sorted(set(rows)):
            yield f"{name}: numbers of rows do not ascend: {rows}"
        if found.keys is not None and base.options.get("id", "id") == "id":
            wrong = [(row, key) for row, key in zip(rows, keys, strict=True) if found.keys[row - 1] != key]
            if wrong:
                yield f"{name}: ids of other rows: {wrong[:3]}"


def kept_steps(base: Base, dataset: Dataset, found: Truth) -> Iterator[str]:
    """Steps of untouched rows are what the base says."""
    expected = base.steps()
    for name, split in dataset.splits.items():
        keys, stored = keys_of(base, dataset, split), steps_of(base, dataset, split)
        for key, steps in zip(keys, stored or [], strict=stored is not None):
            if key in (found.places or {}) and not same(steps, wanted(base, expected[key])):
                yield f"{name}: '{key}' has the steps {steps} instead of {expected[key]}"


def keys_of(base: Base, dataset: Dataset, split: Split) -> list[str]:
    if base.key:
        return split.ids.to_pylist()
    return [
        str(first_of(steps)) if steps else "" for steps in steps_of(base, dataset, split) or [[]] * len(split.labels)
    ]


def wanted(base: Base, steps: list[Any]) -> list[Any]:
    return re.findall(r"k\w+|w\d", steps[0]) if base.options["fields"].get(base.main) == "tree" else steps


def same(steps: list[Any], expected: list[Any]) -> bool:
    """Whether steps are the expected ones, None being any; texts but for space at the end."""
    given, flat = list(_flat(steps)), list(_flat(expected))
    return len(given) == len(flat) and all(
        own is None or own == entry or str(own).rstrip() == str(entry).rstrip()
        for own, entry in zip(given, flat, strict=True)
    )


def _flat(steps: list[Any]) -> Iterator[Any]:
    for step in steps:
        yield from _flat(step) if isinstance(step, list) else [step]


def steps_of(base: Base, dataset: Dataset, split: Split) -> list[list[Any]] | None:
    """Of each sequence the values its encoded steps stand for, None where training has not seen one; null where the
    encoder of the main field does not keep them."""
    chosen = next((entry for entry in dataset.schema.fields if entry.name == base.main), None)
    encoder: Any = dataset.encoders.get(base.main)
    if chosen is None or chosen.kind == "time":
        return None
    encoded, bounds = split.sequences.fields[base.main].tolist(), split.sequences.offsets.tolist()
    cut = [encoded[start:stop] for start, stop in itertools.pairwise(bounds)]
    if chosen.kind == "number":
        return cut if chosen.option("scale") == "none" else None
    if chosen.kind == "text":
        if chosen.option("tokenizer") != "byte":
            return None
        letters, decoder = encoder.tokenizer.id_to_token, decoders.ByteLevel()
        return [[decoder.decode([letters(step) for step in steps])] for steps in cut]
    known = [None, *(encoder.tokens if chosen.kind == "tree" else encoder.values.to_pylist())]
    return [[known[step] for step in steps if known[step] != INNER] for steps in cut]
