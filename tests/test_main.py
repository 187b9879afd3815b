"""`seqclf` lists its commands, runs them as `python -m seqclf.COMMAND` does, and corrects a misspelled one."""

import subprocess
import sys

import pytest

import seqclf
from seqclf import __main__ as command
from seqclf.config.command_keys import SETTINGS


def called(monkeypatch, capsys, *arguments):
    """Return exit code, stdout and stderr of `seqclf ARGUMENTS…` in this process."""
    monkeypatch.setattr(sys, "argv", ["seqclf", *arguments])
    try:
        command.main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    return code, *capsys.readouterr()


@pytest.mark.parametrize("arguments", [[], ["--help"], ["help"]])
def test_without_a_command_all_are_listed(monkeypatch, capsys, arguments):
    code, out, err = called(monkeypatch, capsys, *arguments)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert all(any(line.startswith(f"  {name} ") for line in lines) for name in SETTINGS)
    assert sum(line.startswith("  seqclf ") for line in lines) == 2, "two examples"
    assert max(map(len, lines)) <= 90


def test_a_misspelled_command_is_corrected(monkeypatch, capsys):
    assert called(monkeypatch, capsys, "trian") == (2, "", "error: trian: no such command; did you mean 'train'?\n")
    code, _, err = called(monkeypatch, capsys, "data=toy")
    assert code == 2 and "seqclf train data=toy" in err


def test_removed_commands_answer_with_the_new_one(monkeypatch, capsys):
    for name in ("judge", "report"):
        code, out, err = called(monkeypatch, capsys, name, "run=RUN")
        assert (code, out, err.count("\n")) == (2, "", 1) and "seqclf evaluate run=RUN" in err
    assert "walkthrough: no such command" in called(monkeypatch, capsys, "walkthrough")[2]


def test_the_version_is_that_of_the_package(monkeypatch, capsys):
    assert called(monkeypatch, capsys, "--version") == (0, f"seqclf {seqclf.__version__}\n", "")


def test_listing_and_help_load_neither_torch_nor_hydra():
    script = (
        "import sys; from seqclf.__main__ import main\n"
        "for arguments in ([], ['train', '--help']):\n"
        "    sys.argv = ['seqclf', *arguments]; main()\n"
        "print('LOADED', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    loaded = done.stdout.partition("LOADED")[2].split()
    assert loaded and not {"torch", "hydra", "omegaconf", "numpy"} & set(loaded)


@pytest.mark.parametrize("arguments", [["seqclf", "train"], ["seqclf.train"]])
@pytest.mark.parametrize("imported", ["yaml", "hydra"])
def test_a_signal_during_the_imports_ends_a_command_in_one_line(arguments, imported):
    script = (
        "import os, runpy, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(name, path=None, target=None):\n"
        f"        if name == {imported!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting)\n"
        f"sys.argv = {arguments}\n"
        "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped by SIGINT\n")


def test_the_modules_of_commands_import_hydra_only_when_they_run():
    """Before they run, they do not handle signals."""
    names = ", ".join(f"seqclf.{name}" for name in SETTINGS)
    script = f"import sys, {names}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert not {"torch", "hydra", "omegaconf", "pydantic", "numpy"} & set(done.stdout.split())


@pytest.mark.slow
def test_a_command_runs_as_its_module_so_that_processes_which_it_starts_do_too(tmp_path):
    """Lightning starts the other ranks of ddp by the name of `__main__`."""
    (tmp_path / "mine.py").write_text(
        "import __main__, sys\n"
        "def write(folder):\n"
        "    print(__main__.__spec__.name, *sys.argv[1:], file=sys.stderr); sys.exit(7)\n"
    )
    arguments = ["data=toy", "data.generator={_target_: mine.write}", "logger=none", "hydra.run.dir=run"]
    replaced = ["data=toy", "~data.generator", "+data.generator={_target_: mine.write}", *arguments[2:]]
    done = subprocess.run(
        [sys.executable, "-m", "seqclf", "train", *replaced], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 7, done.stderr
    assert done.stderr.splitlines()[-1] == " ".join(["seqclf.train", *replaced])
