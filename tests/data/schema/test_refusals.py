"""Data that cannot be trained on is refused in one line with file, row or key and the remedy. The cache stays empty."""

import pytest
from support.table_files import LABELS, TOKENS, simple, write, write_lines

from seqclf.data.prepare_data import prepare
from seqclf.errors import InputError
from seqclf.settings.data_settings import DataOptions

GOOD = [f'"{tokens}",{label}' for tokens, label in zip(TOKENS, LABELS, strict=True)]


def fails(options, tmp_path, message, path, **overrides):
    """Preparing raises one line that matches, and the cache stays empty."""
    with pytest.raises(InputError, match=message) as caught:
        settings = {"train": path, "label": "label", "cache_dir": tmp_path / "cache", **overrides}
        prepare(options(**settings))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "cache").exists() or list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"tokens": [], "label": []}, r"t.\w+: has no rows; (give a file with|write) rows"),
        ({"tokens": TOKENS, "label": ["a"] * 20}, r"t.\w+: column 'label': one class only \('a'\).*check data.label"),
        (
            {"tokens": [[]] * 20, "label": LABELS},
            r"t.\w+: row 1: tokens has no tokens; .*\(all 20 rows of .* are refused\)",
        ),
        (
            {"tokens": TOKENS, "label": [*LABELS[:10], *[None] * 10]},
            r"t.\w+: row 11: label is empty; .*\(10 of 20 rows of .* more than data.max_bad_share=0.1; fix them or",
        ),
        (
            {"tokens": TOKENS[:1], "label": ["a"]},
            r"t.\w+: data.split.by=random: none of 1 rows for validation; ",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_unusable_tables_are_refused(options, tmp_path, columns, message, kind):
    path = write(tmp_path / f"t.{kind}", columns)
    fails(options, tmp_path, message, path, fields={"tokens": "category"})


@pytest.mark.parametrize("grouping", [{}, {"group_by": "a"}])
@pytest.mark.parametrize(
    ("text", "problem", "remedy"),
    [
        ("a,b,c,label\n", "has no rows", "data.header=false"),
        ("a,b,c,label\n1,2,3,4,5\n", "has no rows: {path}: line 2: the line is malformed", "give a file with rows"),
        (None, "has no rows", "give a file with rows"),
    ],
)
def test_a_file_without_rows_is_said_before_fields_are_inferred(options, tmp_path, text, problem, remedy, grouping):
    path = tmp_path / ("t.parquet" if text is None else "t.csv")
    write(path, {"a": [], "b": [], "label": []}) if text is None else path.write_text(text)
    with pytest.raises(InputError) as caught:
        prepare(options(train=path, label="label", **grouping))
    assert caught.value.problem.startswith(problem.format(path=path)) and remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"label": "lable"}, r"t.csv: no column 'lable' \(data.label\); did you mean 'label'\?"),
        ({"fields": {"token": "category"}}, r"no column 'token' \(data.fields.token\); did you mean 'tokens'\?"),
        ({"group": "user", "split": {"by": "group"}}, r"t.csv: no column 'user' \(data.group\); its columns are"),
        ({"split": {"by": "time", "column": "label"}}, r"t.csv: data.split.column=label has values that are not times"),
        ({"test": "nope.csv"}, r"data.test=nope.csv: no such file"),
        ({"train": None}, r"data.train: not set; give a file"),
    ],
)
def test_invalid_options_are_named(options, tmp_path, overrides, message):
    fails(options, tmp_path, message, write(tmp_path / "t.csv", simple()), **overrides)


def test_text_configured_as_lists_is_refused(options, tmp_path):
    path = write(tmp_path / "t.csv", {"x": ["hello you"] * 20, "label": LABELS})
    message = r"row 1: x is not a list of numbers: 'hello you'; .*list_separator=' '. \(all 20 rows"
    fails(options, tmp_path, message, path, fields={"x": "number"})


@pytest.mark.parametrize("kind", ["tree", {"kind": "tree", "columns": ["tokens"]}])
def test_a_tree_of_one_column_of_lists_lacks_the_column_of_parents(options, tmp_path, kind):
    message = r"not text; set 'data.fields={tokens: {kind: tree, columns: \[tokens, PARENTS\]}}', where PARENTS is"
    fails(options, tmp_path, message, write(tmp_path / "t.parquet", simple()), fields={"tokens": kind})


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("[]", "has no tokens; a sequence needs at least one"),
        ("", "is empty; a sequence needs at least one token"),
        ("[1, x]", "has a value that is no whole number"),
        ("[1.5, 2]", "has a value that is no whole number"),
        ("hello", "is not a list of integers: 'hello'; write lists as"),
    ],
)
def test_one_bad_cell_refuses_one_row(options, tmp_path, cell, reason):
    path = write_lines(tmp_path / "t.csv", ["tokens,label", *GOOD, f'"{cell}",a'])
    dataset = prepare(options(train=path, label="label"))
    (line,) = (dataset.folder / "quarantine.jsonl").read_text().splitlines()
    assert reason in line and '"row": 21' in line and dataset.report["train"].refused == 1
    fails(options, tmp_path, r"t.csv: row 21: tokens .*on_bad_row=quarantine", path, on_bad_row="error")
    dropped = prepare(options(train=path, label="label", on_bad_row="drop"))
    assert dropped.digest == dataset.digest and not (dropped.folder / "quarantine.jsonl").exists()


def test_a_test_file_of_other_columns_is_refused_before_any_work(options, tmp_path):
    other = write(tmp_path / "test.csv", {"token": TOKENS, "label": LABELS})
    bad = write_lines(tmp_path / "t.csv", ["tokens,label", *GOOD, '"[]",a'])
    message = r"test.csv: no column 'tokens' \(data.fields.tokens\); did you mean 'token'"
    fails(options, tmp_path, message, bad, test=other, on_bad_row="error")


def test_a_test_file_without_a_usable_row_is_refused(options, tmp_path):
    some = write(tmp_path / "some.csv", {"tokens": [[1], [2], [3]], "label": ["zebra", "a", "b"]})
    path = write(tmp_path / "t.csv", simple())
    counts = prepare(options(train=path, label="label", test=some, max_bad_share=1)).report["test"]
    assert (counts.used, counts.refused, counts.unknown_labels) == (2, 1, 1)
    other = write(tmp_path / "test.csv", {"tokens": [[1]], "label": ["zebra"]})
    message = r"test.csv: none of the rows for test can be used: .*row 1: label is 'zebra', which never occurs"
    fails(options, tmp_path, message, write(tmp_path / "t.csv", simple()), test=other, max_bad_share=1)


@pytest.mark.parametrize(("positive", "remedy"), [("zebra", "the labels are a, b"), ("A", "did you mean 'a'")])
def test_a_positive_label_that_does_not_exist_is_named(options, tmp_path, positive, remedy):
    path = write(tmp_path / "t.csv", simple())
    with pytest.raises(InputError, match=rf"data.positive={positive}: no such label; {remedy}"):
        prepare(options(train=path, label="label", positive=positive))


def test_options_are_checked_against_the_configuration(options):
    with pytest.raises(InputError, match=r"data.label: not set; name the column that holds the label"):
        options(label=None)
    with pytest.raises(InputError, match=r"data.bogus: no such key; --help data lists the keys"):
        options(label="label", bogus=1)
    parsed = options(label=3, id=4, positive=5)
    assert isinstance(parsed, DataOptions) and (parsed.label, parsed.id, parsed.positive) == ("3", "4", "5")
