"""Parts of MODEL_CARD.md alone, the description of an exported model for readers who do not have its training run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqclf.data.encoding.declaration import stored_schema
from seqclf.documents.blocks import Alerts, Block, Code, Section, Table, Text
from seqclf.documents.formatting import listed, percent, shortened
from seqclf.report.reported import Reported
from seqclf.settings.typed_text import argument

MAX_FIELDS = 40
OWN_PACKAGE = "seqclf."
FEW_ROWS = 30  # rows of a class; with fewer rows, the metrics of the class are imprecise

RUN = """seqclf predict bundle=PATH input=new.parquet output=scores.parquet
seqclf evaluate bundle=PATH data=files data.test=labelled.parquet {label}"""


def purpose(reported: Reported) -> str:
    """Return one sentence about what an exported model classifies, and the label that matters."""
    manifest = reported.manifest
    schema, model = stored_schema(manifest["schema"]), manifest["model"]
    fields = ", ".join(f"{field.name} ({field.kind})" for field in schema.fields[:MAX_FIELDS])
    fields += f", … {len(schema.fields)} in all" if len(schema.fields) > MAX_FIELDS else ""
    members, kind = model["members"], network_kind(model)
    network = f"a {kind}" if members == 1 else f"{members} networks ({kind}), whose probabilities are averaged"
    text = f"Classifies sequences of {fields} as one of {listed(manifest['classes'])} with {network}."
    positive = f" The label that matters is {shortened(manifest['positive'])}." if manifest["positive"] else ""
    return text + positive


def network_kind(model: Mapping[str, Any]) -> str:
    """Return a name for a network: its heads, its recurrent cell such as LSTM, or the class name of another encoder.

    An encoder of another package is called "network". `model`: its config.

    >>> network_kind({"cell": "lstm", "bidirectional": True, "window": 8, "heads": ["recurrent", "kernels"]})
    'bidirectional LSTM on windows of 8 tokens + kernels'
    """
    if "cell" in model:
        window = model.get("window") or 1
        recurrent = "bidirectional " * bool(model.get("bidirectional")) + str(model["cell"]).upper()
        recurrent += f" on windows of {window} tokens" * (window != 1)
        heads = model.get("heads") or ["recurrent"]
        names = [head if isinstance(head, str) else str(head["_target_"]).rpartition(".")[2] for head in heads]
        return " + ".join(recurrent if name == "recurrent" else name for name in names)
    target = str(model.get("encoder", {}).get("_target_", ""))
    return target.rpartition(".")[2].lower() if target.startswith(OWN_PACKAGE) else "network"


def data_section(reported: Reported) -> Section:
    """Return the rows of the data, what its splits share, and its digest."""
    manifest, result = reported.manifest, reported.result
    if not result.data:
        return Section("Data", [Table({"split": "text", "rows": "number"}, list(manifest["data"]["rows"].items()))])
    names = ("used", "refused", "excluded", "truncated", "tokens")
    counts = [[split, *(getattr(rows, name) for name in names)] for split, rows in result.data.items()]
    blocks: list[Block] = [Table({"split": "text", **dict.fromkeys(names, "number")}, counts)]
    if result.leaks is not None:
        leaks = result.leaks.warnings()
        blocks.append(Alerts(leaks) if leaks else Text("No sequence or id occurs in two splits."))
    return Section("Data", [*blocks, Text(f"Digest of the encoded data: {manifest['data']['digest']}")])


def limits_section(reported: Reported) -> Section:
    """Return where the model is untested, and where its metrics are rough."""
    schema, result = stored_schema(reported.manifest["schema"]), reported.result
    lines = ["It is as good as stated on data like that above, and untested on any other."]
    if schema.max_length is not None:
        action = "refused" if schema.truncate == "error" else f"truncated ({schema.truncate})"
        lines.append(f"Sequences of more than {schema.max_length:,} tokens are {action}.")
    if result.splits:
        judged = result.metrics
        lines.append(f"Sequences of more than {judged.by_length[-1].longest:,} tokens were not evaluated.")
        few = [label for label, count in judged.support_by_class.items() if count < FEW_ROWS]
        if few:
            lines.append(f"Fewer than {FEW_ROWS} rows of {listed(few)} were evaluated: their metrics are rough.")
        lines.append(f"Its probabilities are off by {percent(judged.ece)} on average (calibration error).")
    return Section("Limits", [Alerts(lines)])


def use_section(reported: Reported) -> Section:
    """Return the commands that use the bundle, and the versions of the packages that made it."""
    versions = Table({"": "text", "version": "text"}, list(reported.manifest["versions"].items()))
    label = stored_schema(reported.manifest["schema"]).label or "label"
    run = Code(RUN.format(label=_override("data.label", label)), "sh")
    return Section("Use", [Text("In another folder than this one, with PATH of this one:"), run, versions])


def _override(key: str, value: str) -> str:
    """Return `key=value` as one shell word, quoted for Hydra and for the shell if needed."""
    if not value.isprintable() or any(part in value for part in ("```", "${", "\\")):
        return f"{key}=COLUMN"  # no quoting passes such a value through both the shell and Hydra on one line
    return argument(key, value)
