"""Rows of a walkthrough: encoded sequences together with their original texts and names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from seqclf.bundle.rows.python_rows import PythonRows, require_unchanged_fields
from seqclf.bundle.rows.windows import required_columns
from seqclf.data.encoding.declaration import stored_schema
from seqclf.data.encoding.encoder import FieldEncoder
from seqclf.data.encoding.encoders import encode
from seqclf.data.encoding.row_checks import check_encoded_lengths, check_rows
from seqclf.data.ragged import Ragged, row_inputs, take
from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.source_errors import no_rows
from seqclf.data.reading.sources import Source, fetched
from seqclf.data.schema.casts import ID, LABEL
from seqclf.data.schema.schema import require_columns
from seqclf.data.storage.dataset import described_encoders
from seqclf.data.storage.store import Split, subset
from seqclf.documents.formatting import shortened
from seqclf.errors import InputError
from seqclf.system.state_validation import error_context

MAX_NAME_CHARACTERS = 24


@dataclass(frozen=True)
class ShownRows:
    """B encoded rows with their original texts.

    `names`: id of each row, or its number from 1. `labels`: true label of each row, or `None` if it is unknown.
    `cells`: for each row, a dict field → original text. `sequences`: encoded rows. `refused`: one reason for each
    rejected row of the input.
    """

    names: list[str]
    labels: list[str | None]
    cells: list[dict[str, str]]
    sequences: Ragged
    encoders: Mapping[str, FieldEncoder]
    refused: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.names)

    def inputs(self, row: int) -> dict[str, np.ndarray]:
        """Return the encoded values of one row (see `row_inputs`)."""
        return row_inputs(self.sequences, row)

    def decoded(self, row: int) -> dict[str, list[str]]:
        """Return dict field → texts of the encoded tokens of one row. A static field has one text."""
        return {name: encoder.decode(self.inputs(row)) for name, encoder in self.encoders.items()}

    @property
    def token_texts(self) -> list[list[str]] | None:
        """One list of token texts for each row, by the first field, or `None` if it has numbers or sets."""
        name, encoder = next(iter(self.encoders.items()))
        return [self.decoded(row)[name] for row in range(len(self))] if encoder.spec()["kind"] == "category" else None


class RowReader:
    """Reads and encodes rows as in the training of a model.

    `description`: stored description of the training dataset (see `Dataset.description`). An invalid description raises
    InputError, because a checkpoint from any source can contain it.
    """

    def __init__(self, description: Mapping[str, Any]):
        with error_context("the dataset that the checkpoint describes", "it is damaged or of another version"):
            self.encoders = described_encoders(description)
        self.schema = stored_schema(description["schema"])
        self.reader: Mapping[str, Any] = description["reader"]

    def of_text(self, text: str) -> ShownRows:
        """Read one sequence from the command line: a plain text, a JSON list of tokens, or a JSON object field → list.

        Raise InputError if the sequence is invalid.
        """
        where = f"sequence={text}"
        parsed = self.encoders[self.schema.fields[0].name].parse(text)
        require_unchanged_fields(self.reader["query"], self.schema, where, "give a file: input=FILE")
        columns, errors = PythonRows(self.schema, self.encoders).to_columns([parsed])
        rows = self._encoded(columns)
        for error in [*filter(None, errors), *rows.refused]:
            raise InputError(where, error.removeprefix("row 1: "))
        return rows

    def of_file(self, path: str, most: int) -> ShownRows:
        """Read the first `most` rows of the input files. Raise InputError if none of these rows is valid."""
        source = fetched(Source(path, "input", **self.reader))
        label = self.schema.label
        unlabelled = () if label is None else (label,)
        with SourceReader(source, null_columns=unlabelled) as reader:
            types = reader.column_types
            require_columns(required_columns(self.schema), types, str(source))
            id = self.schema.id if self.schema.id in types else None
            schema = replace(self.schema, label=label if label in types else None, id=id)
            columns = next((rows.columns for rows in reader.read(schema, rows=most)), None)
        if columns is None:
            raise no_rows(source)
        rows = self._encoded(columns.slice(0, most))
        if not len(rows):
            raise InputError(source, f"none of the first {len(rows.refused)} rows can be used: {rows.refused[0]}")
        return rows

    def of_split(self, split: Split, classes: Sequence[str], most: int) -> ShownRows:
        """Take at most `most` evenly spaced rows of a prepared split.

        Even spacing reaches all classes of a split that is sorted by class.
        """
        count = len(split.sequences)
        chosen = subset(split, np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(int)))
        rows = ShownRows(
            names=[shortened(name, MAX_NAME_CHARACTERS) for name in chosen.ids.to_pylist()],
            labels=[classes[label] for label in chosen.labels],
            cells=[],
            sequences=chosen.sequences,
            encoders=self.encoders,
        )
        for row in range(len(rows)):  # prepared data keeps the original cells of texts only
            texts = {} if chosen.texts is None else chosen.texts.of_row(row)
            decoded = rows.decoded(row).items()
            rows.cells.append(
                {name: texts.get(name, self.encoders[name].token_separator.join(tokens)) for name, tokens in decoded}
            )
        return rows

    def _encoded(self, columns: pa.RecordBatch) -> ShownRows:
        """Encode the valid rows of `columns`, whose cells already have the types of the schema."""
        problems = check_rows(columns, self.schema, self.encoders, labelled=False)
        usable = np.flatnonzero(problems.usable)
        sequences, lengths = encode(self.encoders, columns.take(pa.array(usable)), self.schema.truncation)
        check_encoded_lengths(usable, lengths, self.schema, problems)
        kept = np.flatnonzero(problems.usable[usable])
        rows = usable[kept].tolist()
        given = {name: columns.column(name).to_pylist() for name in columns.schema.names}
        names = [f"id {id}" for id in given[ID]] if ID in given else [f"row {row + 1}" for row in range(len(columns))]
        return ShownRows(
            names=[shortened(names[row].partition(" ")[2], MAX_NAME_CHARACTERS) for row in rows],
            labels=[given[LABEL][row] if LABEL in given else None for row in rows],
            cells=[{name: str(given[name][row]) for name in self.encoders} for row in rows],
            sequences=take(sequences, kept),
            encoders=self.encoders,
            refused=[
                f"{names[row]}: {problem.column} {problem.reason}"
                for row, problem in sorted(problems.first_problems.items())
            ],
        )
