"""A bundle reads files in the format of another package."""

import subprocess
import sys

import pyarrow.parquet as pq
import pytest
from support.plugin_package import documented_example, install_package
from support.untrained_task import make_task

from seqclf.bundle.runtime import Classifier
from seqclf.data.prepare import prepare
from seqclf.data.reading.sources import Source
from seqclf.runs.export import write_bundle

FASTA = documented_example("A file format")


def write_fasta(path, rows):
    path.write_text("".join(f">s{row} {label}\n{label.upper() * (1 + row % 5)}\n" for row, label in rows))
    return path


@pytest.mark.slow
def test_a_bundle_predicts_and_is_evaluated_on_files_of_a_package_format(monkeypatch, options, tmp_path):
    modules, entries = {"fasta.py": FASTA}, {"seqclf.formats": {"fasta": "fasta:Fasta"}}
    install_package(monkeypatch, tmp_path / "packages", "bioformats", modules, entries)
    rows = [(row, ("ac", "gt")[row % 2]) for row in range(60)]
    dataset = prepare(options(train=write_fasta(tmp_path / "t.fasta", rows), label="label", id="id"))
    bundle, new, scores = (tmp_path / name for name in ("bundle", "new.fasta", "scores.parquet"))
    write_bundle(make_task(dataset.description()), bundle, {"test": {"recall": 0.5}})
    write_fasta(new, rows[:30])
    command = [sys.executable, "-m", "seqclf.predict", f"bundle={bundle}", f"input={new}", f"output={scores}"]
    subprocess.run(command, check=True, timeout=120, cwd=tmp_path, capture_output=True)
    assert pq.read_table(scores)["id"].to_pylist() == [f"s{row}" for row in range(30)]
    ((read, _),) = Classifier(bundle).predict_source(Source(str(new), "input"), label="label")
    assert read.columns.column("label").to_pylist() == [label for _, label in rows[:30]]
