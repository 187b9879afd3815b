"""ListOps: nested operations on lists of digits. The class of an expression is its value, a digit from 0 to 9.

Reference: Nangia and Bowman 2018, "ListOps: A Diagnostic Dataset for Latent Tree Learning", whose generator gives the
grammar. The value of the tokens `[MAX 2 [FIRST 9 6 ] ]` is 9. The round brackets of the published files, which only
encode a binary tree, are left out.

A node is an operator with probability 0.25, otherwise a digit. MIN, MAX, MED (the median, rounded down) and SM (the sum
modulo 10) are from the paper; FIRST and LAST, which depend on the order, are from published variants. Unlike the
published files, every expression contains an operator.
"""

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

OPERATOR_SHARE = 0.25
REPEATS = 100_000  # drawing stops with an error after this many draws in a row without a new expression

OPERATORS: dict[str, Callable[[list[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda values: int(statistics.median(values)),
    "[SM": lambda values: sum(values) % 10,
    "[FIRST": lambda values: values[0],
    "[LAST": lambda values: values[-1],
}


def write(
    folder: Path,
    rows: dict[str, int],
    operators: Sequence[str],
    max_depth: int,
    max_args: int,
    max_length: int,
    seed: int,
) -> None:
    """Write `train.parquet`, `validation.parquet` and `test.parquet`. No expression occurs twice in the three files.

    The expressions are drawn together and divided at random, so every file has some of the rare short ones. `rows`:
    dict split → number of expressions. `max_depth`: maximum number of levels; the root is level 1, and the digits of a
    list without inner lists are level 2, as in the published generator. `max_args`: maximum number of arguments of an
    operator. `max_length`: maximum number of tokens; longer expressions are drawn again. Raises ValueError if the
    limits allow fewer expressions than `rows` requests.
    """
    if not operators or any(f"[{name}" not in OPERATORS for name in operators):
        known = ", ".join(name.strip("[") for name in OPERATORS)
        raise ValueError(f"operators={list(operators)}: must be some of {known}")
    for name, value, least in (("max_depth", max_depth, 2), ("max_args", max_args, 2), ("max_length", max_length, 4)):
        if value < least:
            raise ValueError(f"{name}={value}: must be at least {least}")
    draws = random.Random(seed)
    grammar = _Grammar(draws, [f"[{name}" for name in operators], max_depth, max_args, max_length)
    pool = _different(grammar, sum(rows.values()))
    draws.shuffle(pool)
    for split, count in rows.items():
        expressions, pool = pool[:count], pool[count:]
        values = pa.array([evaluate(expression.split(" ")) for expression in expressions], pa.int64())
        table = pa.table({"expression": pa.array(expressions, pa.string()), "value": values})
        pq.write_table(table, folder / f"{split}.parquet")


def evaluate(tokens: Sequence[str]) -> int:
    """Return the value of an expression, an integer from 0 to 9.

    >>> evaluate("[MAX 2 [FIRST 9 6 ] ]".split())
    9
    """
    open_lists: list[tuple[str, list[int]]] = [("", [])]
    for token in tokens:
        if token in OPERATORS:
            open_lists.append((token, []))
        elif token == "]":
            operator, values = open_lists.pop()
            open_lists[-1][1].append(OPERATORS[operator](values))
        else:
            open_lists[-1][1].append(int(token))
    (value,) = open_lists[0][1]
    return value


@dataclass(frozen=True)
class _Grammar:
    draws: random.Random
    operators: Sequence[str]
    max_depth: int
    max_args: int
    max_length: int

    def expression(self) -> list[str]:
        """Past `max_length`, operators get no further arguments."""
        tokens: list[str] = []
        self._operation(tokens, self.max_depth)
        return tokens

    def _operation(self, tokens: list[str], levels: int) -> None:
        tokens.append(self.draws.choice(self.operators))
        for _ in range(self.draws.randint(2, self.max_args)):
            if len(tokens) > self.max_length:
                break
            if levels > 2 and self.draws.random() < OPERATOR_SHARE:
                self._operation(tokens, levels - 1)
            else:
                tokens.append(str(self.draws.randrange(10)))
        tokens.append("]")


def _different(grammar: _Grammar, count: int) -> list[str]:
    expressions: dict[str, None] = {}  # a dict serves as an ordered set
    repeats = 0
    while len(expressions) < count:
        tokens = grammar.expression()
        before = len(expressions)
        if len(tokens) <= grammar.max_length:
            expressions[" ".join(tokens)] = None
        repeats = 0 if len(expressions) > before else repeats + 1
        if repeats == REPEATS:
            limits = f"max_depth={grammar.max_depth}, max_args={grammar.max_args} and max_length={grammar.max_length}"
            raise ValueError(
                f"rows={count}: {limits} allow about {len(expressions)} different expressions; set fewer rows"
            )
    return list(expressions)
