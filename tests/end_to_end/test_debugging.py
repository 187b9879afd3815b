"""The debug choices as commands: what they print, write and refuse."""

import json

import pytest

import seqclf
from seqclf.errors import InputError

QUICK = ["logger=none", "export=false", "baseline=false", "trainer.enable_progress_bar=false"]


@pytest.fixture(scope="module")
def commands(shell, files):
    """The completed command of each debug choice, by its run folder."""
    arguments = {
        "shapes": ["debug=shapes"],
        "nan": ["debug=nan", "optimizer.lr=1e38"],
    }
    waits = {
        name: shell.fork("train", *files, *QUICK, *extra, f"hydra.run.dir=debug-{name}", "trainer.max_epochs=1")
        for name, extra in arguments.items()
    }
    return {name: wait() for name, wait in waits.items()}


@pytest.mark.slow
def test_shapes_end_after_a_table(shell, commands):
    command = commands["shapes"]
    assert "first batch: " in command.stderr and "model " in command.stderr and "HeadsClassifier" in command.stderr
    stored = json.loads((shell.folder / "debug-shapes" / "debug.json").read_text())
    assert stored["modules"][0]["weights"] == command.result["weights"]


@pytest.mark.slow
def test_a_value_that_is_not_finite_ends_the_run_in_one_line(shell, commands):
    command = commands["nan"]
    assert command.exit_code == 2
    lines = [line for line in command.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1 and lines[0].startswith(
        "error: after step 1, whose gradients were finite: the weight model."
    )
    assert "Traceback" not in command.stderr


def test_debugging_from_python(shell, tmp_path):
    overrides = ["data.id=card", *QUICK, "model.hidden_size=4", "trainer.max_epochs=1"]
    train = shell.folder / "train.jsonl"
    with pytest.raises(InputError, match="the weight model"):
        seqclf.fit(train, label="fraud", overrides=[*overrides, "debug=nan", "optimizer.lr=1e38"], folder=tmp_path)
    run = seqclf.fit(train, label="fraud", overrides=[*overrides, "debug=shapes"], folder=tmp_path)
    assert json.loads((run.folder / "debug.json").read_text())["debug"] == "shapes"
    with pytest.raises(InputError, match=r"as the run was for debugging; read .*debug\.json"):
        _ = run.metrics
    with pytest.raises(InputError, match=r"holds a run already \(debug\.json\)"):
        seqclf.fit(train, label="fraud", overrides=[*overrides, "debug=shapes"], folder=tmp_path)
