"""Tree fields: a tree is encoded as the token ids, the parents and the labels of its nodes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from seqclf.data.encoding.field_encoder import EncodedField, EncoderState, ReadColumns, UnfitValueError
from seqclf.data.encoding.running_text import RunningTextEncoder
from seqclf.data.encoding.trees import LISTS, PARTIAL, MalformedError, Tree, binarize, parse, parse_indexed, shown
from seqclf.data.field_spec import NODE_LABELS, PARENTS, CategorySpec
from seqclf.data.ragged import hash_bytes
from seqclf.data.schema import casts
from seqclf.data.schema.cell_types import is_text, looks_bracketed
from seqclf.data.schema.problems import Problems
from seqclf.data.schema.schema import Field, Option, choice_option, count_option, flag_option
from seqclf.errors import InputError
from seqclf.system.state_validation import require

NO_TYPE = '"NULL"'  # DuckDB's type of a column in which every cell is null
INNER = "[NODE]"  # the token of a node without a word


class TreeEncoder(RunningTextEncoder):
    """Encodes a tree as the token ids of its nodes and the index of each node's parent, children before parents.

    A file holds bracketed text in one column, or in two or three columns lists of each node's token, parent and,
    optionally, label. The tag of a node in bracketed text is the word after its bracket. With `tags: labels`, as in
    treebanks, tags are class labels; with `tags: tokens`, as in expressions, they are tokens. With `binarize`, a node
    with more than two children is split (see `trees.binarize`).

    The arrays are `parents`, (S,) int32, -1 for the root, and `node_labels`, (S,) int32 index in the sorted training
    labels, -1 without a known label.
    """

    options: ClassVar[Mapping[str, Option]] = {
        "tags": choice_option("labels", "labels", "tokens"),
        "binarize": flag_option(False),
        "lowercase": flag_option(False),
        "min_count": count_option(1),
        "max_size": count_option(),
    }
    may_be_cut = False  # truncation would separate nodes from their parents
    takes_several_columns = True
    tags: Sequence[str] | None = ()

    def set_up(self) -> None:
        self.labelled = self.option("tags") == "labels"
        self.is_indexed = len(self.field.columns) > 1
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
            if kind not in (*casts.TEXT_TYPES, NO_TYPE) and not kind.endswith("]"):
                raise InputError(
                    where,
                    f"column '{column}' holds {kind}, not lists",
                    f"data.fields.{self.field.name}.columns names the lists of the tokens and of their parents' "
                    "indices",
                )
            cells = casts.plain(column, kind)
            parts.append(f"{name} := {self._part_sql(name, cells, kind)}")
            missing.append(f"NULLIF(trim({cells}), '') IS NULL" if kind in casts.TEXT_TYPES else f"{cells} IS NULL")
        lists = f"CAST(to_json(struct_pack({', '.join(parts)})) AS VARCHAR)"
        return f"CASE WHEN {' OR '.join(missing)} THEN NULL ELSE {lists} END"

    def _part_sql(self, name: str, cells: str, kind: str) -> str:
        """Return the SQL of one list of a tree. Wrong types are kept: `parse_indexed` can tell them from null."""
        is_text = kind in casts.TEXT_TYPES
        is_split = is_text and self.field.separator is not None and kind != "JSON"
        items = casts.split_list(f"trim({cells})", self.field.separator) if is_split else cells
        if name != "parents":
            items = f"TRY_CAST({items} AS VARCHAR[])"
        elif not casts.WHOLE_NUMBER_TYPES.fullmatch(casts.element_type(kind)):
            items = casts.whole_numbers_or_texts(items)
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
        """Return a bracketed text unchanged, or parse a JSON object of lists by column name or name in `LISTS`."""
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
        rows = np.flatnonzero(problems.usable).tolist()  # blank rows are already marked as invalid
        malformed: dict[int, str] = {}
        for row in rows:
            try:
                self._parse(column[row].as_py())
            except MalformedError as error:
                malformed[row] = str(error)
        problems.mark(np.array(list(malformed), np.int64), self.field.column, list(malformed.values()))

    def token_keys(self, column: pa.Array) -> np.ndarray:
        """Return (N,) keys of trees, by tokens and shape; spaces and labels are no input of the model."""
        # Tokens are joined with a separator, so that the tokens a, bc and the tokens ab, c have different keys.
        return hash_bytes("\0".join(tokens).encode() + tree.parents.tobytes() for tree, tokens in self._trees(column))

    def _trees(self, column: pa.Array) -> Iterator[tuple[Tree, list[str]]]:
        for text in column.to_pylist():
            tree = self._parse(text)
            tokens = tree.tokens
            if not self.labelled and not self.is_indexed:
                tokens = [token or tag for token, tag in zip(tree.tokens, tree.tags, strict=True)]
            tokens = [self._normalized(token) or INNER for token in tokens]
            yield binarize(tree, tokens) if self.option("binarize") else (tree, tokens)

    def _parse(self, text: str) -> Tree:
        return parse_indexed(text) if self.is_indexed else parse(text, self.labelled)

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
        # Tokens that are equally frequent are sorted by name, so that ids do not depend on the order of rows.
        self.tokens = sorted(frequent, key=lambda token: (-counts[token], token))[: self.option("max_size")]
        self.tags = sorted(tags - {""}) if self.labelled else []

    def encode(self, record_batch: pa.RecordBatch) -> EncodedField:
        id_of = {token: id for id, token in enumerate(self.tokens, start=1)}
        label_of = {tag: label for label, tag in enumerate(self.tags or [])}
        # The list `parents` starts with an empty array, because `np.concatenate` fails on an empty list.
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

    def neutral(self, tokens: np.ndarray) -> np.ndarray:
        """Return unknown tokens. A node without a word keeps its token, because the token holds no information."""
        wordless = [id for id, token in enumerate(self.tokens, start=1) if token in (INNER, INNER + PARTIAL)]
        return np.where(np.isin(tokens, wordless), tokens, 0)

    def spec(self) -> CategorySpec:
        return {"name": self.field.name, "kind": "category", "size": len(self.tokens) + 1}

    def state(self) -> EncoderState:
        return {"tokens": self.tokens, "tags": self.tags}

    def restore(self, state: EncoderState) -> None:
        require(state, {"tokens": [str], "tags": [str]})
        self.tokens, self.tags = state["tokens"], state["tags"]


def _json_value(value: Any) -> str | None:
    """Replace a value that JSON cannot store: a missing value of pandas by None, any other value by its text."""
    return None if type(value).__name__ in ("NAType", "NaTType") else str(value)
