"""The package of a logger is imported before PyTorch, where it costs a fifth."""

import subprocess
import sys

import pytest

from seqclf.training.loggers import early_import
from seqclf.training.loggers.early_import import import_early

# Ends the command where it would read data, with the names of the modules in the order of their import.
SCRIPT = """
import sys
from seqclf.runs import steps
from seqclf.train import main

def stop(*_):
    print(*[name for name in sys.modules if name in ("wandb", "wandb.apis.public", "torch")])
    sys.exit()

steps.prepare = stop
main()
"""


def imported(*overrides, folder) -> list[str]:
    arguments = ["data=japanese_vowels", f"hydra.run.dir={folder}", *overrides]
    command = [sys.executable, "-c", SCRIPT, *arguments]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120, cwd=folder.parent)
    return ended.stdout.split()


def test_the_command_imports_wandb_before_pytorch(tmp_path):
    assert imported("logger=wandb", folder=tmp_path / "run") == ["wandb", "wandb.apis.public", "torch"]


@pytest.mark.slow
def test_a_run_without_a_logger_does_not_import_wandb(tmp_path):
    assert imported("logger=wandb", "debug=shapes", folder=tmp_path / "run") == ["torch"]


@pytest.mark.parametrize("error", [ImportError, RuntimeError])
def test_a_package_that_cannot_be_imported_is_left_to_the_logger(monkeypatch, error):
    def fail(name):
        raise error(name)

    monkeypatch.setattr(early_import, "import_module", fail)
    import_early("wandb")
