"""A walkthrough as a document: some rows at every stage of a model, for readers who are new to such models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from markupsafe import Markup

from seqclf.documents.blocks import (
    Block,
    Document,
    HeatCell,
    HeatMap,
    HeatMaps,
    Picture,
    Section,
    Table,
    Text,
    bar,
)
from seqclf.documents.formatting import NO_VALUE, printable, probability_text, score, shortened
from seqclf.models.parity_grid import TOLERANCE
from seqclf.report.figures import learning_curves
from seqclf.report.model_card import network_kind
from seqclf.walkthrough.heat_map import MAX_CELLS, MAX_TOKENS, class_map, pair_maps, row_map, score_maps, token_maps
from seqclf.walkthrough.stages import (
    ROW_NAME,
    ClassScores,
    Content,
    EncodedRows,
    MemberScores,
    PaddedBatch,
    RawRows,
    RowVectors,
    Stage,
    TokenPairs,
    TokenScores,
    TokenVectors,
    TreeLevels,
)

ADAPTIVE = "seqclf.models.adaptive.AdaptiveClassifier"
TREE_LSTM = "seqclf.models.tree_lstm.TreeLSTM"
MAX_NAME_CHARACTERS, MAX_CELL_CHARACTERS = 24, 400
FEW_ROWS = 8  # with more rows, raw cells are cut to a quarter of MAX_CELL_CHARACTERS
MAX_COLUMNS_AT_A_GLANCE = 16  # with more token positions, the active batch size is also drawn as a curve
MAX_CLASSES = 5  # shown classes of each row, which are the most probable ones
METRICS = ("loss", "accuracy", "recall")


@dataclass(frozen=True, kw_only=True)
class Walkthrough:
    """Stages of some rows, and facts about the model.

    `refused`: one reason for each rejected row. `model`: config of the network. `weights`: number of weights.
    `history`: the rows of metrics.csv, empty if there is no such file. `best_epoch`: epoch of the checkpoint, counted
    from 0. `bundle_error`: largest difference between the logits on the page and the logits of the bundle (exported
    model). `bundle_error` is `None` if there is no bundle.
    """

    stages: Sequence[Stage]
    refused: Sequence[str]
    model: Mapping[str, Any]
    weights: int
    checkpoint: str
    history: Sequence[Mapping[str, Any]]
    best_epoch: int | None
    bundle_error: float | None


def walkthrough_document(walkthrough: Walkthrough) -> Document:
    """Build a document with one section for each stage.

    If `history` is not empty, the last section is about the training epochs.
    """
    names = _row_names(walkthrough)
    sections = [
        Section(
            f"{number}. {stage.title}",
            [
                Text(f"Module {stage.module}.", soft=True, page_only=True) if stage.module else None,
                Text(stage.text, page_only=True),
                Text(stage.note) if stage.note else None,
                *stage_blocks(stage.content, names),
            ],
            aside=shape_text(stage),
        )
        for number, stage in enumerate(walkthrough.stages, start=1)
    ]
    if walkthrough.history:
        sections.append(_training(walkthrough))
    return Document(
        "From rows to labels",
        _summary(walkthrough),
        sections,
        facts=_facts(walkthrough),
        alerts=[f"left out: {shortened(reason, 390)}" for reason in walkthrough.refused],
    )


def bundle_text(error: float) -> str:
    """Return a sentence that compares the logits of a bundle with the logits on the page.

    `error`: largest difference between the logits.

    >>> bundle_text(2e-6)
    'gives the same logits; the largest difference is 2.0e-06'
    """
    if error <= 10 * TOLERANCE:  # TOLERANCE is relative to the largest logit, but `error` is absolute
        return f"gives the same logits; the largest difference is {error:.1e}"
    return f"gives other logits, by up to {error:.2g}: it was exported from another checkpoint"


def shape_text(stage: Stage) -> str:
    """Return the shape of a stage with axis names, or "" if the stage has no shape.

    For trees, return the number of levels and nodes.

    >>> shape_text(Stage("", "", None, (4, 3), ("rows", "tokens")))
    '(4, 3) = (rows, tokens)'
    """
    if isinstance(stage.content, TreeLevels):
        return f"{_counted(len(stage.content.order), 'level')}, {_counted(int(stage.content.lengths.sum()), 'node')}"
    shape = f"({', '.join(f'{size:,}' for size in stage.shape)})"
    return f"{shape} = ({', '.join(stage.axes)})" if stage.shape else ""


def _counted(count: int, thing: str) -> str:
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


@singledispatch
def stage_blocks(content: Content, names: Sequence[str]) -> Iterator[Block]:
    """Yield the blocks that show the content of a stage. `names`: one name for each row."""
    raise NotImplementedError(type(content))


@stage_blocks.register
def _(content: RawRows, names: Sequence[str]) -> Iterator[Block]:
    most = MAX_CELL_CHARACTERS if len(content.rows) <= FEW_ROWS else MAX_CELL_CHARACTERS // 4
    labelled = any(label is not None for label in content.labels)
    # A leading space distinguishes the heading of a field from the headings row, length and label.
    columns = {"row": "text", **{f" {name}": "text" for name in list(content.rows[0])[1:]}, "length": "number"}
    columns |= {"label": "text"} if labelled else {}
    rows = []
    for index, (row, label, length) in enumerate(zip(content.rows, content.labels, content.lengths, strict=True)):
        cells = [shortened(text, most) for text in list(row.values())[1:]]
        answer = [NO_VALUE if label is None else shortened(label, MAX_NAME_CHARACTERS)] if labelled else []
        rows.append([names[index], *cells, f"{length:,}", *answer])
    yield Table(columns, rows)


@stage_blocks.register
def _(content: EncodedRows, names: Sequence[str]) -> Iterator[Block]:
    if unknown := sum(int(field.unknown.sum()) for fields in content.rows for field in fields):
        are = "value is" if unknown == 1 else "values are"
        yield Text(f"{unknown} {are} unknown, with a question mark.")
    maps: list[HeatMap] = []
    drawn = 0
    for name, fields in zip(names, content.rows, strict=True):
        count = len(fields[0].tokens)
        drawn += len(fields) * min(MAX_TOKENS, count)
        if maps and drawn > MAX_CELLS:
            break
        rows: list[tuple[str, Sequence[HeatCell | None]]] = []
        for field in fields:
            tokens = [printable(shortened(token, MAX_NAME_CHARACTERS)) or "␣" for token in field.tokens[:MAX_TOKENS]]
            encoded = zip(field.encoded[:MAX_TOKENS], field.unknown.tolist(), strict=False)
            rows.append((shortened(field.name, MAX_NAME_CHARACTERS), [HeatCell(token) for token in tokens]))
            marked = [HeatCell(f"{text} ?", kind="unknown") if is_new else HeatCell(text) for text, is_new in encoded]
            rows.append(("encoded", marked))
        more = f"the first {MAX_TOKENS} of {count:,} tokens" if count > MAX_TOKENS else ""
        maps.append(HeatMap(f"Row {name}", rows, more=more))
    yield HeatMaps(maps, len(content.rows) - len(maps))


@stage_blocks.register
def _(content: PaddedBatch, names: Sequence[str]) -> Iterator[Block]:
    count, rows_of_batch = len(content.active), len(content.lengths)
    most = max(MAX_COLUMNS_AT_A_GLANCE, min(MAX_TOKENS, MAX_CELLS // len(content.cells)))
    rows: list[tuple[str, Sequence[HeatCell | None]]] = [
        (f"{name}: {_counted(int(length), 'token')}", [HeatCell(cell) if cell else None for cell in row[:most]])
        for name, length, row in zip(names, content.lengths, content.cells, strict=True)
    ]
    active = [HeatCell(str(rows), rows / rows_of_batch, "active") for rows in content.active[:most].tolist()]
    more = f"the first {most} of {count:,} columns" if count > most else ""
    headings = [str(position + 1) for position in range(len(active))]
    caption = f"Encoded values of {content.name}"
    yield HeatMaps([HeatMap(caption, [*rows, ("active batch size", active)], headings, "row", more=more)])
    if count > MAX_COLUMNS_AT_A_GLANCE:
        first, last = int(content.active[0]), int(content.active[-1])
        words = f"Active batch size from position 1 ({first} rows) to {count:,} ({last})"
        yield Picture(_active_curve(content.active), words, caption=words)
    computed, cells = int(content.lengths.sum()), count * rows_of_batch
    packed = (
        ": with packed sequences a layer computes these, with padding all of them. Batches of rows of similar length "
        "keep the difference small"
    )
    yield Text(f"Of {cells:,} cells {computed:,} are tokens{packed if content.may_pack else ''}.")
    inputs = [(name, kind, f"({', '.join(map(str, shape))})") for name, kind, shape in content.inputs]
    yield Table({"input": "text", "type": "text", "shape": "text"}, inputs, caption="The inputs of the network")


def _active_curve(active: np.ndarray) -> Markup:
    """Draw the active batch size at each token position as an SVG.

    The active batch size is the number of rows that have a token at the position. The SVG fills the width of the page.
    """
    height = int(active[0])
    steps = "".join(f"L{position} {height - rows}H{position + 1}" for position, rows in enumerate(active.tolist()))
    return Markup(
        f'<svg class="active-curve" viewBox="0 0 {len(active)} {height}" preserveAspectRatio="none">'
        f'<path d="M0 {height}{steps}V{height}Z"/></svg>'
    )


@stage_blocks.register
def _(content: TokenVectors, names: Sequence[str]) -> Iterator[Block]:
    count = content.values.shape[-1]
    if len(content.channels) < count:
        yield Text(f"The {len(content.channels)} of {count:,} channels that vary most.", soft=True)
    yield token_maps(content, names)


@stage_blocks.register
def _(content: TokenScores, names: Sequence[str]) -> Iterator[Block]:
    yield score_maps(content, names)


@stage_blocks.register
def _(content: TokenPairs, names: Sequence[str]) -> Iterator[Block]:
    yield pair_maps(content, names)


@stage_blocks.register
def _(content: RowVectors, names: Sequence[str]) -> Iterator[Block]:
    count = content.values.shape[-1]
    if len(content.channels) < count:
        yield Text(f"{len(content.channels)} of {count:,} channels.", soft=True)
    yield HeatMaps([row_map(content, names)])


@stage_blocks.register
def _(content: TreeLevels, names: Sequence[str]) -> Iterator[Block]:
    rows = []
    for step, depth in enumerate(content.order, start=1):
        nodes = content.nodes(depth)
        tokens = [content.tokens[row][node] for row, of_row in enumerate(nodes) for node in of_row]
        shown = " ".join(shortened(token, 12) for token in tokens[:12]) + (" …" if len(tokens) > 12 else "")
        word = "roots" if depth == 0 else f"{depth} below the roots"
        rows.append([str(step), word, f"{len(tokens):,}", str(sum(map(bool, nodes))), shown])
    columns = {"step": "text", "depth": "text", "nodes": "number", "of trees": "number", "tokens": "text"}
    yield Table(columns, rows, caption="Nodes that are computed together, in their order")


@stage_blocks.register
def _(content: ClassScores, names: Sequence[str]) -> Iterator[Block]:
    if not content.are_probabilities:
        yield Text("A frame marks the predicted class.", soft=True)
        yield HeatMaps([class_map(content, names)])
        return
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
    yield Table(columns, rows)


@stage_blocks.register
def _(content: MemberScores, names: Sequence[str]) -> Iterator[Block]:
    networks = {f"network {index}": scores for index, scores in enumerate(content.members, start=1)}
    networks["mean"] = content.mean

    def cell(scores: np.ndarray) -> str:
        best = int(scores.argmax())
        return f"{shortened(content.classes[best], MAX_NAME_CHARACTERS)} {scores[best]:.3f}"

    rows = [[name, *(cell(scores[row]) for scores in networks.values())] for row, name in enumerate(names)]
    yield Table({"row": "text", **dict.fromkeys(networks, "text")}, rows)


def _training(walkthrough: Walkthrough) -> Section:
    history, best = walkthrough.history, walkthrough.best_epoch
    split = "validation" if any("validation/loss" in row for row in history) else "train"
    rows = [[str(int(row["epoch"]) + 1), *(score(row.get(f"{split}/{name}")) for name in METRICS)] for row in history]
    shown = "" if best is None else f" The model shown is the one after epoch {best + 1}, dashed in the figure."
    text = (
        "An epoch reads every training row once. Loss is what training lowers, accuracy the share of right rows, and "
        f"recall the mean over the classes of the share of their rows that are found.{shown} Validation is in colour, "
        "training in grey."
    )
    figure = Picture(
        learning_curves(history, METRICS, best),
        "Loss, accuracy and macro recall of training and validation by epoch, numbers in the table",
    )
    strong = next((index for index, row in enumerate(history) if row["epoch"] == best), None)
    columns = dict.fromkeys(("Epoch", "Loss", "Accuracy", "Recall"), "number")
    table = Table(columns, rows, strong=strong, caption=f"Scores on {split} after each epoch")
    return Section("Training", [Text(text, page_only=True), table, figure])


def _summary(walkthrough: Walkthrough) -> str:
    shape, count = walkthrough.stages[-1].shape, len(_row_names(walkthrough))
    word = "One row" if count == 1 else f"{count} rows"
    classes = f"{shape[-1]} classes" if shape else "classes"
    return (
        f"{word} on the way through a trained model, stage by stage: the shape of the data, its values, and why it "
        f"changes. The model has {walkthrough.weights:,} weights and tells {classes} apart."
    )


def _facts(walkthrough: Walkthrough) -> dict[str, list[str]]:
    members = int(walkthrough.model.get("members", 1))
    networks = "" if members == 1 else f"{members} networks: "
    facts = {"model": [networks + _model_text(walkthrough.model)], "checkpoint": [walkthrough.checkpoint]}
    if walkthrough.bundle_error is not None:
        facts["bundle"] = [bundle_text(walkthrough.bundle_error)]
    return facts


def _model_text(model: Mapping[str, Any]) -> str:
    target = str(model.get("encoder", {}).get("_target_", ""))
    if target == TREE_LSTM:
        return f"Tree-LSTM, {str(model['composition']).replace('_', ' ')}"
    adaptive = "adaptive, " if model.get("_target_") == ADAPTIVE else ""
    kind = f"{'bidirectional ' if model.get('bidirectional') else ''}{network_kind(model)}"
    pooling = model.get("pooling")
    return adaptive + kind + (f", pooling {pooling}" if pooling else "")


def _row_names(walkthrough: Walkthrough) -> list[str]:
    """Return the number of each row. If the input names the rows, each number is followed by the name."""
    rows = walkthrough.stages[0].content
    assert isinstance(rows, RawRows)
    given = [shortened(row[ROW_NAME], MAX_NAME_CHARACTERS) for row in rows.rows]
    return [f"{number} ({name})" if name else str(number) for number, name in enumerate(given, start=1)]
