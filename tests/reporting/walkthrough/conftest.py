"""A walkthrough with a stage of every kind, of made-up numbers."""

import numpy as np
import pytest

from seqclf.inspection.stages import (
    ROW_NAME,
    ClassScores,
    EncodedRows,
    FieldTokens,
    MemberScores,
    PaddedBatch,
    Part,
    RawRows,
    RowVectors,
    Stage,
    TokenPairs,
    TokenScores,
    TokenVectors,
    TreeLevels,
    active_rows,
    varying_channels,
)
from seqclf.reporting.walkthrough.content import WalkthroughPage

EPOCHS = [
    {"epoch": 0, "step": 3, "train/loss": 1.5, "train/accuracy": 0.25, "train/recall": 0.25}
    | {"validation/loss": 1.25, "validation/accuracy": 0.5, "validation/recall": 0.375},
    {"epoch": 1, "step": 6, "train/loss": 0.5, "train/accuracy": 0.75, "train/recall": 0.75}
    | {"validation/loss": 0.25, "validation/accuracy": 1.0, "validation/recall": 0.875},
]
MODEL = {"_target_": "x", "cell": "lstm", "bidirectional": True, "pooling": "max", "members": 1}


def stages_of(lengths, classes, channels=6, words=("<b>&", "", "a", "nothing to do with it")):
    """A stage of every kind for rows of these lengths."""
    generator = np.random.default_rng(0)
    lengths = np.array(lengths)
    rows, longest = len(lengths), int(lengths.max())
    tokens = [
        [words[(row + position) % len(words)] for position in range(length)] for row, length in enumerate(lengths)
    ]
    encoded = [[str(len(token)) for token in row] for row in tokens]
    vectors = generator.normal(size=(rows, longest, channels)).astype(np.float32)
    vectors[np.arange(longest) >= lengths[:, None]] = np.nan  # padding, which nothing reads
    parts = [Part("forward", 0, channels // 2), Part("backward", channels // 2, channels)]
    shown = varying_channels(vectors, lengths, parts)
    scores = np.nan_to_num(np.abs(vectors[..., 0]))
    labels = [str(index) if index else None for index in range(rows)]
    names = [f"class {index}" for index in range(classes)]
    probabilities = generator.dirichlet(np.ones(classes), rows)
    predicted = probabilities.argmax(axis=1)
    raw = [{ROW_NAME: f"id r{row}", "tokens": " ".join(of_row)} for row, of_row in enumerate(tokens)]
    unknown = [np.array([not token for token in row]) for row in tokens]
    fields = [[FieldTokens("tokens", *of)] for of in zip(tokens, encoded, unknown, strict=True)]
    cells = [[*row, *[""] * (longest - len(row))] for row in encoded]
    parents = np.array([[*range(1, length), -1, *[-1] * (longest - length)] for length in lengths])
    depths = np.array([[*range(length - 1, -1, -1), *[longest] * (longest - length)] for length in lengths])
    inputs = [("tokens", "int64", (rows, longest))]
    contents = {
        "Raw rows": RawRows(raw, labels, lengths),
        "Encoded tokens": EncodedRows(fields),
        "Padded batch": PaddedBatch("tokens", cells, lengths, active_rows(lengths), inputs),
        "Vectors": TokenVectors(vectors, lengths, shown, parts, tokens),
        "Fewer vectors": TokenVectors(vectors, lengths, shown, parts, None),
        "Stop": TokenScores(
            "probability to stop", scores, lengths, tokens, lengths - 1, ["halts", *["end"] * (rows - 1)]
        ),
        "Pairs": TokenPairs(np.full((rows, longest, longest), 1 / longest), lengths, tokens),
        "Levels": TreeLevels(parents, depths, lengths, tokens),
        "Pooled": RowVectors(np.nan_to_num(vectors[:, 0]), shown, parts),
        "Members": MemberScores(np.stack([probabilities] * 2), probabilities, names),
        "Logits": ClassScores(np.log(probabilities), names, predicted, labels, False),
        "Labels": ClassScores(probabilities, names, predicted, labels, True),
    }
    return [
        Stage(
            title,
            f"About {title}.",
            content,
            *(((), ()) if isinstance(content, TreeLevels) else ((rows, longest), ("rows", "tokens"))),
            module="module.name",
            note=f"Note on {title}.",
        )
        for title, content in contents.items()
    ]


@pytest.fixture
def epochs():
    """The rows of metrics.csv of two epochs."""
    return EPOCHS


@pytest.fixture
def walkthrough():
    """`walkthrough(lengths=[3, 1, 4], classes=3, …)`: its content."""

    def build(lengths=(3, 1, 4), classes=3, history=(), refused=("row 9: is empty",), model=MODEL, **options):
        return WalkthroughPage(
            stages=stages_of(lengths, classes, **options),
            refused=list(refused),
            model=model,
            weights=1234,
            checkpoint="RUN/checkpoints/best.ckpt",
            history=list(history),
            best_epoch=1,
            bundle_error=3e-7,
        )

    return build
