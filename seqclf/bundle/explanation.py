"""Explanations of predictions: the contribution of each token to the prediction of its sequence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired

import numpy as np
import pyarrow as pa

from seqclf.bundle.occlusion import Contributions, Score, apart_fields, log_odds, occlude
from seqclf.bundle.predictions import Result, SequencePrediction, row_ids, to_library
from seqclf.bundle.windows import RunWindows, id_type, run_windows, source_windows
from seqclf.data.encoding.encoders import encode, static_of, token_texts
from seqclf.data.encoding.token_table import DescribedRow
from seqclf.data.field_spec import PARENTS
from seqclf.data.ragged import Ragged
from seqclf.data.reading.sources import Source
from seqclf.system import progress

if TYPE_CHECKING:
    from seqclf.bundle.model import BundleModel
    from seqclf.bundle.predictions import Predictions


WINDOW_ROWS = 1024  # number of rows that are read from a source at once
WINDOW_TOKENS = 100_000  # approximate number of tokens that are explained and written at once
UNIT = "sequences"  # unit of the progress bar; `BundleModel.logits` reports masked copies as "rows"


class Explanation(SequencePrediction):
    """Prediction of one sequence, with the contribution of each token.

    `tokens`: text of each token of the truncated sequence. `contributions`: of each token.
    `contributions_by_field`: dict field name → list of its contributions, empty for a single field.
    `contributions_of_static`: dict static field → contribution. `parents`: for a tree, the index of each node's parent
    in `tokens`, -1 for the root; children come before their parent. For a rejected sequence, all keys but `error` are
    None.
    """

    tokens: list[str] | None
    parents: NotRequired[list[int] | None]
    contributions: list[float] | None
    contributions_by_field: dict[str, list[float]] | None
    contributions_of_static: dict[str, float] | None


class ExplainedRows(NamedTuple):
    """Explanations of N consecutive rows. The accepted rows have S tokens in total.

    `positions`: (S,) position of each token in its untruncated row, counted from 1. `texts`: (S,) text of each token.
    `parents`: (S,) index of each node's parent in the row of the node, -1 for a root; None if the rows are not trees.
    """

    predictions: Predictions
    positions: np.ndarray
    texts: list[str]
    contributions: Contributions
    parents: np.ndarray | None = None


def explain_rows(
    classifier: BundleModel, columns: pa.RecordBatch, value_errors: Sequence[str | None], *, by_field: bool
) -> Iterator[Explanation]:
    """Yield the explanation of each Python row. `columns`, `value_errors`: see `PythonRows.to_columns`."""
    first = 0  # index of the first row of a block
    for rows in explain_columns(classifier, columns, by_field=by_field):
        lengths, start, used = rows.predictions.kept.tolist(), 0, 0
        errors = value_errors[first : first + len(lengths)]
        first += len(lengths)
        predictions = classifier.sequence_predictions(rows.predictions, errors)
        for prediction, length in zip(predictions, lengths, strict=True):
            stop = start + length
            tokens = contributions = by_name = static = None
            if prediction["error"] is None:
                tokens, contributions = rows.texts[start:stop], rows.contributions.tokens[start:stop].tolist()
                by_name = {name: values[start:stop].tolist() for name, values in rows.contributions.by_field.items()}
                static = {name: float(values[used]) for name, values in rows.contributions.static.items()}
                used += 1
            of_parts = {"contributions_by_field": by_name, "contributions_of_static": static}
            explanation: Any = {**prediction, "tokens": tokens, "contributions": contributions, **of_parts}
            if rows.parents is not None:
                explanation["parents"] = None if tokens is None else rows.parents[start:stop].tolist()
            yield explanation
            start = stop


def explain_columns(classifier: BundleModel, columns: pa.RecordBatch, *, by_field: bool) -> Iterator[ExplainedRows]:
    """Explain rows of canonical columns, in contiguous blocks of about `WINDOW_TOKENS` tokens."""
    predictions = classifier.predict_columns(columns)
    truncation = classifier.schema.truncation
    part = np.cumsum(predictions.kept) // WINDOW_TOKENS
    for rows in np.split(np.arange(len(part)), np.flatnonzero(np.diff(part)) + 1):
        if not len(rows):
            continue
        some = predictions.part(int(rows[0]), int(rows[-1]) + 1)
        usable = np.flatnonzero(some.lengths > 0)
        sequences = encode(classifier.encoders, columns.take(pa.array(rows[usable])), truncation).sequences
        score = _score(classifier, some.predicted[usable])
        contributions = occlude(classifier.encoders, sequences, score, by_field=by_field)
        kept = some.kept
        skipped = some.lengths - kept if truncation.side == "keep_last" else np.zeros_like(kept)
        positions = np.arange(1, int(kept.sum()) + 1) - np.repeat(np.cumsum(kept) - kept - skipped, kept)
        texts = token_texts(classifier.encoders, sequences.fields)
        progress.advance(UNIT, len(rows))
        yield ExplainedRows(some, positions, texts, contributions, sequences.fields.get(PARENTS))


def _score(classifier: BundleModel, predicted: np.ndarray) -> Score:
    return lambda copies, rows: log_odds(classifier.decision.scaled(classifier.logits(copies)), predicted[rows])


def explain_batch(
    classifier: BundleModel, columns: pa.RecordBatch, first_row: int, *, by_field: bool
) -> Iterator[Result]:
    """Explain the rows of one window. Yield one result for each contiguous block of rows."""
    ids = row_ids(columns, first_row)
    for rows in explain_columns(classifier, columns, by_field=by_field):
        table = explanations_table(rows, classifier, ids, by_field=by_field)
        yield Result(table, rows.predictions.counts)
        ids = ids.slice(len(rows.predictions.kept))


def explain_source(
    classifier: BundleModel, source: Source, *, by_field: bool, run: RunWindows = run_windows
) -> Iterator[Result]:
    """Explain the rows of a source. Yield the results in the order of the rows. `run`: see `run_windows`."""
    return run(
        source_windows(classifier.schema, source, verb="explaining", unit=UNIT, window_rows=WINDOW_ROWS),
        lambda windows: (
            list(explain_batch(classifier, window.columns, window.first_row, by_field=by_field)) for window in windows
        ),
    )


def explain_table(classifier: BundleModel, data: Any, *, by_field: bool) -> Any:
    """Explain the rows of a table. Return a table of the same library, with one row for each token."""
    source = classifier.table_source(data)
    results = explain_source(classifier, source, by_field=by_field)
    names = explanations_schema(classifier, None, by_field=by_field).names

    def empty() -> pa.Schema:
        return explanations_schema(classifier, id_type(classifier.schema, source), by_field=by_field)

    return to_library(results, empty, data, names, same_rows=False)


def explanations_schema(classifier: BundleModel, ids: pa.DataType | None, *, by_field: bool) -> pa.Schema:
    """Return the schema of an explanation table.

    The columns are `id`, `prediction`, `probability`, `position`, for trees `parent`, `token`, `contribution` and
    `error`, and `contribution_<field>` for each static field, with the same value in all tokens of a row, and with
    `by_field` for each field of `apart_fields`.
    """
    columns = [("id", ids or pa.int64()), ("prediction", classifier.labels.type)]
    columns += [("probability", pa.float64()), ("position", pa.int64())]
    columns += [("parent", pa.int64())] if classifier.reads_trees else []
    columns += [("token", pa.string()), ("contribution", pa.float64())]
    names = [*(apart_fields(classifier.encoders) if by_field else []), *static_of(classifier.encoders)]
    columns += [(f"contribution_{name}", pa.float64()) for name in names]
    return pa.schema([*columns, ("error", pa.string())])


def explanations_table(
    rows: ExplainedRows, classifier: BundleModel, ids: pa.Array, *, by_field: bool
) -> pa.RecordBatch:
    """Return an explanation table: a row for each token, and a row with id and error for each rejected row.

    `ids`: ids of the rows, or of these rows and more.
    """
    predictions, by_name = rows.predictions, rows.contributions.by_field
    kept = predictions.kept[predictions.kept > 0]
    static = [np.repeat(values, kept) for values in rows.contributions.static.values()]
    refused = predictions.kept == 0
    row_of_line = np.repeat(np.arange(len(refused)), np.where(refused, 1, predictions.kept))
    no_token = refused[row_of_line]
    best = np.where(refused, 0, predictions.predicted)
    probability = predictions.probabilities[np.arange(len(best)), best]

    def column(values: Any, kind: pa.DataType) -> pa.Array:
        # Masked entries are set to zero: Arrow also stores masked values, and equal rows must give equal bytes.
        spread = np.zeros(len(no_token), object if kind == pa.string() else kind.to_pandas_dtype())
        spread[~no_token] = values
        missing = no_token | np.isnan(spread) if kind == pa.float64() else no_token
        return pa.array(spread, kind, mask=missing)

    parents = []
    if rows.parents is not None:
        positions = np.zeros(len(no_token), np.int64)
        positions[~no_token] = rows.parents + 1
        parents = [pa.array(positions, mask=positions == 0)]  # a root has no parent
    arrays = [
        ids.take(pa.array(row_of_line)),
        classifier.labels.take(pa.array(best[row_of_line], mask=no_token)),
        pa.array(probability[row_of_line], mask=no_token),
        column(rows.positions, pa.int64()),
        *parents,
        column(rows.texts, pa.string()),
        *(column(values, pa.float64()) for values in (rows.contributions.tokens, *by_name.values(), *static)),
        pa.array(predictions.errors, pa.string()).take(pa.array(row_of_line)),
    ]
    return pa.record_batch(arrays, schema=explanations_schema(classifier, ids.type, by_field=by_field))


MAX_TOKENS = 20_000  # tokens that the model reads to explain one row of a report page: about 0.1 seconds on two cores


def explain_shown(
    classifier: BundleModel, row: DescribedRow, fields: Mapping[str, np.ndarray], predicted: int
) -> DescribedRow:
    """Return a row of a report page with its contributions to class `predicted`.

    They are those of each shown token and static field, none for more than `MAX_TOKENS` tokens to read.
    """
    arrays = {spec["name"]: fields[spec["name"]] for spec in classifier.specs if not spec.get("static")}
    static = {name: fields[name] for name in static_of(classifier.encoders)}
    length, positions = len(next(iter(arrays.values()))), row.table.positions
    if length * (1 + len(positions)) > MAX_TOKENS:
        return row
    sequences, shown = Ragged(np.array([0, length]), arrays, static), np.array(positions, np.int64)
    score = _score(classifier, np.array([predicted]))
    found = occlude(classifier.encoders, sequences, score, by_field=False, tokens=shown)
    of_static = {name: float(values[0]) for name, values in found.static.items()}
    return row._replace(contributions=found.tokens.tolist(), of_static=of_static)
