"""Tree fields: bracketed text, or lists of tokens and parents → ids of the nodes, their parents and their labels."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import count
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from seqclf.data.encoding.encoder import (
    NO_ENCODERS,
    EncodedField,
    EncoderState,
    FieldEncoder,
    ReadColumns,
    UnfitValueError,
)
from seqclf.data.encoding.free_text_encoder import RunningTextEncoder
from seqclf.data.encoding.tree_removal import TreeRemoval
from seqclf.data.encoding.trees import (
    LISTS,
    PARTIAL,
    MalformedError,
    Tree,
    binarize,
    node_texts,
    parse,
    parse_indexed,
    shown,
    written_order,
)
from seqclf.data.field_spec import NODE_LABELS, PARENTS, CategorySpec
from seqclf.data.hashing import hash_bytes
from seqclf.data.ragged import Ragged
from seqclf.data.schema.casts import (
    TEXT_TYPES,
    WHOLE_NUMBER_TYPES,
    element_type,
    plain,
    split_list,
    whole_numbers_or_texts,
)
from seqclf.data.schema.cell_types import is_text, looks_bracketed
from seqclf.data.schema.field_options import Option, choice_option, count_option, flag_option
from seqclf.data.schema.problems import Problems
from seqclf.data.schema.schema import Field
from seqclf.data.schema.truncation import NO_TRUNCATION, Truncation
from seqclf.errors import InputError
from seqclf.system.state_validation import require

NO_TYPE = '"NULL"'  # DuckDB's type of a column without a single value
INNER = "[NODE]"  # the token of a node without a word


class TreeEncoder(RunningTextEncoder):
    """Bracketed text → token ids of the nodes, children before parents, with `parents`.

    With several columns, they are lists of each node's token, the index of its parent, and optionally its label.

    The tags of nodes are labels (`tags: labels`, as in treebanks), which gives `node_labels`, or tokens (`tags:
    tokens`, as in expressions). `binarize`: nodes of more than two children are split, see `trees.binarize`.

    `parents`: (S,) int32 index within the sequence, -1 for the root. `node_labels`: (S,) int32 index among the sorted
    tags of training, -1 for nodes without one of them.
    """

    options: ClassVar[Mapping[str, Option]] = {
        "tags": choice_option("labels", "labels", "tokens"),
        "binarize": flag_option(False),
        "lowercase": flag_option(False),
        "min_count": count_option(1),
        "max_size": count_option(),
    }
    may_be_cut = False  # nodes would lose their parents
    takes_several_columns = True
    tags: Sequence[str] | None = ()

    def __init__(
        self,
        field: Field,
        others: Mapping[str, FieldEncoder] = NO_ENCODERS,
        truncation: Truncation = NO_TRUNCATION,
    ):
        super().__init__(field, others, truncation)
        self.labelled = self.option("tags") == "labels"
        self.is_indexed = len(field.columns) > 1
        self.words_at_leaves = self.labelled and not self.is_indexed  # and nowhere else
        self.removes_others = not self.words_at_leaves
        self.tokens: list[str] = []
        self.tags = []

    @classmethod
    def complete(cls, field: Field, sample: pa.Table, list_separator: str | None, events: bool) -> Field:
        if len(field.columns) > len(LISTS):
            raise InputError(
                f"data.fields.{field.name}",
                f"has {len(field.columns)} columns",
                f"a tree has one of bracketed text, or those of {', '.join(LISTS)}",
            )
        tokens = sample.column(field.columns[0])
        is_split = len(field.columns) > 1 and is_text(tokens.type) and not looks_bracketed(tokens)
        return replace(field, separator=list_separator if is_split else None)

    @property
    def expected(self) -> str:
        return "a mapping of the lists tokens and parents" if self.is_indexed else "a text"

    def list_sql(self, types: Mapping[str, str], where: str) -> str:
        if not self.is_indexed:
            return super().list_sql(types, where)
        parts, missing = [], []
        for name, column in zip(LISTS, self.field.columns, strict=False):
            kind = types[column]
            if kind not in (*TEXT_TYPES, NO_TYPE) and not kind.endswith("]"):
                raise InputError(
                    where,
                    f"column '{column}' holds {kind}, not lists",
                    f"data.fields.{self.field.name}.columns names the lists of the tokens and of their parents' "
                    "indices",
                )
            cells = plain(column, kind)
            parts.append(f"{name} := {self._part_sql(name, cells, kind)}")
            missing.append(f"NULLIF(trim({cells}), '') IS NULL" if kind in TEXT_TYPES else f"{cells} IS NULL")
        lists = f"CAST(to_json(struct_pack({', '.join(parts)})) AS VARCHAR)"
        return f"CASE WHEN {' OR '.join(missing)} THEN NULL ELSE {lists} END"

    def _part_sql(self, name: str, cells: str, kind: str) -> str:
        """One of the lists. What does not fit stays as it is, so that `parse_indexed` can tell it from a null."""
        is_text = kind in TEXT_TYPES
        is_split = is_text and self.field.separator is not None and kind != "JSON"
        items = split_list(f"trim({cells})", self.field.separator) if is_split else cells
        if name != "parents":
            items = f"TRY_CAST({items} AS VARCHAR[])"
        elif not WHOLE_NUMBER_TYPES.fullmatch(element_type(kind)):
            items = whole_numbers_or_texts(items)
        return f"COALESCE(to_json({items}), to_json({cells}))" if is_text else items

    @property
    def remedy_for_lists(self) -> str:
        name, (column,) = self.field.name, self.field.columns
        return (
            f"set 'data.fields={{{name}: {{kind: tree, columns: [{column}, PARENTS]}}}}', where PARENTS is "
            "the column of their parents' indices"
        )

    @property
    def parts(self) -> Collection[str]:
        return dict.fromkeys((*self.field.columns, *LISTS)) if self.is_indexed else ()

    def from_python(self, value: Any) -> Any:
        if not self.is_indexed:
            return super().from_python(value)
        named = {name: name for name in LISTS} | dict(zip(self.field.columns, LISTS, strict=False))
        if not isinstance(value, Mapping) or not value.keys() <= named.keys():
            raise TypeError(f"not {self.expected}")
        lists: dict[str, list[Any]] = {}
        for name, cells in value.items():
            if isinstance(cells, (str, bytes, Mapping, Set)):
                raise UnfitValueError(f"has {name} that are {shown(cells)}, not a list; give one entry per node")
            if named[name] in lists:
                both = " and ".join(other for other in value if named[other] == named[name])
                raise UnfitValueError(f"has {both}, two names of one list; give it once")
            lists[named[name]] = list(cells)
        for column, name in zip(self.field.columns, ("tokens", "parents"), strict=False):
            if name not in lists:
                raise UnfitValueError(f"has no {column}; give the lists {' and '.join(self.field.columns[:2])}")
        return json.dumps(lists, default=_json_value)

    def parse(self, text: str) -> Any:
        """Read bracketed text as it is, and lists as a JSON object by column or by `LISTS`."""
        if not self.is_indexed:
            return text
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            example = ", ".join(f'"{column}": […]' for column in self.field.columns)
            raise InputError(f"sequence={text}", f"is not JSON ({error})", f"write {{{example}}}") from None

    def check(self, columns: pa.RecordBatch, problems: Problems) -> None:
        super().check(columns, problems)
        column = columns.column(self.field.name)
        rows = np.flatnonzero(problems.usable).tolist()  # blank rows have their reason already
        reasons = {row: self._problem(column[row].as_py()) for row in rows}
        malformed = {row: reason for row, reason in reasons.items() if reason is not None}
        problems.mark(np.array(list(malformed), np.int64), self.field.column, list(malformed.values()))

    def token_keys(self, column: pa.Array) -> np.ndarray:
        """(N,) keys, equal for trees of the same tokens and shape.

        Spaces do not count, and neither do tags that are labels, as the model gets none of them.
        """
        # Without a separator, the tokens a, bc and ab, c would be equal.
        return hash_bytes("\0".join(tokens).encode() + tree.parents.tobytes() for tree, tokens in self._trees(column))

    def _trees(self, column: pa.Array) -> Iterator[tuple[Tree, list[str]]]:
        """Each tree of a column of texts, and the tokens of its nodes."""
        for text in column.to_pylist():
            tree = self._parse(text)
            tokens = tree.tokens
            if not self.labelled and not self.is_indexed:
                tokens = [token or tag for token, tag in zip(tree.tokens, tree.tags, strict=True)]
            tokens = [self._normalized(token) or INNER for token in tokens]
            yield binarize(tree, tokens) if self.option("binarize") else (tree, tokens)

    def _parse(self, text: str) -> Tree:
        return parse_indexed(text) if self.is_indexed else parse(text, self.labelled)

    def _problem(self, text: str) -> str | None:
        """Return the reason why a text is not a tree, or None if it is one."""
        try:
            self._parse(text)
        except MalformedError as error:
            return str(error)
        return None

    def _normalized(self, token: str) -> str:
        return token.lower() if self.option("lowercase") else token

    def fit(self, read: ReadColumns) -> None:
        counts: Counter[str] = Counter()
        tags: set[str] = set()
        for record_batch in read(self.field.name):
            for tree, tokens in self._trees(record_batch.column(self.field.name)):
                counts.update(tokens)
                tags.update(tree.tags)
        frequent = [token for token, count in counts.items() if count >= self.option("min_count")]
        # Ties are broken by token, so that ids do not depend on the order of rows.
        self.tokens = sorted(frequent, key=lambda token: (-counts[token], token))[: self.option("max_size")]
        self.tags = sorted(tags - {""}) if self.labelled else []

    def encode(self, record_batch: pa.RecordBatch) -> EncodedField:
        id_of = {token: id for id, token in enumerate(self.tokens, start=1)}
        label_of = {tag: label for label, tag in enumerate(self.tags or [])}
        # Parents begin with an empty array, as a batch without rows has nothing else to concatenate.
        lengths, ids, parents, labels = [], [], [np.empty(0, np.int32)], []
        for tree, tokens in self._trees(record_batch.column(self.field.name)):
            lengths.append(len(tokens))
            ids += [id_of.get(token, 0) for token in tokens]
            parents.append(tree.parents)
            labels += [label_of.get(tag, -1) for tag in tree.tags]
        arrays = {self.field.name: np.array(ids, np.int32), PARENTS: np.concatenate(parents)}
        if self.labelled:
            arrays[NODE_LABELS] = np.array(labels, np.int32)
        return EncodedField(np.array(lengths, np.int64), arrays)

    def decode(self, fields: Mapping[str, np.ndarray]) -> list[str]:
        return ["?" if id == 0 else self.tokens[id - 1] for id in fields[self.field.name].tolist()]

    def token_columns(self, fields: Mapping[str, np.ndarray], shown: np.ndarray) -> dict[str, list[str]]:
        """See `FieldEncoder.token_columns`. A node without a word has the words below it."""
        tokens, is_wordless = self.decode(fields), self.repeats_others(fields).tolist()
        return {self.field.name: node_texts(tokens, fields[PARENTS].tolist(), is_wordless, shown.tolist())}

    def repeats_others(self, fields: Mapping[str, np.ndarray]) -> np.ndarray:
        is_inner = np.bincount(fields[PARENTS][:-1], minlength=len(fields[PARENTS])) > 0  # the root comes last
        return is_inner & self._wordless(fields[self.field.name])

    def written_order(self, column: pa.Array) -> np.ndarray | None:
        """See `FieldEncoder.written_order`. Only lists have an order of nodes. Partial nodes follow them."""
        if not self.is_indexed:
            return None
        indices: list[int] = []
        for text in column.to_pylist():
            order = written_order(text)
            if self.option("binarize"):
                names = binarize(parse_indexed(text), [str(index) for index in order])[1]
                partial = count(len(order))
                order = [next(partial) if name.endswith(PARTIAL) else int(name) for name in names]
            indices += order
        return np.array(indices, np.int64)

    def token_removal(self, sequences: Ragged) -> TreeRemoval:
        ids, parents = sequences.fields[self.field.name], sequences.fields[PARENTS]
        above = np.where(parents >= 0, parents + np.repeat(sequences.offsets[:-1], sequences.lengths), 0)
        return TreeRemoval(sequences.offsets, parents, self._wordless(ids), self._partial(ids, ids[above]))

    def partial_nodes(self, fields: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return a mask (T,) of the partial nodes of one encoded tree (see `binarize`)."""
        ids, parents = fields[self.field.name], fields[PARENTS]
        return self._partial(ids, ids[parents]) & (parents >= 0)  # a root stands for all its children

    def _wordless(self, ids: np.ndarray) -> np.ndarray:
        """(S,) mask of the nodes that are without a word, if they are inner ones. An unknown token may be a word."""
        if self.words_at_leaves:
            return np.ones(len(ids), bool)
        return (ids > 0) & (ids == self._id_of(INNER))

    def _partial(self, ids: np.ndarray, parent_ids: np.ndarray) -> np.ndarray:
        """(S,) mask of the nodes that have the token of a partial node of their parent (see `binarize`).

        A partial node whose token is unknown cannot be told from an unknown node.
        """
        if not self.option("binarize"):
            return np.zeros(len(ids), bool)
        if self.words_at_leaves:  # all tokens of inner nodes are INNER, or mark partial ones
            return (ids == self._id_of(INNER + PARTIAL)) & (ids != self._id_of(INNER))
        id_of = {token: id for id, token in enumerate(self.tokens, start=1)}
        partial_of = np.array([0, *(id_of.get(token + PARTIAL, 0) for token in self.tokens)])
        in_chain = (ids == parent_ids) & np.isin(ids, partial_of)
        return (ids > 0) & ((ids == partial_of[parent_ids]) | in_chain)

    def _id_of(self, token: str) -> int:
        return self.tokens.index(token) + 1 if token in self.tokens else 0

    def spec(self) -> CategorySpec:
        return {"name": self.field.name, "kind": "category", "size": len(self.tokens) + 1}

    def state(self) -> EncoderState:
        return {"tokens": self.tokens, "tags": self.tags}

    def restore(self, state: EncoderState) -> None:
        require(state, {"tokens": [str], "tags": [str]})
        self.tokens, self.tags = state["tokens"], state["tags"]


def _json_value(value: Any) -> str | None:
    """Return an element that JSON has no type for: None for missing values of pandas, otherwise text."""
    return None if type(value).__name__ in ("NAType", "NaTType") else str(value)
