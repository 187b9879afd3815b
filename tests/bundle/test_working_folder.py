"""Nothing that lies in the working folder runs unasked, as it may be a bundle of somebody else."""

import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

from seqclf.bundle.runtime import Classifier
from seqclf.errors import InputError

TRACE = "import os, pathlib\npathlib.Path(os.environ['TRACE'], __name__).touch()\n"
PROGRAM = "from seqclf.__main__ import main; main()"  # of the console script


def plant(folder: Path) -> None:
    """Put modules into a folder that would run if Python or Hydra searched it before installed packages."""
    (folder / "hydra_plugins").mkdir()
    for name in ("numpy", "hydra_plugins/__init__", "hydra_plugins/planted"):
        (folder / f"{name}.py").write_text(TRACE)


@pytest.fixture
def received(copy_bundle):
    """Folder of a bundle with planted modules."""
    folder = copy_bundle("events")
    plant(folder)
    (folder / "new.odd").write_text("1")
    return folder


@pytest.fixture
def run(tmp_path, received):
    """`run(*command)` in the received folder: exit code, stderr and the names of the planted modules that ran."""
    program, trace = tmp_path / "bin" / "seqclf", tmp_path / "trace"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    trace.mkdir()

    def run_command(first, *arguments):
        started = [str(program)] if first == "seqclf" else ["-m", first]
        environment = {**os.environ, "TRACE": str(trace)}
        command = [sys.executable, *started, *arguments]
        done = subprocess.run(command, cwd=received, env=environment, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stderr, {path.name for path in trace.iterdir()}

    return run_command


@pytest.mark.parametrize(
    "command",
    [
        ["seqclf", "predict", "input=new.odd", "output=scores.csv"],
        ["seqclf.predict", "input=new.odd", "output=scores.csv"],
        ["seqclf.evaluate", "data=files", "data.test=new.odd", "data.label=label"],
    ],
)
def test_predict_and_evaluate_run_nothing_in_the_working_folder(command, exported, run):
    code, error, ran = run(*command, f"bundle={exported('events').folder}")
    assert (code, ran) == (2, set())
    assert "'.odd'" in error


def test_other_commands_import_own_code_after_that_of_packages_and_no_plugins(received, run):
    (received / "mine.py").write_text(
        "import os, sys, numpy\n"
        "def write(folder):\n"
        "    print(numpy.__version__, sys.path.index(os.getcwd()) - len(sys.path), file=sys.stderr); sys.exit(7)\n"
    )
    arguments = ["data=toy", "~data.generator", "+data.generator={_target_: mine.write}"]
    code, error, ran = run("seqclf", "describe", *arguments)
    assert (code, ran) == (7, set()), error
    assert error.splitlines()[-1] == f"{numpy.__version__} -1"


def test_files_that_the_manifest_does_not_list_are_rejected(copy_bundle, received):
    with pytest.raises(InputError) as error:
        Classifier(received)
    assert error.value.where == f"bundle={received}" and "hydra_plugins/__init__.py" in error.value.problem


def test_a_link_in_a_bundle_is_a_file_that_the_manifest_does_not_list(copy_bundle, tmp_path):
    bundle = copy_bundle("card")
    (bundle / "encoders" / "more").symlink_to(tmp_path)
    with pytest.raises(InputError) as error:
        Classifier(bundle)
    assert "encoders/more" in error.value.problem
