"""Explanations of a trained model against the truth: the events that the generator planted."""

import json
import os
import subprocess
import sys

import duckdb
import pytest


def run(folder, *arguments):
    command = [sys.executable, "-m", *arguments]
    environment = {**os.environ, "SEQCLF_CACHE": str(folder / "cache")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.soak
def test_the_top_token_of_a_fraud_that_is_found_was_planted(tmp_path):
    """Training takes ten minutes on two cores. The frauds are new ones, so that there are many."""
    run(tmp_path, "seqclf.train", "experiment=transactions", "logger=none", "hydra.run.dir=run")
    code = (
        "from pathlib import Path; from seqclf.data.builtin.transactions import write; "
        "write(Path('.'), {'test': 800}, 30, 1.0, 1); print('{}')"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    run(tmp_path, "seqclf.predict", "bundle=run/bundle", "input=test.parquet", "output=out.parquet", "explain=tokens")
    ((found, hits),) = duckdb.sql(
        f"""WITH top AS (
            SELECT id, arg_max(position, contribution) AS position FROM '{tmp_path}/out.parquet'
            WHERE prediction = 'yes' GROUP BY id)
        SELECT count(*), count(card) FROM top
        LEFT JOIN '{tmp_path}/planted_test.parquet' ON card = id AND planted_test.position = top.position"""
    ).fetchall()
    assert found >= 0.7 * 800
    assert hits / found >= 0.95
