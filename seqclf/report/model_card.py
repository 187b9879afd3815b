"""MODEL_CARD.md of a bundle, for readers who do not have its run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from seqclf.data.encoding.declaration import stored_schema
from seqclf.data.schema.schema import Schema
from seqclf.documents.formatting import listed, percent, score, shortened
from seqclf.evaluation.metrics import metric_title
from seqclf.evaluation.run_result import RunResult
from seqclf.report.score_table import between_note, group_rows, group_sentence, score_table
from seqclf.report.verdict import verdict_of

MAX_FIELDS = 40
OWN_PACKAGE = "seqclf."
FEW_ROWS = 30  # fewer rows of a class make its metrics rough

RUN = """In another folder than this one, with PATH of this one:

```sh
seqclf predict bundle=PATH input=new.parquet output=scores.parquet
seqclf evaluate bundle=PATH data=files data.test=labelled.parquet {label} report=report.html
```"""
MARKUP = re.compile(r"([\\`*\[\]<>&|~$]|(?<!\w)_|_(?!\w)|(?<=:)//)")  # an underscore inside a word is one
PLAIN_WORD = re.compile(r"(?!(?:null|true|false|inf|nan)$)[a-z][\w.-]*", re.IGNORECASE | re.ASCII)


def model_card(manifest: Mapping[str, Any], result: RunResult) -> str:
    """Markdown of a model card.

    `manifest`: of the bundle. `result`: of the run, without splits if the model was not evaluated.
    """
    schema = stored_schema(manifest["schema"])
    parts = [
        "# Model card",
        _purpose(manifest, schema),
        "## Verdict",
        *(_verdict(result) if result.splits else ["Not evaluated."]),
        "## Data",
        *_data(manifest, result),
        "## Limits",
        _items(_limits(schema, result)),
        "## Use",
        RUN.format(label=_override("data.label", schema.label or "label")),
        _table(["", "version"], manifest["versions"].items()),
    ]
    return "\n\n".join(parts) + "\n"


def _purpose(manifest: Mapping[str, Any], schema: Schema) -> str:
    fields = ", ".join(f"{field.name} ({field.kind})" for field in schema.fields[:MAX_FIELDS])
    fields += f", … {len(schema.fields)} in all" if len(schema.fields) > MAX_FIELDS else ""
    model = manifest["model"]
    kind = f"{'bidirectional ' if model.get('bidirectional') else ''}{network_kind(model)}"
    members = model["members"]
    network = f"a {kind}" if members == 1 else f"{members} {kind}s, whose probabilities are averaged"
    purpose = f"Classifies sequences of {fields} as one of {listed(manifest['classes'])} with {network}."
    positive = f" The label that matters is {shortened(manifest['positive'])}." if manifest["positive"] else ""
    return _plain(purpose + positive, most=2000)


def network_kind(model: Mapping[str, Any]) -> str:
    """Return the cell of recurrent layers, or the name of another encoder of this package.

    `model`: the config of a network.
    """
    if "cell" in model:
        return str(model["cell"]).upper()
    target = str(model.get("encoder", {}).get("_target_", ""))
    return target.rpartition(".")[2].lower() if target.startswith(OWN_PACKAGE) else "network"


def _verdict(result: RunResult) -> list[str]:
    judged, verdict, positive = result.metrics, verdict_of(result), result.positive
    parts = [_plain(sentence, most=2000) for sentence in verdict.sentences]
    if judged.alarms:
        alarms = (_plain(f"{alarm.text}. Try {alarm.remedy}.") for alarm in judged.alarms)
        parts.append("\n".join(f"- **Alarm**: {line}" for line in alarms))
    headings, rows = score_table(result)
    parts += [_plain(verdict.counts), _table(["", *headings], rows)]
    if (note := between_note(judged)) is not None:
        parts.append(note)
    if judged.groups is not None:
        parts.append(group_sentence(judged.groups))
        if judged.groups.worst:
            headings, rows = group_rows(judged.groups, positive)
            parts.append(_table(headings, rows))
    by_length = [
        [f"{part.low} to {part.high}", part.rows, score((part.positive or part).recall)] for part in judged.by_length
    ]
    parts.append(_table(["tokens", "rows", metric_title("recall", positive)], by_length))
    return parts


def _data(manifest: Mapping[str, Any], result: RunResult) -> list[str]:
    if not result.data:
        return [_table(["split", "rows"], manifest["data"]["rows"].items())]
    names = ("used", "refused", "truncated", "tokens")
    counts = [[split, *(getattr(rows, name) for name in names)] for split, rows in result.data.items()]
    parts = [_table(["split", *names], counts)]
    if result.leaks is not None:
        leaks = result.leaks.warnings()
        parts.append(_items(leaks) if leaks else "No sequence or id occurs in two splits.")
    return [*parts, f"Digest of the encoded data: {_plain(manifest['data']['digest'])}"]


def _limits(schema: Schema, result: RunResult) -> list[str]:
    lines = ["It is as good as stated on data like that above, and untested on any other."]
    if schema.max_length is not None:
        action = "refused" if schema.truncate == "error" else f"truncated ({schema.truncate})"
        lines.append(f"Sequences of more than {schema.max_length:,} tokens are {action}.")
    if result.splits:
        judged = result.metrics
        lines.append(f"Sequences of more than {judged.by_length[-1].high:,} tokens were not evaluated.")
        few = [label for label, count in judged.support_by_class.items() if count < FEW_ROWS]
        if few:
            lines.append(f"Fewer than {FEW_ROWS} rows of {listed(few)} were evaluated: their metrics are rough.")
        lines.append(f"Its probabilities are off by {percent(judged.ece)} on average (calibration error).")
    return lines


def _items(lines: Iterable[object]) -> str:
    return "\n".join(f"- {_plain(line)}" for line in lines)


def _table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(_plain(cell) for cell in row) + " |" for row in (names, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(names), *lines[1:]])


def _plain(value: object, most: int = 400) -> str:
    """On one line, every letter as it is: labels and names of columns may hold Markdown or HTML."""
    return MARKUP.sub(r"\\\1", shortened(value, most))


def _override(key: str, value: str) -> str:
    """`key=value` as a word of the shell, quoted for Hydra and for the shell where that is needed."""
    if PLAIN_WORD.fullmatch(value):
        return f"{key}={value}"
    if not value.isprintable() or any(part in value for part in ("```", "${", "\\")):
        return f"{key}=COLUMN"  # which no quoting brings through shell and Hydra on one line
    # Hydra strips one pair of quotes, the shell another.
    escaped = value.replace("'", "\\'")
    return shlex.quote(f"{key}='{escaped}'")
