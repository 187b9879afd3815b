"""Predict labels and probabilities of new sequences with a bundle, without PyTorch."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from seqclf.bundle.drift import FieldDrift, InputLimits, RowSample
from seqclf.bundle.explanation import explain_source, explanations_schema
from seqclf.bundle.journal import open_journal, run_identity
from seqclf.bundle.outputs import check_output, open_output
from seqclf.bundle.predictions import Counts, Result
from seqclf.bundle.ray_engine import RayEngine
from seqclf.bundle.runtime import Classifier, table_schema
from seqclf.bundle.token_bars import show_token_bars
from seqclf.bundle.windows import PredictWindows, Window, id_type
from seqclf.data.reading.sources import Source, fetched, local_files
from seqclf.data.schema.schema import Label
from seqclf.documents.terminal import show_line, show_note
from seqclf.errors import InputError
from seqclf.settings.command_settings import PredictConfig
from seqclf.system.json_result import JsonResult

MAX_STRANGE_SHARE = 0.25  # the command prints a warning above this fraction of unknown or far tokens


@dataclass(frozen=True, kw_only=True)
class PredictedSequence(JsonResult):
    """The JSON line of `predict sequence=…`.

    `outputs`: outputs of the network beside the logits, by name, if it has any. `unknown`, `far`: see
    `SequencePrediction`. `provider`, `no_cuda`: see `ModelSession`. The keys from `tokens` on exist only with
    `explain`, and `parents` only for trees (see `Explanation`).
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset(
        {"outputs", "unknown", "far", "no_cuda", "tokens", "parents"}
        | {"contributions", "contributions_by_field", "contributions_of_static"}
    )

    prediction: Label
    probability: float
    probabilities: dict[Label, float]
    outputs: dict[str, Any] | None = None
    unknown: float | None = None
    far: float | None = None
    provider: str
    no_cuda: str | None = None
    tokens: list[str] | None = None
    parents: list[int] | None = None
    contributions: list[float] | None = None
    contributions_by_field: dict[str, list[float]] | None = None
    contributions_of_static: dict[str, float] | None = None


@dataclass(frozen=True, kw_only=True)
class PredictedFile(JsonResult):
    """The JSON line of `predict input=…`.

    `rows`: number of input rows. `refused`: number of rows that were rejected. `unknown_share`: fraction of tokens with
    a value that was not in the training data. `far_share`: fraction of tokens with a number that is more than 10
    standard deviations from the mean of the training data. A high `far_share` suggests a different unit or population.
    `rows_per_s`: rows per second of this process, without the rows that a killed process left (see `Journal`).
    `drift`: fields that drifted since training, None if there are none.
    `provider`, `no_cuda`: see `ModelSession`. `actors`: number of Ray actors, only for `engine=ray`. With `explain`,
    `tokens` is the number of explained tokens, and there are no fractions of tokens.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset(
        {"unknown_share", "far_share", "drift", "no_cuda", "actors", "tokens"}
    )

    output: str
    rows: int
    refused: int
    seconds: float
    rows_per_s: float
    unknown_share: float | None = None
    far_share: float | None = None
    drift: list[FieldDrift] | None = None
    provider: str
    no_cuda: str | None = None
    actors: int | None = None
    tokens: int | None = None


def main(config: PredictConfig) -> PredictedSequence | PredictedFile:
    """Predict one sequence or the rows of a file."""
    if (config.sequence is None) == (config.input is None):
        raise InputError(None, "give either input=FILE output=FILE, or sequence=TEXT_OR_JSON")
    if config.input is not None and config.output is None:
        raise InputError("output", "not set", "give a .parquet, .csv, .jsonl or .arrow file: output=scores.parquet")
    for key in ("embeddings", "running"):
        if getattr(config, key) and config.explain:
            raise InputError(f"{key}=true", "is for predictions", f"remove explain or {key}")
    _check_engine(config)
    # Check the output path first, because the prediction may take hours.
    if config.output is not None:
        check_output(config.output)
    on_ray = config.engine == "ray"  # with Ray, this process does not compute predictions
    classifier = Classifier(
        config.bundle,
        device="cpu" if on_ray else config.device,
        threads=1 if on_ray else config.threads,
        threshold=config.threshold,
        embeddings=config.embeddings,
        running=config.running,
    )
    for line in classifier.warnings:
        show_note(line)
    by_field = None if not config.explain else config.explain != "tokens"
    if config.sequence is not None:
        return predict_text(classifier, config.sequence, by_field)
    return predict_file(classifier, config, by_field)


def _check_engine(config: PredictConfig) -> None:
    """Raise InputError for a setting that the chosen `engine`, or a prediction of one sequence, does not support."""
    limits = [key for key in ("max_refused", "max_far", "max_drift") if getattr(config, key, None) is not None]
    limits += ["engine=ray"] * (config.engine == "ray") + ["running=true"] * config.running
    for key in limits if config.sequence is not None else []:
        raise InputError(key, "is for files", f"give input=FILE, or remove {key}")
    if config.engine == "ray":
        return
    for key in ("address", "actors"):
        if (value := getattr(config.ray, key)) is not None:
            raise InputError(f"ray.{key}={value}", "is for engine=ray", f"add engine=ray, or remove ray.{key}")


def predict_text(classifier: Classifier, text: str, by_field: bool | None = None) -> PredictedSequence:
    """Predict one sequence, and print the probability of each label, in descending order.

    Raises InputError if the sequence is rejected. `text`: free text, a JSON list of tokens, or a JSON object with a
    list for each field name. `by_field`: None to predict; True or False to explain too, and print the contribution of
    each token (see `Classifier.explain`).
    """
    sequences = [classifier.parse(text)]
    found = classifier.predict(sequences) if by_field is None else classifier.explain(sequences, by_field=by_field)
    result = found[0]
    if result["error"] is not None:
        raise InputError(f"sequence={text}", result["error"])
    for name, share in sorted(result["probabilities"].items(), key=lambda item: -item[1]):
        show_line(f"{share:8.4f}  {name}")
    if by_field is not None:
        keys = ("prediction", "tokens", "contributions", "contributions_by_field", "contributions_of_static")
        show_token_bars(*(result[key] for key in keys))
    given = {key: value for key, value in result.items() if key != "error"}
    outputs = {name: given.pop(name) for name in classifier.extra} or None
    return PredictedSequence(**given, outputs=outputs, provider=classifier.provider, no_cuda=classifier.no_cuda)


def predict_file(classifier: Classifier, config: PredictConfig, by_field: bool | None = None) -> PredictedFile:
    """Predict every row of `input`, and write one output row per input row, or per event if `running`, in order.

    `by_field`: None to predict; True or False to explain. An explanation has one output row per token. Raises
    LimitError, and writes nothing, if the rows exceed a limit.
    """

    def empty() -> Any:
        ids = id_type(classifier.schema, source)
        return (
            table_schema(classifier, ids)
            if by_field is None
            else explanations_schema(classifier, ids, by_field=by_field)
        )

    limits = InputLimits(**{field.name: getattr(config, field.name, None) for field in fields(InputLimits)})
    unmeasured = ["max_drift"] * (config.engine == "ray") + ["max_far", "max_drift"] * (by_field is not None)
    limits.check(classifier.strange, classifier.reference, unmeasured)
    source, output = _files(classifier, config)
    vectors = [name for name, values in classifier.extra.items() if values.ndim > 1]
    if vectors and output.endswith(".csv") and by_field is None:
        raise InputError(f"output={output}", f"cannot hold vectors ({vectors[0]})", "write .parquet or .jsonl")
    sample = RowSample(classifier.reference)
    engine = config.engine if config.engine == "local" else f"{config.engine} on {config.device}"
    identity = run_identity(classifier, source, by_field, engine)
    with open_journal(output, identity, sample) as journal, _ray_engine(classifier, config, by_field) as actors:

        def run(windows: Iterable[Window], predict: PredictWindows) -> Iterator[Result]:
            return journal.results(windows, predict if actors is None else actors.results)

        if by_field is None:
            results = classifier.predict_windows(source, sample, run)
        else:
            results = explain_source(classifier, source, by_field=by_field, run=run)
        counts, seconds = write_results(limits.checked(results, classifier.strange, sample), output, empty)
    if not counts.rows and source.query:
        show_note("no row is left after the query of the bundle, which cannot filter by the label")
    drift = sample.drift()
    for each in drift:
        show_note(f"drifted since training: {each}")
    shares: dict[str, Any] = {"tokens": counts.tokens}
    if by_field is None:
        unknown, far = (round(count / max(1, counts.encoded), 4) for count in (counts.unknown, counts.far))
        shares = {"unknown_share": unknown, "far_share": far}
        if max(unknown, far) > MAX_STRANGE_SHARE:
            show_note(
                f"warning: {unknown:.0%} of the tokens hold a value that training did not have, {far:.0%} a number far "
                "from those of training; compare the columns, their types and units with those of training"
            )
    return PredictedFile(
        output=output,
        rows=counts.rows,
        refused=counts.refused,
        seconds=round(seconds, 3),
        rows_per_s=round((counts.rows - journal.rows) / seconds, 1),
        drift=drift or None,
        provider=classifier.provider if actors is None else actors.provider or classifier.provider,
        no_cuda=classifier.no_cuda,
        actors=None if actors is None else actors.count,
        **shares,
    )


@contextmanager
def _ray_engine(classifier: Classifier, config: PredictConfig, by_field: bool | None) -> Iterator[RayEngine | None]:
    if config.engine == "local":
        yield None
        return
    from seqclf.bundle.ray_engine import ray_engine

    device = "cuda" if config.device == "cuda" else "cpu"
    settings = {"threads": config.threads or 1, "device": device, "threshold": config.threshold}
    settings |= {"embeddings": config.embeddings, "running": config.running}
    with ray_engine(classifier, settings, by_field, **config.ray.model_dump()) as actors:
        yield actors


def write_results(results: Iterator[Result], output: str, empty: Callable[[], Any]) -> tuple[Counts, float]:
    """Write results to the path `output`. Return the total counts and the elapsed seconds.

    `empty`: returns the schema of an output without rows. Raises InputError if `output` cannot be written.
    """
    started, counts = time.perf_counter(), Counts()
    first = next(results, None)  # the first result has the schema, which is needed to open the file
    schema = empty() if first is None else first.table.schema
    with open_output(output, schema) as sink:
        if first is None:
            sink.write_batch(pa.RecordBatch.from_pylist([], schema))
        for result in itertools.chain([] if first is None else [first], results):
            sink.write_batch(result.table)
            counts = counts.plus(result.counts)
    return counts, time.perf_counter() - started


def _files(classifier: Classifier, config: PredictConfig) -> tuple[Source, str]:
    """Return the source for the path `input`, and the output path.

    If a setting to read the file, such as the encoding, is null in the config, the setting of the training data is
    used. Raises InputError if the output would overwrite the input.
    """
    output = str(config.output)
    trained_on = classifier.manifest["reader"]
    typed = {key: value for key in trained_on if (value := getattr(config, key, None)) is not None}
    source = fetched(Source(str(config.input), "input", **{**trained_on, **typed}))
    if output == source.path or Path(output).resolve() in [path.resolve() for path in local_files(source)]:
        raise InputError(f"output={output}", "is the input too", "name another file")
    return source, output
