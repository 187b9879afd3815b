"""User errors end in exit code 2 and one line that names the cause, and leave no files."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

TRAIN = ["data=files", "data.train={folder}/train.jsonl", "data.label=fraud", "data.id=card", "logger=none"]
PREDICT = ["bundle={folder}/logged/bundle", "output=scores.parquet"]
SEQUENCE = ["bundle={folder}/logged/bundle"]
EVALUATE = ["bundle={folder}/logged/bundle", "data.test={folder}/test.parquet", "data.label=fraud"]

# Case: command, arguments, texts that the error line must contain.
CASES = {
    "train: bad rows": ("train", [*TRAIN, "data.max_bad_share=0"], ["train.jsonl: row 6: shop", "data.max_bad_share"]),
    "predict: over its input": (
        "predict",
        [*PREDICT, "input={folder}/test.parquet", "output={folder}/test.parquet"],
        ["output=", "is the input too"],
    ),
    "predict: nothing": ("predict", SEQUENCE, ["input=FILE", "sequence="]),
    "predict: output below a file": (
        "predict",
        [*PREDICT, "input={folder}/test.parquet", "output={folder}/empty.csv/a.csv"],
        ["output=", "empty.csv"],
    ),
    "predict: wrong schema": ("predict", [*PREDICT, "input={folder}/wrong.parquet"], ["wrong.parquet", "'shop'"]),
    "predict: not json": ("predict", [*SEQUENCE, "sequence={shop: food}"], ["sequence=", "not JSON"]),
    "predict: damaged": ("predict", ["bundle={folder}/damaged", "sequence=a"], ["damaged", "model.onnx has changed"]),
    "predict: no bundle": ("predict", ["bundle=nowhere", "sequence=a"], ["bundle=nowhere", "no such folder"]),
    "evaluate: a query": ("evaluate", [*EVALUATE, 'data.test="select 1 as shop"'], ["data.test=select 1", "is SQL"]),
    "evaluate: other labels": ("evaluate", [*EVALUATE, "data.label=card"], ["test.parquet: row 1", "card-2-0"]),
    "evaluate: no times": (
        "evaluate",
        [*EVALUATE[:1], "data.test={folder}/dated.parquet", "data.label=fraud", "by=month", "time=day"],
        ["by=month: no row has a time in the column day", "time="],
    ),
    **{
        f"train: {monitor} of one class": (
            "train",
            [*TRAIN, "data.validation={folder}/legal.parquet", f"monitor={monitor}"],
            [f"monitor={monitor}: ", "no row of yes", "monitor=loss"],
        )
        for monitor in ("auroc", "recall")
    },
    "evaluate: unknown positive": ("evaluate", [*EVALUATE, "data.positive=maybe"], ["data.positive=maybe"]),
}


@pytest.fixture(scope="module")
def outcomes(shell, trained):
    """Run all cases, two at a time, each in an empty folder. Return each completed command and the files it left."""
    folder = shell.folder
    (folder / "empty.csv").write_text("")
    table = pq.read_table(folder / "test.parquet")
    pq.write_table(pa.table({"shops": table["shop"], "amount": table["amount"]}), folder / "wrong.parquet")
    dates = pa.array(["31/01/2024"] * len(table))
    pq.write_table(table.append_column("day", dates), folder / "dated.parquet")
    pq.write_table(table.filter(pc.equal(table["fraud"], "no")), folder / "legal.parquet")
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
