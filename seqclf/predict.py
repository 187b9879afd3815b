"""`python -m seqclf.predict`: a bundle and new sequences → labels and probabilities, without PyTorch."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqclf.config.command import command
from seqclf.errors import InputError

if TYPE_CHECKING:
    from seqclf.bundle.runtime import Classifier


@command("predict")
def main(config: dict[str, Any]) -> dict[str, Any]:
    """Predict one sequence, or a file."""
    if (config["sequence"] is None) == (config["input"] is None):
        raise InputError("give either input=FILE output=FILE, or sequence=TEXT_OR_JSON")
    if config["csv_guard"] and Path(str(config["output"])).suffix.lower() != ".csv":
        raise InputError(f"csv_guard=true: is for a .csv file, not output={config['output']}")
    if config["input"] is not None and config["output"] is None:
        raise InputError("output is not set; give a .parquet, .csv, .jsonl or .arrow file: output=scores.parquet")
    from seqclf.bundle.runtime import Classifier

    classifier = Classifier(
        str(config["bundle"]), device=config["device"], threads=config["threads"], threshold=config["threshold"]
    )
    return predict_text(classifier, config["sequence"]) if config["input"] is None else predict_file(classifier, config)


def predict_text(classifier: Classifier, text: str) -> dict[str, Any]:
    """One sequence, as a text, a JSON list of steps, or a JSON object of lists by field."""
    from rich.console import Console

    found = classifier.predict([classifier.parse(text)])[0]
    if found["error"]:
        raise InputError(f"sequence={text}: {found['error']}")
    console = Console(stderr=True, highlight=False)
    for label, probability in sorted(found["probabilities"].items(), key=lambda item: -item[1]):
        console.print(f"{probability:8.4f}  {label}")
    return {key: found[key] for key in ("prediction", "probability", "probabilities")}


def predict_file(classifier: Classifier, config: dict[str, Any]) -> dict[str, Any]:
    """Every row of `input` to a row of `output`, in the same order."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    from seqclf.bundle.predictions import guard_formulas, predictions_schema, predictions_table
    from seqclf.bundle.writers import check_output, open_writer
    from seqclf.data.reading.reader import count_rows
    from seqclf.data.reading.sources import Source, local_files, require_files

    output = Path(str(config["output"]))
    check_output(output)
    reader = classifier.manifest["reader"]
    chosen = {key: value if config[key] is None else config[key] for key, value in reader.items()}
    source = Source(str(config["input"]), "input", **chosen)
    require_files(source)
    if output.resolve() in [path.resolve() for path in local_files(source)]:
        raise InputError(f"output={output}: is the input too; name another file")
    started, rows, refused = time.perf_counter(), 0, 0
    bar = Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    )
    with bar:
        unknown = bar.disable or classifier.schema.group_by  # a row of an event table is no sequence
        shown = bar.add_task("rows", total=None if unknown else count_rows(source))
        stream = classifier.predict_source(source)
        head = next(stream, None)
        if head is None:
            raise InputError(f"{source}: has no rows; give a file with a row per sequence")
        has_id = "id" in head[0].columns.schema.names
        schema = predictions_schema(classifier.classes, head[0].columns.column("id").type if has_id else None)
        with open_writer(output, schema) as sink:
            for batch, found in _chained(head, stream):
                ids = batch.columns.column("id") if has_id else None
                table = predictions_table(found, classifier.classes, ids, rows + 1)
                sink.write_batch(guard_formulas(table) if config["csv_guard"] else table)
                rows += len(found.errors)
                refused += sum(error is not None for error in found.errors)
                bar.update(shown, completed=rows)
    seconds = time.perf_counter() - started
    return {
        "output": str(output),
        "rows": rows,
        "refused": refused,
        "seconds": round(seconds, 3),
        "rows_per_s": round(rows / seconds, 1),
    }


def _chained(head: Any, rest: Any) -> Any:
    yield head
    yield from rest


def _is_quoted(value: str) -> bool:
    return len(value) > 1 and value[0] == value[-1] and value[0] in "'\""


def _quote_sequence(arguments: list[str]) -> list[str]:
    """`sequence=…` taken as it is typed: Hydra would read commas, brackets and question marks as grammar."""
    return [
        "sequence=" + json.dumps(value).replace("$", "\\$") if key == "sequence" and not _is_quoted(value) else argument
        for argument in arguments
        for key, _, value in [argument.partition("=")]
    ]


if __name__ == "__main__":
    sys.argv = _quote_sequence(sys.argv)
    main()
