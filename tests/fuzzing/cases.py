"""Fuzzing cases: one mutated file is prepared and read, and every violated property is recorded as a finding."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from fuzzing.bases import bases
from fuzzing.checks import check_order, check_rows, check_tokens
from fuzzing.columns import TABLE
from fuzzing.files import Base, write
from fuzzing.mutations import applicable, change_file
from fuzzing.truth import truth

from seqclf.data.encoding import row_checks
from seqclf.data.encoding.encoders import encode
from seqclf.data.prepare_data import prepare
from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.sources import Source
from seqclf.data.schema.rows import as_text
from seqclf.data.schema.schema import require_columns
from seqclf.data.storage.dataset import Dataset
from seqclf.errors import InputError
from seqclf.settings.data_settings import DataOptions

MAX_MESSAGE_CHARACTERS = 600
PREDICTED_EVERY = 10
NOTE = re.compile("static fields, of one value per sequence: .*\n")
PLACE = re.compile(r"data\.\w|\.(csv|tsv|txt|jsonl|parquet|arrow|ts|gz)\b|folder")


@dataclass
class Outcome:
    """Outcome of a case. `status`: success, error or traceback of the preparation. `findings`: violated properties."""

    number: int
    kind: str
    mutations: list[str]
    status: str = ""
    message: str = ""
    findings: list[str] = field(default_factory=list)


@dataclass
class Case:
    """One mutated file and the data options to read it."""

    number: int
    base: Base
    mutations: list[str]
    options: dict[str, Any]
    files: list[Path]

    @property
    def kind(self) -> str:
        return self.base.kind

    def build(self, folder: Path, **overrides: Any) -> DataOptions:
        return DataOptions.build(**{**self.options, "cache_dir": str(folder / "cache"), **overrides})


def options_of(base: Base, folder: Path) -> dict[str, Any]:
    """Return the data options that read a base file in `folder`."""
    overrides = {
        "train": str(folder / base.train),
        "label": "label",
        "id": "id" if base.key and not base.events else None,
    }
    overrides["labels"] = str(folder / "labels.csv") if base.labels else None
    infer = not base.options.get("fields")
    return {"infer": infer, **overrides, **base.options, "cache_dir": str(folder / "cache")}


def make_case(seed: int, number: int, folder: Path) -> Case:
    """Write the mutated file of a number. The same seed and number give the same file."""
    random = np.random.default_rng([seed, number])
    base = list(bases().values())[number % len(bases())]
    if random.integers(10) == 0:
        folder = folder / "it's [1] file"
    folder.mkdir(parents=True, exist_ok=True)
    names = [str(name) for name in random.choice(applicable(base), 1 + int(random.choice(3, p=[0.6, 0.25, 0.15])))]
    columns = base.columns
    for name in names:
        if name in TABLE:
            columns = TABLE[name](random, columns)
    files = write(base, folder, columns)
    for name in names:
        if name not in TABLE and files:
            change_file(random, name, files[int(random.integers(len(files)))], base.encoding)
    options = options_of(base, folder)
    if random.integers(2):
        options["max_bad_share"] = 1.0
    if random.integers(4) == 0:
        options["fields"] = None
    return Case(number, base, names, options, files)


def examine(case: Case, folder: Path) -> Outcome:
    """Prepare the file of a case. Also read every tenth file as for predictions."""
    outcome = Outcome(case.number, case.base.kind, case.mutations)
    with _quiet(outcome.findings):
        guarded(outcome, lambda: _prepared(case, folder, outcome))
        if case.number % PREDICTED_EVERY == 0:
            guarded(outcome, lambda: _read(case, outcome.findings), "reading: ")
    return outcome


def guarded(outcome: Outcome, run: Any, prefix: str = "", faults_of: Any = None) -> None:
    """Call `run`. Anything but success or an InputError of one clear line is a finding.

    `faults_of`: function that yields the faults of a message, by default `message_faults`.
    """
    try:
        run()
        outcome.status = outcome.status or "success"
    except InputError as error:
        outcome.status = outcome.status or "error"
        outcome.message = outcome.message or str(error)
        outcome.findings += [prefix + fault for fault in (faults_of or message_faults)(str(error))]
    except BaseException as error:
        outcome.status = outcome.status or "traceback"
        last = traceback.extract_tb(error.__traceback__)[-1]
        frames = [entry for entry in traceback.extract_tb(error.__traceback__) if "/seqclf/" in entry.filename]
        where = frames[-1] if frames else last
        text = f"{type(error).__name__}: {str(error)[:300]}"
        outcome.findings.append(f"{prefix}traceback at {Path(where.filename).name}:{where.lineno}: {text}")


def message_faults(message: str, place: re.Pattern[str] = PLACE) -> Iterator[str]:
    """Yield the faults of the message of an InputError. `place`: pattern of the names of files and keys."""
    shown = message[:MAX_MESSAGE_CHARACTERS]
    if not message.strip():
        yield "empty message"
    if "\n" in message or "\r" in message:
        yield f"message of several lines: {shown!r}"
    elif not message.isprintable() and re.search(r"[\x00-\x1f\x7f]", message):
        yield f"control characters in the message: {shown!r}"
    if len(message) > MAX_MESSAGE_CHARACTERS:
        yield f"message of {len(message)} characters: {shown[:200]!r}"
    if not place.search(message):
        yield f"message names no file and no key: {shown!r}"


@contextmanager
def _quiet(findings: list[str]) -> Iterator[None]:
    """Record a finding if anything is written to the terminal."""
    written: list[str] = []
    with terminal_output(written):
        yield
    findings += [f"written to the terminal: {text[:400]!r}" for text in written if not NOTE.fullmatch(text)]


@contextmanager
def terminal_output(written: list[str]) -> Iterator[None]:
    """Add all that is written to the terminal, warnings included, to the list `written` as one text."""
    # Redirecting file descriptors also catches the output of native libraries.
    with tempfile.TemporaryFile() as captured, warnings.catch_warnings():
        warnings.simplefilter("always")
        for kind in (DeprecationWarning, PendingDeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", kind)
        copies = [os.dup(1), os.dup(2)]
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            for stream in (1, 2):
                os.dup2(captured.fileno(), stream)
            with open(2, "w", closefd=False) as stderr, redirect_stderr(stderr):
                yield
        finally:
            for stream, copy in zip((1, 2), copies, strict=True):
                os.dup2(copy, stream)
                os.close(copy)
        captured.seek(0)
        if content := captured.read():
            written.append(content.decode("utf-8", "replace"))


def _prepared(case: Case, folder: Path, outcome: Outcome) -> None:
    cache_dir = folder / "cache"
    try:
        dataset = prepare(case.build(folder))
    except InputError:
        leftovers = [path.name for path in cache_dir.iterdir()] if cache_dir.exists() else []
        if leftovers:
            outcome.findings.append(f"left in the cache: {leftovers}")
        raise
    expected = truth(case.base, case.files)
    for check in (check_rows, check_order, check_tokens):
        outcome.findings += check(case.base, dataset, expected)


@cache
def clean(kind: str) -> Dataset:
    """The dataset of a base without mutations."""
    base = bases()[kind]
    folder = Path(tempfile.mkdtemp(prefix="fuzz-clean-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write(base, folder, base.columns)
    return prepare(DataOptions.build(**options_of(base, folder)))


def _read(case: Case, findings: list[str]) -> None:
    """Read the mutated file like a classifier that was trained on the valid one: every row in order, or an error."""
    known = clean(case.base.kind)
    source = Source(str(case.options["train"]), "input", **known.reader)
    rows: list[int] = []
    ids: list[Any] = []
    with SourceReader(source) as reader:
        types = reader.column_types
        require_columns(known.schema.columns, types, str(source))
        schema = replace(known.schema, label=None, id=known.schema.id if known.schema.id in types else None)
        for batch in reader.read(schema):
            rows += batch.row_numbers.tolist()
            ids += as_text(batch.columns.column("id")).to_pylist() if "id" in batch.columns.schema.names else []
            usable = np.flatnonzero(
                row_checks.check_rows(batch.columns, known.schema, known.encoders, labelled=False).usable
            )
            encode(known.encoders, batch.columns.take(usable), known.schema.truncation)
    expected = truth(case.base, case.files)
    if expected.damage is not None:
        findings.append(f"reading: a damaged file was read as {len(rows)} rows ({expected.damage})")
    if expected.rows is not None and not expected.rows[0] <= len(rows) <= expected.rows[1]:
        findings.append(f"reading: {len(rows)} rows, but the file has {expected.rows[0]}")
    if len(case.files) == 1 and not case.base.events and rows != list(range(1, len(rows) + 1)):
        findings.append(f"reading: rows are numbered {rows}")
    positions = [expected.untouched[key] for key in ids if key in (expected.untouched or {})]
    if not case.base.events and positions != sorted(positions):
        findings.append("reading: rows are in another order")
