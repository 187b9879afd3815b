"""User errors end in exit code 2 and one line that names the cause, and leave no files."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

TRAIN = ["data=files", "data.train={folder}/train.jsonl", "data.label=fraud", "data.id=card", "logger=none"]
PREDICT = ["bundle={folder}/logged/bundle", "output=scores.parquet"]
SEQUENCE = ["bundle={folder}/logged/bundle"]
EVALUATE = ["bundle={folder}/logged/bundle", "data.test={folder}/test.parquet", "data.label=fraud"]

# Case: command, arguments, texts that the error line must contain.
CASES = {
    "train: no such file": ("train", [*TRAIN, "data.train=nowhere.csv"], ["data.train=nowhere.csv", "no such file"]),
    "train: unknown field": ("train", [*TRAIN, "data.fields={shops: category}"], ["train.jsonl", "'shops'", "'shop'"]),
    "train: unknown kind": ("train", [*TRAIN, "data.fields={shop: words}"], ["data.fields.shop", "words"]),
    "train: one class": ("train", [*TRAIN, "data.train={folder}/single.jsonl"], ["single.jsonl", "one class only"]),
    "train: empty file": ("train", [*TRAIN, "data.train={folder}/empty.csv"], ["empty.csv", "empty"]),
    "train: header only": ("train", [*TRAIN, "data.train={folder}/header.csv"], ["header.csv", "no rows"]),
    "train: not parquet": ("train", [*TRAIN, "data.train={folder}/broken.parquet"], ["broken.parquet"]),
    "train: bad rows": ("train", [*TRAIN, "data.max_bad_share=0"], ["train.jsonl: row 6: shop", "data.max_bad_share"]),
    "train: group of nothing": ("train", [*TRAIN, "trainer=null"], ["trainer=null: a group takes", "--help trainer"]),
    "predict: over its input": (
        "predict",
        [*PREDICT, "input={folder}/test.parquet", "output={folder}/test.parquet"],
        ["output=", "is the input too"],
    ),
    "predict: nothing": ("predict", SEQUENCE, ["input=FILE", "sequence="]),
    "predict: no such file": ("predict", [*PREDICT, "input=nowhere.csv"], ["input=nowhere.csv"]),
    "predict: a query": ("predict", [*PREDICT, 'input="select 1 as shop"'], ["input=select 1", "is SQL"]),
    "predict: unknown output": ("predict", [*PREDICT, "input={folder}/test.parquet", "output=a.xls"], ["output=a.xls"]),
    "predict: output below a file": (
        "predict",
        [*PREDICT, "input={folder}/test.parquet", "output={folder}/empty.csv/a.csv"],
        ["output=", "empty.csv"],
    ),
    "predict: wrong schema": ("predict", [*PREDICT, "input={folder}/wrong.parquet"], ["wrong.parquet", "'shop'"]),
    "predict: empty file": ("predict", [*PREDICT, "input={folder}/empty.csv"], ["empty.csv", "empty"]),
    "predict: no rows": ("predict", [*PREDICT, "input={folder}/none.parquet"], ["none.parquet", "no rows"]),
    "predict: not json": ("predict", [*SEQUENCE, "sequence={shop: food}"], ["sequence=", "not JSON"]),
    "predict: not all fields": ("predict", [*SEQUENCE, 'sequence={"shop": ["food"]}'], ["sequence=", "amount"]),
    "predict: not steps": ("predict", [*SEQUENCE, "sequence=what?"], ["sequence=what?"]),
    "predict: damaged": ("predict", ["bundle={folder}/damaged", "sequence=a"], ["damaged", "model.onnx has changed"]),
    "predict: no bundle": ("predict", ["bundle=nowhere", "sequence=a"], ["bundle=nowhere", "no such folder"]),
    "evaluate: no test": ("evaluate", [*EVALUATE, "data.test=null"], ["data.test"]),
    "evaluate: a query": ("evaluate", [*EVALUATE, 'data.test="select 1 as shop"'], ["data.test=select 1", "is SQL"]),
    "evaluate: labels by a query": (
        "evaluate",
        [*EVALUATE, "data.id=card", 'data.labels="select 1 as card"'],
        ["data.labels=select 1", "is SQL"],
    ),
    "evaluate: other labels": ("evaluate", [*EVALUATE, "data.label=card"], ["test.parquet: row 1", "card-2-0"]),
    "evaluate: unknown positive": ("evaluate", [*EVALUATE, "data.positive=maybe"], ["data.positive=maybe"]),
    "evaluate: output below a file": (
        "evaluate",
        [*EVALUATE, "output={folder}/empty.csv/a.json"],
        ["output=", "empty.csv"],
    ),
}


@pytest.fixture(scope="module")
def outcomes(shell, trained):
    """Run all cases, two at a time, each in an empty folder. Return each completed command and the files it left."""
    folder = shell.folder
    (folder / "empty.csv").write_text("")
    (folder / "header.csv").write_text("fraud,card,shop\n")
    (folder / "broken.parquet").write_text("not parquet at all")
    lines = (folder / "train.jsonl").read_text().splitlines()
    one_class = [line for line in lines if json.loads(line)["fraud"] == "no" and json.loads(line)["shop"]]
    (folder / "single.jsonl").write_text("\n".join(one_class))
    table = pq.read_table(folder / "test.parquet")
    pq.write_table(table.slice(0, 0), folder / "none.parquet")
    pq.write_table(pa.table({"shops": table["shop"], "amount": table["amount"]}), folder / "wrong.parquet")
    shutil.copytree(folder / "logged/bundle", folder / "damaged")
    content = bytearray((folder / "damaged/model.onnx").read_bytes())
    content[len(content) // 2] ^= 1  # one bit: the size stays the same, so only a checksum can notice
    (folder / "damaged/model.onnx").write_bytes(content)

    def run(case):
        command, arguments, _ = CASES[case]
        case_folder = folder / "errors" / str(list(CASES).index(case))
        case_folder.mkdir(parents=True)
        completed = shell(
            command, *(argument.replace("{folder}", str(folder)) for argument in arguments), cwd=case_folder
        )
        return completed, sorted(path.name for path in case_folder.iterdir())

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(CASES, pool.map(run, CASES), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_user_error_is_one_line_that_names_the_cause(outcomes, case):
    completed, files_left = outcomes[case]
    assert "Traceback" not in completed.stderr
    assert completed.exit_code == 2, completed.stderr
    lines = completed.stderr.splitlines()
    # Notes may precede the error, but there is only one error line, and it is the last.
    assert [line.startswith("error: ") for line in lines] == [False] * (len(lines) - 1) + [True]
    for text in CASES[case][2]:
        assert text in lines[-1]
    assert completed.stdout == ""
    assert files_left == [], "no output and no run folder"
