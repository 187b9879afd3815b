"""Shell completion, asked for as the scripts of bash and zsh ask, and in a bash with the script."""

import os
import shutil
import subprocess
import sys

import pytest

from seqclf.config.completion import SCRIPTS, completions


@pytest.mark.parametrize(
    ("words", "candidates"),
    [
        (["ev"], ["evaluate"]),
        (["train", "mod"], ["model=", "model."]),
        (["train", "+model=g"], ["+model=gru", "+model=gru_d"]),
        (["train", "batching.max_"], ["batching.max_tokens=", "batching.max_sequences="]),
        (["train", "loss=focal", "loss.ga"], ["loss.gamma="]),
        (["train", "model.bidirectional="], ["model.bidirectional=true", "model.bidirectional=false"]),
        (["train", "experiment=imdb", "pat"], ["patience=", "path="]),
        (["train", "--help", "data=f"], ["data=files"]),
        (["predict", "out"], ["output="]),
        (["train", "data.train="], []),
        (["nonsense", "m"], []),
    ],
)
def test_candidates_go_on_from_what_was_typed(words, candidates):
    assert completions(words) == candidates


@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("seqclf tr", ["train"]),
        ("seqclf train model=g", ["gru", "gru_d"]),  # bash breaks words at =
        ("seqclf train batching.max_t", ["batching.max_tokens="]),
        ("seqclf train data=files data.train=tab", ["table.csv"]),
    ],
)
def test_bash_completes(tmp_path, line, replies):
    (tmp_path / "table.csv").touch()
    program = tmp_path / "bin" / "seqclf"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m seqclf "$@"\n')
    program.chmod(0o755)
    script = f"""compopt() {{ :; }}
{SCRIPTS["bash"]}
COMP_LINE={line!r} COMP_POINT={len(line)}
_seqclf
printf '%s\\n' "${{COMPREPLY[@]}}" """
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines() == replies, done.stderr


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_the_script_is_valid_in_zsh():
    subprocess.run(["zsh", "-n", "-c", SCRIPTS["zsh"]], check=True, timeout=60)
