"""Keys of rows are equal if and only if the model gets the same tokens."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.table_files import read, write, write_lines

from seqclf.data.encoding.encoders import make_encoders
from seqclf.data.prepare_data import prepare
from seqclf.data.reading.sources import Source
from seqclf.data.schema.schema import Field, Schema
from seqclf.data.schema.truncation import NO_TRUNCATION, Truncation
from seqclf.data.splitting.policies import sequence_keys

FIELDS = [
    Field("shop", "category", ("shop",)),
    Field("amount", "number", ("amount",), width=1),
    Field("when", "time", ("when",), width=1),
]
ROW = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from([0.0, -0.0, 1.5]), st.integers(0, 2)), min_size=1, max_size=4
)


def keys_of(rows, fields=FIELDS):
    encoders = make_encoders(fields)
    kinds = {"shop": pa.list_(pa.string()), "amount": pa.list_(pa.float64()), "when": pa.list_(pa.float64())}
    staged = {}
    for position, (name, kind) in enumerate(kinds.items()):
        column = pa.array([[token[position] for token in row] for row in rows], kind)
        staged[name] = encoders[name].stage(column)
    return sequence_keys(pa.record_batch(staged), encoders)


@given(st.lists(ROW, min_size=1, max_size=12))
def test_keys_are_equal_if_and_only_if_tokens_are(rows):
    """Times are compared relative to the first token. 0.0 and -0.0 are the same number."""
    plain = [[(shop, abs(amount), when - row[0][2]) for shop, amount, when in row] for row in rows]
    keys = keys_of(rows)
    for first in range(len(rows)):
        for second in range(first):
            assert (keys[first] == keys[second]) == (plain[first] == plain[second])


@given(st.lists(ROW, min_size=2, max_size=8), st.randoms())
def test_keys_do_not_depend_on_the_order_of_the_rows(rows, random):
    order = list(range(len(rows)))
    random.shuffle(order)
    keys = keys_of(rows)
    assert keys_of([rows[row] for row in order]).tolist() == keys[order].tolist()


@pytest.mark.parametrize("tokenizer", ["word", "character", "bpe"])
def test_a_distinct_split_does_not_depend_on_the_order_of_the_rows(options, tmp_path, tokenizer):
    generator = np.random.default_rng(1)
    texts = [
        " ".join(generator.choice(["red", "green", "blue", "grey"], size)) for size in generator.integers(3, 6, 300)
    ]
    split_of = []
    for order in (np.arange(300), generator.permutation(300)):
        table = {"text": [texts[row] for row in order], "label": [texts[row][0] for row in order]}
        path = write(tmp_path / f"{order[0]}.parquet", table)
        fields = {"text": {"kind": "text", "tokenizer": tokenizer}}
        dataset = prepare(options(train=path, label="label", fields=fields, split={"by": "distinct", "test": 0.3}))
        numbers = {name: split.row_numbers - 1 for name, split in dataset.splits.items()}
        split_of.append({texts[order[number]]: name for name, rows in numbers.items() for number in rows.tolist()})
    assert split_of[0] == split_of[1] and set(split_of[0].values()) == {"train", "validation", "test"}


def test_cycles_distinguish_hours():
    rows = [[("a", 1.0, 0)], [("a", 1.0, 3600)]]
    assert len(set(keys_of(rows))) == 1
    cyclic = [*FIELDS[:2], Field("when", "time", ("when",), width=1, options={"cycles": ["hour"]})]
    assert len(set(keys_of(rows, cyclic))) == 2


def test_many_different_sequences_have_different_keys():
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 6, 50_000)
    column = pa.ListArray.from_arrays(np.append(0, np.cumsum(lengths)), generator.integers(0, 12, lengths.sum()))
    encoders = make_encoders([Field("x", "category", ("x",), "integer")])
    keys = sequence_keys(pa.record_batch({"x": encoders["x"].stage(column)}), encoders)
    assert len(np.unique(keys)) == len({tuple(row) for row in column.to_pylist()})


def text_keys(texts, kind="text", truncation=NO_TRUNCATION, **options):
    encoders = make_encoders([Field("text", kind, ("text",), options=options)], truncation)
    staged = truncation.cut_lists(pa.record_batch({"text": encoders["text"].stage(pa.array(texts))}), ["text"])
    return sequence_keys(staged, encoders).tolist()


@pytest.mark.parametrize(
    ("tokenizer", "equal", "different"),
    [
        ("word", ["Win a prize!", "win  a prize !", " WIN a prize!\n", "win a\u00a0prize!"], ["win a prize", "wina!"]),
        ("character", ["Win a", "win a"], ["win  a", "win"]),
        ("bpe", ["Win a", "win a"], ["win  a", "wina"]),
        ("word", ["caf\u00e9", "cafe\u0301", "CAF\u00c9"], ["cafe"]),
    ],
)
def test_texts_are_compared_by_their_tokens(tokenizer, equal, different):
    keys = text_keys([*equal, *different], tokenizer=tokenizer)
    assert len(set(keys[: len(equal)])) == 1 and len(set(keys)) == 1 + len(different)
    with_case = text_keys(["Hi you", "hi you"], tokenizer=tokenizer, lowercase=False)
    assert len(set(with_case)) == 2


@pytest.mark.parametrize("tokenizer", ["word", "bpe"])
def test_truncated_tokens_do_not_count(tokenizer):
    first, last = (Truncation(2, side) for side in ("keep_first", "keep_last"))
    texts = ["see you soon", "see you later", "will see you", "see you"]
    assert len(set(text_keys(texts[:2] + texts[3:], truncation=first, tokenizer=tokenizer))) == 1
    assert len(set(text_keys(texts[2:], truncation=last, tokenizer=tokenizer))) == 1
    assert len(set(text_keys(texts, tokenizer=tokenizer))) == 4


def test_trees_are_compared_by_their_nodes():
    same = ["(3 (2 The) (2 Rock))", "(1 (2 The)   (0 Rock) )", "[3 (2 The) (2 Rock)]"]
    other = [
        "(3 (2 (2 The)) (2 Rock))",
        "(3 (2 Rock) (2 The))",
        "(3 (2 The) (2 (2 Rock) (2 !)))",
        "(3 (2 the) (2 Rock))",
    ]
    keys = text_keys([*same, *other], "tree")
    assert len(set(keys[:3])) == 1 and len(set(keys)) == 1 + len(other)
    assert len(set(text_keys(["[MAX 1 2 ]", "[MIN 1 2 ]", "[MAX 1  2]"], "tree", tags="tokens"))) == 2


def number_keys(rows, **options):
    encoders = make_encoders([Field("x", "number", ("x",), width=1, options=options)])
    return sequence_keys(pa.record_batch({"x": pa.array(rows, pa.list_(pa.float64()))}), encoders).tolist()


def test_numbers_that_agree_in_ten_digits_are_equal():
    third = 1 / 3
    one, two, three, other = number_keys([[0.1 + 0.2, third], [0.3, third], [0.3, 0.333333333333], [0.3, 0.33333333]])
    assert one == two == three != other
    since_1970 = 1.7e9 + np.arange(1000)
    assert len(set(number_keys(since_1970[:, None].tolist()))) == 1000
    single = [[0.1], [float(np.float32(0.1))]]
    assert len(set(number_keys(single, scale="none"))) == 1 and len(set(number_keys(single))) == 2


def test_missing_values_equal_only_each_other():
    negative = float(np.array([-np.nan])[0])
    keys = number_keys([[None, 1.0], [float("nan"), 1.0], [negative, 1.0], [0.0, 1.0]], missing="mean")
    assert len(set(keys[:3])) == 1 and keys[3] != keys[0]


def families(count):
    """(rows, length, channels) doubles of regular structure. All rows differ."""
    generator = np.random.default_rng(0)
    counter = np.arange(count)
    yield "whole numbers", np.stack(np.unravel_index(counter, (30, 30, 30)), axis=1)[:, None, :]
    yield "powers of two", 2.0 ** np.stack(np.unravel_index(counter, (30, 30, 30)), axis=1)[:, None, :]
    yield "one counter", counter[:, None, None].astype(float)
    yield "one bit", np.eye(20)[counter % 20][:, :, None] * (1 + counter // 20)[:, None, None]
    yield "swapped", np.stack([counter, -counter], axis=1)[:, :, None] * 1.0
    digits = (counter[:, None] >> np.arange(15)) & 1
    yield "binary", digits[:, :, None] * 1.0
    yield "binary channels", digits[:, None, :] * 1.0
    yield "halves", generator.permutation(counter)[:, None, None] / 2**10 + np.zeros((1, 3, 2))


@pytest.mark.parametrize("rows", [pytest.param(rows, id=name) for name, rows in families(20_000)])
def test_structured_data_has_no_false_duplicates(rows):
    count, length, channels = rows.shape
    values = rows.astype(np.float64)
    column = pa.array(values.reshape(count, length, channels).tolist(), pa.list_(pa.list_(pa.float64())))
    encoders = make_encoders([Field("x", "number", ("x",), width=channels)])
    keys = sequence_keys(pa.record_batch({"x": column if channels > 1 else pa.array(rows[..., 0].tolist())}), encoders)
    assert len(np.unique(keys)) == len(np.unique(values.reshape(count, -1), axis=0)) == count


def test_equal_tokens_share_a_key_in_every_spelling(tmp_path):
    path = write_lines(tmp_path / "t.csv", ["x", '"[1, 2]"', '"[1,2.0]"', '" [1 ,2]"', '"[2, 1]"'])
    field = Field("x", "category", ("x",), "integer")
    (batch,) = read(Source(str(path), "data.train"), Schema((field,)))
    encoders = make_encoders([field])
    staged = pa.record_batch({"x": encoders["x"].stage(batch.columns.column("x"))})
    one, two, three, other = sequence_keys(staged, encoders).tolist()
    assert one == two == three != other
