"""scripts/benchmarks/peers.py with what needs no other framework."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "peers.py"


def run(*options):
    return subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True)


@pytest.mark.slow
def test_contenders_are_timed_on_the_same_sequences(tmp_path):
    only = "--only=seqclf,torch_bucketed,torch_static"
    done = run("--rounds=2", "--sequences=200", only, f"--output={tmp_path / 'peers'}")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert list(found["contenders"]) == ["seqclf", "torch_bucketed", "torch_static"]
    for one in found["contenders"].values():
        assert 0 < one["slowest"] <= one["tokens_per_s"] <= one["fastest"] and 0 < one["loss"] < 2
    assert found["contenders"]["seqclf"]["seqclf_is"] == 1.0
    assert found["contenders"]["torch_static"]["seqclf_is"] > found["contenders"]["torch_bucketed"]["seqclf_is"]
    assert (tmp_path / "peers.png").read_bytes().startswith(b"\x89PNG")


def test_an_unknown_contender_is_refused_by_name():
    done = run("--only=seqclf,jax")
    assert done.returncode == 2 and "--only jax: must be some of seqclf, torch_bucketed" in done.stderr
