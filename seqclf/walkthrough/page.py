"""walkthrough.html: every stage of some rows, for readers who see such a model for the first time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from seqclf.documents.figures import picture
from seqclf.documents.formatting import NO_VALUE, head_and_tail, percent, printable, probability_text, shortened
from seqclf.documents.html import Section, Table, bar, render_section, render_sections
from seqclf.report.figures import learning_curves
from seqclf.report.model_card import network_kind
from seqclf.system.atomic_files import write_output
from seqclf.walkthrough.content import (
    MAX_CLASSES,
    MAX_EPOCHS,
    WalkthroughPage,
    bundle_text,
    epoch_rows,
    row_name,
    scored_split,
    shape_text,
    short_shape,
)
from seqclf.walkthrough.heat_map import (
    MAX_CELLS,
    MAX_TOKENS,
    HeatMaps,
    class_map,
    pair_maps,
    row_map,
    score_maps,
    token_maps,
)
from seqclf.walkthrough.stages import (
    ROW_NAME,
    ClassScores,
    Content,
    EncodedRows,
    MemberScores,
    PaddedBatch,
    RawRows,
    RowVectors,
    TokenPairs,
    TokenScores,
    TokenVectors,
    TreeLevels,
)
from seqclf.walkthrough.tree_drawing import MAX_LEVELS, MAX_NODES, MAX_TREES, draw_trees

FOLDER = "walkthrough"
ADAPTIVE = "seqclf.models.adaptive.AdaptiveClassifier"
TREE_LSTM = "seqclf.models.tree_lstm.TreeLSTM"
MAX_NAME_CHARACTERS, MAX_CELL_CHARACTERS = 24, 400  # characters
FEW_ROWS = 8  # cells of more are cut to a quarter
MAX_COLUMNS_AT_A_GLANCE = 16  # columns; the active batch size of more is drawn as a whole too
MAX_LINES = 40  # of a table of levels


def write_page(page: WalkthroughPage, path: Path) -> None:
    """Write the page. It needs no other file and no network."""
    names = _row_names(page)
    sections = []
    for number, stage in enumerate(page.stages, start=1):
        text = f"{stage.text} {stage.note}".rstrip()
        section = stage_section(stage.content, names)
        heading = {"heading": f"{number}. {stage.title}", "text": text, "shape": shape_text(stage)}
        context = {**heading, "module": stage.module, **section.context}
        sections.append(render_section(Section(section.template, context)))
    if page.history:
        sections.append(render_section(_training(page)))
    flow = [(f"{number}. {stage.title}", short_shape(stage)) for number, stage in enumerate(page.stages, start=1)]
    html = render_sections(
        "walkthrough.html",
        sections,
        title="From rows to labels",
        summary=_summary(page),
        flow=flow,
        facts=_facts(page),
        refused=[shortened(reason, 400) for reason in page.refused],
    )
    write_output(path, html)


@singledispatch
def stage_section(content: Content, names: Sequence[str]) -> Section:
    """Return the template of a stage and its variables, those of every stage left out. `names`: of the rows."""
    raise NotImplementedError(type(content))


@stage_section.register
def _(content: RawRows, names: Sequence[str]) -> Section:
    most = MAX_CELL_CHARACTERS if len(content.rows) <= FEW_ROWS else MAX_CELL_CHARACTERS // 4
    labelled = any(label is not None for label in content.labels)
    # With a space before them, the names of fields are different from the other headings.
    columns = {"row": "text", **{f" {name}": "text" for name in list(content.rows[0])[1:]}, "length": "number"}
    columns |= {"label": "text"} if labelled else {}
    rows = []
    for index, (row, label, length) in enumerate(zip(content.rows, content.labels, content.lengths, strict=True)):
        cells = [shortened(text, most) for text in list(row.values())[1:]]
        answer = [NO_VALUE if label is None else shortened(label, MAX_NAME_CHARACTERS)] if labelled else []
        rows.append([names[index], *cells, f"{length:,}", *answer])
    return Section("walkthrough/table.html", {"table": Table(columns, rows, longest=60)})


@stage_section.register
def _(content: EncodedRows, names: Sequence[str]) -> Section:
    rows: list[dict[str, object]] = []
    drawn = 0
    for index, fields in enumerate(content.rows):
        drawn += len(fields) * min(MAX_TOKENS, len(fields[0].tokens))
        if rows and drawn > MAX_CELLS:
            break
        lines = [
            (
                shortened(field.name, MAX_NAME_CHARACTERS),
                [printable(shortened(token, MAX_NAME_CHARACTERS)) or "␣" for token in field.tokens[:MAX_TOKENS]],
                list(field.encoded[:MAX_TOKENS]),
                field.unknown[:MAX_TOKENS].tolist(),
            )
            for field in fields
        ]
        count = len(fields[0].tokens)
        more = f"the first {MAX_TOKENS} of {count:,} tokens" if count > MAX_TOKENS else ""
        rows.append({"name": names[index], "fields": lines, "more": more})
    unknown = sum(int(field.unknown.sum()) for fields in content.rows for field in fields)
    return Section(
        "walkthrough/encoded.html", {"rows": rows, "unknown": unknown, "left_out": len(content.rows) - len(rows)}
    )


@stage_section.register
def _(content: PaddedBatch, names: Sequence[str]) -> Section:
    count = len(content.active)
    most = max(MAX_COLUMNS_AT_A_GLANCE, min(MAX_TOKENS, MAX_CELLS // len(content.cells)))
    active = [(int(rows), percent(rows / len(content.lengths))) for rows in content.active[:most]]
    rows = [
        (names[index], int(length), row[:most])
        for index, (row, length) in enumerate(zip(content.cells, content.lengths, strict=True))
    ]
    context = {
        "name": content.name,
        "rows": rows,
        "active": active,
        "more": f"the first {most} of {count:,} columns" if count > most else "",
        "curve": _active_curve(content.active) if count > MAX_COLUMNS_AT_A_GLANCE else None,
        "last": int(content.active[-1]),
        "longest": count,
        "may_pack": content.may_pack,
        "computed": int(content.lengths.sum()),
        "cells": count * len(content.lengths),
        "inputs": Table(
            {"input": "text", "type": "text", "shape": "text"},
            [(name, kind, f"({', '.join(map(str, shape))})") for name, kind, shape in content.inputs],
            caption="The inputs of the network",
        ),
    }
    return Section("walkthrough/padded.html", context)


@stage_section.register
def _(content: TokenVectors, names: Sequence[str]) -> Section:
    count = content.values.shape[-1]
    note = f"The {len(content.channels)} of {count:,} channels that vary most." if len(content.channels) < count else ""
    return _heat_section(token_maps(content, names), note)


@stage_section.register
def _(content: TokenScores, names: Sequence[str]) -> Section:
    return _heat_section(score_maps(content, names), "")


@stage_section.register
def _(content: TokenPairs, names: Sequence[str]) -> Section:
    return _heat_section(pair_maps(content, names), "")


@stage_section.register
def _(content: RowVectors, names: Sequence[str]) -> Section:
    count = content.values.shape[-1]
    note = f"{len(content.channels)} of {count:,} channels." if len(content.channels) < count else ""
    return _heat_section(HeatMaps([row_map(content, names)], 0), note)


@stage_section.register
def _(content: TreeLevels, names: Sequence[str]) -> Section:
    rows = []
    for step, depth in enumerate(content.order, start=1):
        nodes = content.nodes(depth)
        tokens = [content.tokens[row][node] for row, of_row in enumerate(nodes) for node in of_row]
        shown = " ".join(shortened(token, 12) for token in tokens[:12]) + (" …" if len(tokens) > 12 else "")
        word = "roots" if depth == 0 else f"{depth} below the roots"
        rows.append([str(step), word, f"{len(tokens):,}", str(sum(map(bool, nodes))), shown])
    first, left_out, last = head_and_tail(rows, MAX_LINES)
    gap = [[f"… {left_out:,} more"]] if left_out else []
    columns = {"step": "text", "depth": "text", "nodes": "number", "of trees": "number", "tokens": "text"}
    drawings = draw_trees(content)
    hidden = len(content.lengths) - len(drawings)
    rule = f"the first {MAX_TREES} trees of at most {MAX_NODES} nodes and {MAX_LEVELS} levels are drawn"
    context = {
        "drawings": [(names[drawing.row], drawing) for drawing in drawings],
        "note": rule if hidden else "",
        "table": Table(
            columns, [*first, *gap, *last], caption="Nodes that are computed together, in their order", longest=60
        ),
    }
    return Section("walkthrough/tree.html", context)


@stage_section.register
def _(content: ClassScores, names: Sequence[str]) -> Section:
    if not content.are_probabilities:
        return _heat_section(HeatMaps([class_map(content, names)], 0), "A frame marks the predicted class.")
    rows = []
    for index, values in enumerate(content.values):
        predicted = int(content.predicted[index])
        label = content.labels[index]
        others = [other for other in (-values).argsort(kind="stable")[: MAX_CLASSES + 1] if other != predicted]
        verdict = "" if label is None else "right" if label == content.classes[predicted] else "wrong"
        rows.append(
            [
                names[index],
                shortened(content.classes[predicted], MAX_NAME_CHARACTERS),
                probability_text(round(float(values[predicted]), 4)),
                bar(float(values[predicted])),
                ", ".join(
                    f"{shortened(content.classes[other], MAX_NAME_CHARACTERS)} {values[other]:.4f}"
                    for other in others[: MAX_CLASSES - 1]
                ),
                *([] if label is None else [f"{shortened(label, MAX_NAME_CHARACTERS)}: {verdict}"]),
            ]
        )
    columns = {"row": "text", "predicted": "text", "probability": "number", " ": "bar", "next classes": "text"}
    if any(label is not None for label in content.labels):
        columns["label"] = "text"
    return Section("walkthrough/table.html", {"table": Table(columns, rows, longest=60)})


@stage_section.register
def _(content: MemberScores, names: Sequence[str]) -> Section:
    labels = [*(f"network {index + 1}" for index in range(len(content.members))), "mean"]
    rows = []
    for row in range(len(content.mean)):
        best = [int(scores[row].argmax()) for scores in (*content.members, content.mean)]
        shown = zip((*content.members, content.mean), best, strict=True)
        rows.append(
            [
                names[row],
                *(
                    f"{shortened(content.classes[of], MAX_NAME_CHARACTERS)} {scores[row, of]:.3f}"
                    for scores, of in shown
                ),
            ]
        )
    table = Table({"row": "text", **dict.fromkeys(labels, "text")}, rows, longest=60)
    return Section("walkthrough/table.html", {"table": table})


def _active_curve(active: np.ndarray) -> Markup:
    """The active batch size of all positions, as wide as the page."""
    height = int(active[0])
    steps = Markup("").join(
        Markup("L{} {}H{}").format(position, height - rows, position + 1)
        for position, rows in enumerate(active.tolist())
    )
    box = Markup('<svg class="active-curve" viewBox="0 0 {} {}" preserveAspectRatio="none">').format(
        len(active), height
    )
    return box + Markup('<path d="M0 {}{}V{}Z"/></svg>').format(height, steps, height)


def _heat_section(heat: HeatMaps, note: str) -> Section:
    return Section("walkthrough/heat.html", {"heat": heat, "note": note})


def _training(page: WalkthroughPage) -> Section:
    first, left_out, last = head_and_tail(epoch_rows(page.history), MAX_EPOCHS)
    gap = [["…", f"{left_out} more", "", ""]] if left_out else []
    rows = [*first, *gap, *last]
    best = next(
        (i for i, row in enumerate(rows) if page.best_epoch is not None and row[0] == str(page.best_epoch + 1)), None
    )
    columns = {"Epoch": "number", "Loss": "number", "Accuracy": "number", "Recall": "number"}
    split = scored_split(page.history)
    context = {
        "heading": "Training",
        "table": Table(columns, rows, strong=best, caption=f"Scores on {split} after each epoch", longest=60),
        "best": None if page.best_epoch is None else page.best_epoch + 1,
        "picture": picture(
            lambda width_in: learning_curves(page.history, ["loss", "accuracy", "recall"], page.best_epoch, width_in),
            "Loss, accuracy and macro recall of training and validation by epoch, numbers in the table",
        ),
    }
    return Section("walkthrough/training.html", context)


def _summary(page: WalkthroughPage) -> str:
    rows, tokens = page.stages[0].content, page.stages[-1].shape
    assert isinstance(rows, RawRows)
    count = len(rows.rows)
    word = "One row" if count == 1 else f"{count} rows"
    classes = f"{tokens[-1]} classes" if tokens else "classes"
    return (
        f"{word} on the way through a trained model, stage by stage: the shape of the data, its values, and why it "
        f"changes. The model has {page.weights:,} weights and tells {classes} apart."
    )


def _facts(page: WalkthroughPage) -> list[tuple[str, str]]:
    members = int(page.model.get("members", 1))
    facts = [("model", ("" if members == 1 else f"{members} networks: ") + _model_text(page.model))]
    facts.append(("checkpoint", page.checkpoint))
    if page.bundle_error is not None:
        facts.append(("bundle", bundle_text(page.bundle_error)))
    return facts


def _model_text(model: Mapping[str, Any]) -> str:
    target = str(model.get("encoder", {}).get("_target_", ""))
    if target == TREE_LSTM:
        return f"Tree-LSTM, {str(model['composition']).replace('_', ' ')}"
    adaptive = "adaptive, " if model.get("_target_") == ADAPTIVE else ""
    kind = f"{'bidirectional ' if model.get('bidirectional') else ''}{network_kind(model)}"
    pooling = model.get("pooling")
    return adaptive + kind + (f", pooling {pooling}" if pooling else "")


def _row_names(page: WalkthroughPage) -> list[str]:
    """The number of each row, and its name in the input where that is another."""
    rows = page.stages[0].content
    assert isinstance(rows, RawRows)
    return [row_name(number, row[ROW_NAME], MAX_NAME_CHARACTERS) for number, row in enumerate(rows.rows, start=1)]
