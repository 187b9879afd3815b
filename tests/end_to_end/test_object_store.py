"""Training and prediction on objects of a store, whose secret is nowhere left."""

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("moto")

from support.object_store import SECRET, local_store


@pytest.fixture(scope="module")
def store():
    with local_store() as server:
        yield server


def table(rows, seed):
    tokens = [[(seed + row * step) % 7 for step in range(1 + row % 5)] for row in range(rows)]
    return pa.table({"tokens": tokens, "label": [str(sum(row) % 2) for row in tokens]})


@pytest.mark.slow
def test_objects_are_trained_on_and_predicted_and_the_secret_is_nowhere(shell, store, tmp_path):
    for number in range(2):
        file = io.BytesIO()
        pq.write_table(table(120, number), file)
        store.put(f"in/{number}.parquet", file.getvalue())
    environment = {**store.environment, "SEQCLF_CACHE": str(tmp_path / "cache")}
    data = ["data=files", "data.train=s3://bucket/in/*.parquet", "data.label=label"]
    quick = ["trainer.max_epochs=1", "baseline=false", "logger=csv", f"hydra.run.dir={tmp_path}/run"]
    trained = shell("train", *data, *quick, **environment)
    assert trained.result["epochs"] == 1
    bundle = f"bundle={tmp_path}/run/bundle"
    command = ("predict", bundle, "input=s3://bucket/in/1.parquet", "output=s3://bucket/scores/")
    predicted = shell(*command, **environment)
    assert predicted.result["rows"] == 120
    assert predicted.result["output"] == "s3://bucket/scores/"
    scores = pq.read_table(io.BytesIO(store.get("scores/part-00000.parquet")))
    local = tmp_path / "1.parquet"
    local.write_bytes(store.get("in/1.parquet"))
    assert shell("predict", bundle, f"input={local}", f"output={tmp_path}/scores.parquet").exit_code == 0
    assert scores.equals(pq.read_table(tmp_path / "scores.parquet"))
    again = shell(*command, **environment)
    assert again.exit_code == 2 and "s3://bucket/scores/" in again.stderr
    outputs = [done.stdout + done.stderr for done in (trained, predicted, again)]
    files = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert json.loads(files[f"{tmp_path}/run/metrics.json"])
    assert [name for name, content in files.items() if SECRET.encode() in content] == []
    assert not any(SECRET in text for text in outputs)
