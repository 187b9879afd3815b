"""The walkthrough as a command: trained first, or of a checkpoint, with rows of a file, typed, or of the data."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from seqclf.bundle.runtime import Classifier

QUICK = [
    "data.generator.rows={train: 200, validation: 40, test: 40}",
    "trainer.max_epochs=2",
    "trainer.enable_progress_bar=false",
    "runtime.threads=1",
]


@pytest.fixture(scope="module")
def walked(shell):
    """The default command with less data and a smaller network, run in its folder."""
    return shell("walkthrough", *QUICK, "hydra.run.dir=walked")


def printed_rows(text, stage="1. Raw rows"):
    """The words of each printed row of the table of a stage."""
    table = text.split(f"\n{stage}")[1].split("\n\n")[0].split("\npage: ")[0]
    return [line.split() for line in table.splitlines()[2:]]


def test_rows_of_the_last_split_are_shown_after_training(shell, walked):
    run = shell.folder / "walked"
    assert walked.result["rows"] == 4 and [words[0] for words in printed_rows(walked.stderr)] == ["1", "14", "27", "40"]
    page = (run / "walkthrough.html").read_text(encoding="utf-8")
    assert Path(walked.result["page"]) == run / "walkthrough.html"
    assert "front (FrontEnd)" in page and "heads.0.recurrent (Recurrent)" in page
    assert {"metrics.json", "report.html", "bundle", "checkpoints"} <= {path.name for path in run.iterdir()}


def test_the_predictions_are_those_of_the_bundle(shell, walked):
    classifier = Classifier(shell.folder / "walked" / "bundle", device="cpu")
    rows = [[int(word) for word in words[1:-2] if word != "|"] for words in printed_rows(walked.stderr)]
    expected = classifier.predict(rows)
    shown = printed_rows(walked.stderr, "13. Probabilities and labels")
    assert [int(words[1]) for words in shown] == [row["prediction"] for row in expected]
    probabilities = [float(words[2]) for words in shown]
    np.testing.assert_allclose(probabilities, [row["probability"] for row in expected], atol=1e-4)


def test_a_checkpoint_shows_a_typed_sequence_and_writes_the_page_alone(shell, walked):
    completed = shell(
        "walkthrough", "checkpoint=walked/checkpoints/best.ckpt", "sequence=[1, 99]", "hydra.run.dir=typed"
    )
    assert completed.result["rows"] == 1
    assert "1 value is unknown" in completed.stderr
    assert [path.name for path in (shell.folder / "typed").iterdir()] == ["walkthrough.html"]


def test_rows_of_a_file_have_their_labels(shell, trained):
    completed = shell(
        "walkthrough",
        f"checkpoint={trained.run}/checkpoints/best.ckpt",
        "input=train.jsonl",
        "rows=7",
        "output=pages/cards.html",
        "hydra.run.dir=walked-cards",
    )
    result = completed.result
    assert (result["rows"], result["refused"]) == (6, 1) and "left out: id card-1-5: shop " in completed.stderr
    assert result["page"] == "pages/cards.html" and (shell.folder / "pages" / "cards.html").is_file()
    rows = [json.loads(line) for line in (shell.folder / "train.jsonl").read_text().splitlines()[:7]]
    labels = [row["fraud"] for row in rows if row["shop"] is not None]
    page = (shell.folder / "pages" / "cards.html").read_text(encoding="utf-8")
    assert re.findall(r">([^<]*): (?:right|wrong)<", page) == [str(label) for label in labels]
    assert not (shell.folder / "walked-cards").exists()


@pytest.mark.slow
def test_rows_of_a_split_are_those_of_the_trained_data(shell, walked):
    completed = shell("walkthrough", *QUICK, "split=validation", "rows=3", "export=false", "hydra.run.dir=of-split")
    assert completed.result["rows"] == 3
    assert [words[0] for words in printed_rows(completed.stderr)] == ["1", "21", "40"]


@pytest.mark.soak
def test_the_default_command_learns_the_toy_task(shell):
    completed = shell("walkthrough", "trainer.enable_progress_bar=false", "rows=50", "hydra.run.dir=walked-default")
    page = (shell.folder / "walked-default" / "walkthrough.html").read_text(encoding="utf-8")
    assert page.count(": right<") >= 48 and completed.result["rows"] == 50
