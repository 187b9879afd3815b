"""The ladder as blocks for the report and the model card: what each model adds to the one below it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from seqclf.documents.blocks import Block, Section, Table, Text
from seqclf.documents.formatting import NO_VALUE, score
from seqclf.evaluation.comparison import MetricComparison
from seqclf.evaluation.intervals import SIGNED, interval_text
from seqclf.evaluation.ladder import NETWORK, NEW, OLD, ORDER_BLIND, Rung
from seqclf.evaluation.metrics import metric_title
from seqclf.evaluation.run_result import RunResult

SUBJECTS = {NETWORK: "The network", NEW: "The new model"}
OBJECTS = {ORDER_BLIND: "what ignores the order", OLD: "the old model"}
TABLE_METRICS = ("auroc", "accuracy", "recall", "loss")


def ladder_blocks(result: RunResult) -> list[Block]:
    """Return the table of the ladder and a sentence about its gains, or nothing if the verdict states the only gain."""
    ladder = result.ladder
    stated = None if result.baseline is None else result.baseline.comparison
    pairs = [(upper, lower) for lower, upper in pairwise(ladder) if upper.gain and upper.gain != stated]
    if not pairs:
        return []
    # A head of the network has a row, and only the network itself has a sentence.
    sentences = [gain_sentence(upper, lower) for upper, lower in pairs if upper.name in SUBJECTS]
    intro = (
        f"Ladder: each model on the same {ladder[0].rows:,} rows of {result.split}, and what it adds to the row above."
    )
    return [Text(intro, soft=True), ladder_table(ladder), Text(" ".join(sentences))]


def compared_section(rungs: Sequence[Rung]) -> Section:
    """Return the comparison of a judged model with another one: the second of two rungs, and the first."""
    old, new = rungs
    intro = f"The old model and the judged one, on the same {new.rows:,} rows."
    return Section("Compared", [Text(intro, soft=True), ladder_table(rungs), Text(gain_sentence(new, old))])


def ladder_table(ladder: Sequence[Rung]) -> Table:
    """Return a table with one row for each rung. The deciding metric and its gain come first."""
    metric = ladder[0].metric
    others = [name for name in TABLE_METRICS if name != metric]
    columns = {"": "text", "model": "text", metric_title(metric): "number", "adds": "number"}
    columns |= {"between": "number interval", **dict.fromkeys(map(metric_title, others), "number")}
    rows = []
    for rung in ladder:
        gain = difference_cells(rung.gain[0] if rung.gain else None)
        values = (score(getattr(rung, name)) for name in others)
        rows.append([rung.name, rung.model, score(rung.value), *gain, *values])
    return Table(columns, rows)


def gain_sentence(upper: Rung, lower: Rung) -> str:
    """Return a sentence about what a rung adds to the rung below it. `upper` has a gain."""
    assert upper.gain is not None
    gain = upper.gain[0]
    subject, other = (
        SUBJECTS.get(upper.name, f"The {upper.name} head"),
        OBJECTS.get(lower.name, f"its {lower.name} head"),
    )
    amount = f"{SIGNED(gain.difference)} {metric_title(gain.metric)} ({interval_text((gain.low, gain.high), SIGNED)})"
    if gain.too_few_groups:
        return f"{subject} is not judged against {other}: a class lies in one group, or nearly so."
    if gain.is_better:
        return f"{subject} adds {amount} to {other}."
    if gain.is_worse:
        return f"{subject} is worse than {other}: {amount}."
    return f"{subject} is not shown to add anything to {other}: {amount}."


def difference_cells(compared: MetricComparison | None) -> list[str]:
    """Return the cells of a difference and of its interval. Both are a dash without a comparison."""
    if compared is None:
        return [NO_VALUE, NO_VALUE]
    interval = None if compared.too_few_groups else (compared.low, compared.high)
    return [SIGNED(compared.difference), interval_text(interval, SIGNED)]
