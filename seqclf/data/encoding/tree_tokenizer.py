"""Bracketed text → the nodes of a tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from seqclf.data.encoding.tree_parser import Tree, parse
from seqclf.data.schema.fields import Field
from seqclf.data.splitting.hashing import hash_bytes
from seqclf.system.stored_state import require

INNER = "[NODE]"  # the token of a tree's node that has none
Batches = Callable[..., Iterator[pa.RecordBatch]]


class TreeTokenizer:
    """Bracketed text → the tokens of its nodes, children before parents, with `parents` and, where the tags are
    labels (`tags: labels`, as in treebanks), `node_labels`, or as tokens (`tags: tokens`, as in expressions).

    `parents`: (S,) int32 places within the sequence, -1 for the root; `node_labels`: (S,) int32 places among the sorted
    tags of training, -1 where a node has none of them.
    """

    def __init__(self, field: Field, others: Mapping[str, Any]):
        self.field = field
        self.labelled = field.option("tags") == "labels"
        self.tokens: list[str] = []
        self.tags: list[str] = []

    def stage(self, column: pa.Array) -> pa.Array:
        return column

    def token_keys(self, column: pa.Array) -> np.ndarray:
        """Trees are equal if their tokens and their shapes are; how they are spaced and, where they are labels, their
        tags do not count, as the model gets none of them."""
        trees = self._trees(pa.record_batch({self.field.name: column}))
        return hash_bytes("\0".join(tokens).encode() + tree.parents.tobytes() for tree, tokens in trees)

    def _trees(self, batch: pa.RecordBatch) -> Iterator[tuple[Tree, list[str]]]:
        """Each tree and the token of each of its nodes."""
        for text in batch.column(self.field.name).to_pylist():
            tree = parse(text, self.labelled)
            given = tree.tokens if self.labelled else [a or b for a, b in zip(tree.tokens, tree.tags, strict=True)]
            yield tree, [self._spelled(token) or INNER for token in given]

    def _spelled(self, token: str) -> str:
        return token.lower() if self.field.option("lowercase") else token

    def fit(self, batches: Batches) -> None:
        counts: dict[str, int] = {}
        tags: set[str] = set()
        for batch in batches(self.field.name):
            for tree, tokens in self._trees(batch):
                for token in tokens:
                    counts[token] = counts.get(token, 0) + 1
                tags.update(tree.tags)
        kept = [token for token, count in counts.items() if count >= self.field.option("min_count")]
        self.tokens = sorted(kept, key=lambda token: (-counts[token], token))[: self.field.option("max_size")]
        self.tags = sorted(tags - {""}) if self.labelled else []

    def encode(self, batch: pa.RecordBatch, staged: bool) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        ids = {token: place for place, token in enumerate(self.tokens, start=1)}
        labels = {tag: place for place, tag in enumerate(self.tags)}
        lengths, nodes, parents, tags = [], [], [], []
        for tree, tokens in self._trees(batch):
            lengths.append(len(tokens))
            nodes += [ids.get(token, 0) for token in tokens]
            parents.append(tree.parents)
            tags += [labels.get(tag, -1) for tag in tree.tags]
        arrays = {
            self.field.name: np.array(nodes, np.int32),
            "parents": np.concatenate(parents or [np.empty(0, np.int32)]),
        }
        if self.labelled:
            arrays["node_labels"] = np.array(tags, np.int32)
        return np.array(lengths, np.int64), arrays

    def decode(self, fields: Mapping[str, np.ndarray]) -> list[str]:
        return ["?" if place == 0 else self.tokens[place - 1] for place in fields[self.field.name].tolist()]

    def spec(self) -> dict[str, Any]:
        return {"name": self.field.name, "kind": "category", "size": len(self.tokens) + 1}

    def state(self) -> dict[str, Any]:
        return {"tokens": self.tokens, "tags": self.tags}

    def restore(self, state: dict[str, Any]) -> None:
        require(state, {"tokens": [str], "tags": [str]})
        self.tokens, self.tags = state["tokens"], state["tags"]
