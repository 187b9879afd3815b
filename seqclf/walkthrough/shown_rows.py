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
from seqclf.data.encoding.encoders import encode, tokens_of
from seqclf.data.encoding.row_checks import check_encoded_lengths, check_rows
from seqclf.data.ragged import Ragged, row_inputs, take
from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.source_errors import no_rows
from seqclf.data.reading.sources import Source, fetched
from seqclf.data.schema.casts import ID, LABEL
from seqclf.data.schema.schema import require_columns
from seqclf.data.storage.dataset import described_encoders
from seqclf.data.storage.store import Split, subset
from seqclf.documents.formatting import plain_number, shortened
from seqclf.errors import InputError
from seqclf.system.state_validation import error_context

MAX_NUMBER_CHARACTERS = 10  # maximum length of a number that is shown as the text of a token
MAX_NAME_CHARACTERS = 24
MAX_TEXT_CHARACTERS = 2000  # characters kept of a raw cell


@dataclass(frozen=True)
class ShownRows:
    """B encoded rows with their original texts.

    `names`: number of each row from 1, followed by its name in the input if there is one. `labels`: true label of each
    row, or `None` if the label is unknown. `cells`: for each row, a dict field → original text. `tokens`: dict field →
    list of token texts for each row. `sequences`: encoded rows. `original_lengths`: (B,) number of tokens of each row
    before truncation. `refused`: one reason for each rejected row of the input.
    """

    names: list[str]
    labels: list[str | None]
    cells: list[dict[str, str]]
    tokens: Mapping[str, list[list[str]]]
    sequences: Ragged
    encoders: Mapping[str, FieldEncoder]
    original_lengths: np.ndarray
    refused: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.names)

    def fields_of(self, row: int) -> dict[str, np.ndarray]:
        """Return the encoded values of one row (see `row_inputs`)."""
        return row_inputs(self.sequences, row)

    @property
    def token_texts(self) -> list[list[str]] | None:
        """One list of short token texts for each row, or `None` if tokens are vectors of numbers."""
        of_tokens = tokens_of(self.encoders)
        name, encoder = next(iter(of_tokens.items()))
        if encoder.spec()["kind"] == "category":
            return self.tokens[name]
        texts = [
            [" ".join(parts) for parts in zip(*of_row, strict=True)]
            for of_row in zip(*(self.tokens[name] for name in of_tokens), strict=True)
        ]
        are_numbers = all(encoder.spec()["kind"] == "number" for encoder in of_tokens.values())
        longest = max(len(text) for row in texts for text in row)
        return None if are_numbers and longest > MAX_NUMBER_CHARACTERS else texts


def row_names(names: Sequence[str], word: str) -> list[str]:
    """Return the number of each row. If the input has other names, each number is followed by the name.

    >>> row_names(["1", "2"], "id"), row_names(["a"], "id")
    (['1', '2'], ['1 (id a)'])
    """
    numbers = [str(number) for number in range(1, len(names) + 1)]
    if list(names) == numbers:
        return numbers
    given = [shortened(f"{word} {name}", MAX_NAME_CHARACTERS) for name in names]
    return [f"{number} ({name})" for number, name in zip(numbers, given, strict=True)]


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
        """Read one sequence from the command line.

        `text`: a plain text, a JSON list of tokens, or a JSON object field → list. Raise InputError if the sequence is
        invalid.
        """
        parsed = self.encoders[self.schema.fields[0].name].parse(text)
        return self.of_values([parsed], f"sequence={text}")

    def of_values(self, sequences: Sequence[Any], name: str) -> ShownRows:
        """Encode sequences that are given as Python objects. Raise InputError for an invalid row.

        `name`: setting that has the sequences. Error messages mention this setting.
        """
        require_unchanged_fields(self.reader["query"], self.schema, name, "give a file: input=FILE")
        columns, errors = PythonRows(self.schema, self.encoders).to_columns(sequences)
        rows = self._encoded(columns, [str(row + 1) for row in range(len(sequences))], "row")
        for error in [*filter(None, errors), *rows.refused]:
            # An error about a single sequence has no row number.
            raise InputError(name, error.removeprefix("row 1: ") if len(sequences) == 1 else error)
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
        columns = columns.slice(0, most)
        has_ids = ID in columns.schema.names
        named = columns.column(ID).to_pylist() if has_ids else range(1, columns.num_rows + 1)
        rows = self._encoded(columns, [str(name) for name in named], "id" if has_ids else "input row")
        if not len(rows):
            raise InputError(source, f"none of the first {columns.num_rows} rows can be used: {rows.refused[0]}")
        return rows

    def of_split(self, split: Split, classes: Sequence[str], most: int) -> ShownRows:
        """Take at most `most` evenly spaced rows of a prepared split.

        Even spacing reaches all classes of a split that is sorted by class.
        """
        count = len(split.sequences)
        chosen = subset(split, np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(int)))
        names = [str(name) for name in chosen.ids.to_pylist()]
        # In data without ids, the ids are row numbers.
        word = "data row" if names == [str(number) for number in chosen.row_numbers.tolist()] else "id"
        decoded = self._decoded(chosen.sequences)
        # Prepared data does not keep all original cells. The other cells are decoded from the encoded tokens.
        cells = []
        for row in range(len(names)):
            original = {} if chosen.texts is None else chosen.texts.of_row(row)
            joined = {name: self.encoders[name].token_separator.join(rows[row]) for name, rows in decoded.items()}
            cells.append(joined | {name: text for name, text in original.items() if name in joined})
        return ShownRows(
            names=row_names(names, word),
            labels=[classes[label] for label in chosen.labels],
            cells=cells,
            tokens=decoded,
            sequences=chosen.sequences,
            encoders=self.encoders,
            original_lengths=chosen.lengths_before_truncation,
        )

    def _decoded(self, sequences: Ragged) -> dict[str, list[list[str]]]:
        """Return dict field → list of token texts for each row."""
        rows = [row_inputs(sequences, row) for row in range(len(sequences))]
        return {name: [encoder.decode(fields) for fields in rows] for name, encoder in self.encoders.items()}

    def _values(self, columns: pa.RecordBatch, row: int) -> dict[str, Any]:
        """Return dict field → readable value of the canonical cell of a row."""
        return {name: each.known_values(columns.column(name)[row].as_py()) for name, each in self.encoders.items()}

    def _encoded(self, columns: pa.RecordBatch, names: list[str], word: str) -> ShownRows:
        """Encode the valid rows of `columns`, whose cells already have the types of the schema.

        `names`, `word`: see `row_names`.
        """
        problems = check_rows(columns, self.schema, self.encoders, labelled=False)
        usable = np.flatnonzero(problems.usable)
        sequences, lengths = encode(self.encoders, columns.take(pa.array(usable)), self.schema.truncation)
        check_encoded_lengths(usable, lengths, self.schema, problems)
        kept = np.flatnonzero(problems.usable[usable])
        rows = usable[kept]
        used = columns.take(pa.array(rows))
        labels = used.column(LABEL).to_pylist() if LABEL in used.schema.names else [None] * len(rows)
        sequences = take(sequences, kept)
        cut = self.schema.truncation.cut_lists(used, tokens_of(self.encoders))
        as_given = {
            name: [list(map(cell_text, encoder.known_values(cell))) for cell in cut.column(name).to_pylist()]
            for name, encoder in self.encoders.items()
            if pa.types.is_list(cut.column(name).type)
        }
        return ShownRows(
            names=row_names([names[row] for row in rows], word),
            labels=labels,
            cells=[
                {
                    name: cell_text(value[0] if self.encoders[name].field.static else value)[:MAX_TEXT_CHARACTERS]
                    for name, value in self._values(used, row).items()
                }
                for row in range(len(rows))
            ],
            tokens=self._decoded(sequences) | as_given,
            sequences=sequences,
            encoders=self.encoders,
            original_lengths=lengths[kept],
            refused=[
                f"{word} {names[row]}: {problem.column} {problem.reason}"
                for row, problem in sorted(problems.first_problems.items())
            ],
        )


def cell_text(value: Any) -> str:
    """Return a cell, or an element of a list cell, as text.

    Numbers have six significant digits. Digits before the decimal point are never rounded away.

    >>> cell_text([[0.1, 1 / 3], [2.0, None]])
    '[[0.1, 0.333333], [2, None]]'
    """
    if isinstance(value, float):
        return plain_number(value, digits=6)
    if isinstance(value, list):
        return f"[{', '.join(map(cell_text, value))}]"
    return str(value)
