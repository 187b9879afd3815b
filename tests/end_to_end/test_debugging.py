"""The debug choices as commands: what they print, write and refuse."""

import pytest

import seqclf
from seqclf.errors import InputError

QUICK = ["logger=none", "export=false", "baseline=false", "trainer.enable_progress_bar=false"]


@pytest.fixture(scope="module")
def commands(shell, files):
    """The completed command of each debug choice, by its run folder."""
    arguments = {
        "nan": ["debug=nan", "optimizer.lr=1e38"],
    }
    waits = {
        name: shell.fork("train", *files, *QUICK, *extra, f"hydra.run.dir=debug-{name}", "trainer.max_epochs=1")
        for name, extra in arguments.items()
    }
    return {name: wait() for name, wait in waits.items()}


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
