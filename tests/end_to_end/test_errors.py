"""What a user can get wrong: exit code 2, one line that names it, and nothing left behind."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

TRAIN = ["data=files", "data.train={here}/train.jsonl", "data.label=fraud", "data.id=card", "logger=none"]
PREDICT = ["bundle={here}/logged/bundle", "output=scores.parquet"]
SEQUENCE = ["bundle={here}/logged/bundle"]
EVALUATE = ["bundle={here}/logged/bundle", "data.test={here}/test.parquet", "data.label=fraud"]

# command, arguments, and what the line must name
CASES = {
    "train: no such file": ("train", [*TRAIN, "data.train=nowhere.csv"], ["data.train=nowhere.csv", "no such file"]),
    "train: no such test": ("train", [*TRAIN, "data.test=nowhere.csv"], ["data.test=nowhere.csv"]),
    "train: no label": ("train", [*TRAIN, "data.label=null"], ["data.label"]),
    "train: unknown label": ("train", [*TRAIN, "data.label=frud"], ["train.jsonl", "'frud'", "did you mean 'fraud'"]),
    "train: unknown field": ("train", [*TRAIN, "data.fields={shops: category}"], ["train.jsonl", "'shops'", "'shop'"]),
    "train: unknown kind": ("train", [*TRAIN, "data.fields={shop: words}"], ["data.fields.shop", "words"]),
    "train: one class": ("train", [*TRAIN, "data.train={here}/single.jsonl"], ["single.jsonl", "one class only"]),
    "train: empty file": ("train", [*TRAIN, "data.train={here}/empty.csv"], ["empty.csv", "empty"]),
    "train: header only": ("train", [*TRAIN, "data.train={here}/header.csv"], ["header.csv", "no rows"]),
    "train: not parquet": ("train", [*TRAIN, "data.train={here}/broken.parquet"], ["broken.parquet"]),
    "train: bad rows": ("train", [*TRAIN, "data.max_bad_share=0"], ["train.jsonl: row 6: shop", "data.max_bad_share"]),
    "train: unknown positive": ("train", [*TRAIN, "data.positive=maybe"], ["data.positive=maybe", "no, yes"]),
    "train: unknown cell": ("train", [*TRAIN, "model.cell=lstn"], ["model.cell=lstn", "lstm, gru or rnn"]),
    "train: epochs in words": ("train", [*TRAIN, "trainer.max_epochs=many"], ["max_epochs"]),
    "train: no epochs": ("train", [*TRAIN, "trainer.max_epochs=0"], ["max_epochs"]),
    "train: negative seed": ("train", [*TRAIN, "seed=-1"], ["seed"]),
    "train: size in words": ("train", [*TRAIN, "model.hidden_size=big"], ["model.hidden_size=big", "whole number"]),
    "train: rate below zero": ("train", [*TRAIN, "optimizer.lr=-1"], ["optimizer.lr=-1"]),
    "train: no such optimizer": ("train", [*TRAIN, "optimizer._target_=torch.optim.Foo"], ["torch.optim.Foo"]),
    "train: no such decay": (
        "train",
        [*TRAIN, "optimizer.schedule.decay=up"],
        ["optimizer.schedule.decay=up", "cosine"],
    ),
    "train: no steps": ("train", [*TRAIN, "trainer.max_steps=0"], ["trainer", "max_steps"]),
    "train: name of a path": ("train", [*TRAIN, "data.name=.x"], ["data.name=.x"]),
    "train: group of nothing": ("train", [*TRAIN, "trainer=null"], ["group"]),
    "predict: over its input": (
        "predict",
        [*PREDICT, "input={here}/test.parquet", "output={here}/test.parquet"],
        ["output=", "is the input too"],
    ),
    "predict: nothing": ("predict", SEQUENCE, ["input=FILE", "sequence="]),
    "predict: no such file": ("predict", [*PREDICT, "input=nowhere.csv"], ["input=nowhere.csv"]),
    "predict: a query": ("predict", [*PREDICT, 'input="select 1 as shop"'], ["input=select 1", "is SQL"]),
    "predict: no output": ("predict", [*PREDICT, "input={here}/test.parquet", "output=null"], ["output"]),
    "predict: unknown output": ("predict", [*PREDICT, "input={here}/test.parquet", "output=a.xls"], ["output=a.xls"]),
    "predict: output below a file": (
        "predict",
        [*PREDICT, "input={here}/test.parquet", "output={here}/empty.csv/a.csv"],
        ["output=", "empty.csv"],
    ),
    "predict: wrong schema": ("predict", [*PREDICT, "input={here}/wrong.parquet"], ["wrong.parquet", "'shop'"]),
    "predict: empty file": ("predict", [*PREDICT, "input={here}/empty.csv"], ["empty.csv", "empty"]),
    "predict: no rows": ("predict", [*PREDICT, "input={here}/none.parquet"], ["none.parquet", "no rows"]),
    "predict: not json": ("predict", [*SEQUENCE, "sequence={shop: food}"], ["sequence=", "not JSON"]),
    "predict: not all fields": ("predict", [*SEQUENCE, 'sequence={"shop": ["food"]}'], ["sequence=", "amount"]),
    "predict: not steps": ("predict", [*SEQUENCE, "sequence=what?"], ["sequence=what?"]),
    "predict: damaged": ("predict", ["bundle={here}/damaged", "sequence=a"], ["damaged", "model.onnx has changed"]),
    "predict: no bundle": ("predict", ["bundle=nowhere", "sequence=a"], ["bundle=nowhere", "no such folder"]),
    "predict: threads in words": ("predict", [*SEQUENCE, "sequence=a", "threads=all"], ["threads"]),
    "evaluate: no test": ("evaluate", [*EVALUATE, "data.test=null"], ["data.test"]),
    "evaluate: a query": ("evaluate", [*EVALUATE, 'data.test="select 1 as shop"'], ["data.test=select 1", "is SQL"]),
    "evaluate: labels by a query": (
        "evaluate",
        [*EVALUATE, "data.id=card", 'data.labels="select 1 as card"'],
        ["data.labels=select 1", "is SQL"],
    ),
    "evaluate: unknown label": ("evaluate", [*EVALUATE, "data.label=frud"], ["test.parquet", "'frud'", "'fraud'"]),
    "evaluate: other labels": ("evaluate", [*EVALUATE, "data.label=card"], ["test.parquet: row 1", "card-2-0"]),
    "evaluate: unknown positive": ("evaluate", [*EVALUATE, "data.positive=maybe"], ["data.positive=maybe"]),
    "evaluate: output below a file": (
        "evaluate",
        [*EVALUATE, "output={here}/empty.csv/a.json"],
        ["output=", "empty.csv"],
    ),
    "evaluate: damaged": ("evaluate", [*EVALUATE, "bundle={here}/damaged"], ["damaged", "model.onnx has changed"]),
    "export: no checkpoint": ("export", ["checkpoint=no.ckpt", "bundle=b"], ["checkpoint=no.ckpt", "no such file"]),
}


@pytest.fixture(scope="module")
def outcomes(shell, trained):
    """All commands, two at a time, each in an empty folder: what each said, and what it left there."""
    here = shell.here
    (here / "empty.csv").write_text("")
    (here / "header.csv").write_text("fraud,card,shop\n")
    (here / "broken.parquet").write_text("not parquet at all")
    lines = (here / "train.jsonl").read_text().splitlines()
    single = [line for line in lines if json.loads(line)["fraud"] == "no" and json.loads(line)["shop"]]
    (here / "single.jsonl").write_text("\n".join(single))
    table = pq.read_table(here / "test.parquet")
    pq.write_table(table.slice(0, 0), here / "none.parquet")
    pq.write_table(pa.table({"shops": table["shop"], "amount": table["amount"]}), here / "wrong.parquet")
    shutil.copytree(here / "logged/bundle", here / "damaged")
    content = bytearray((here / "damaged/model.onnx").read_bytes())
    content[len(content) // 2] ^= 1
    (here / "damaged/model.onnx").write_bytes(content)

    def run(case):
        command, arguments, _ = CASES[case]
        folder = here / "errors" / str(list(CASES).index(case))
        folder.mkdir(parents=True)
        done = shell(command, *(argument.replace("{here}", str(here)) for argument in arguments), cwd=folder)
        return done, sorted(path.name for path in folder.iterdir())

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(CASES, pool.map(run, CASES), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_an_error_is_one_line_that_names_it(outcomes, case):
    done, left = outcomes[case]
    assert "Traceback" not in done.err
    assert done.code == 2, done.err
    lines = done.err.splitlines()
    assert [line.startswith("error: ") for line in lines] == [False] * (len(lines) - 1) + [True]
    for word in CASES[case][2]:
        assert word in lines[-1]
    assert done.out == ""
    assert left == [], "no output and no run folder"
