"""peers.py with the peers that need no other framework."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "peers.py"


def run(*options):
    return subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True)


@pytest.mark.soak
def test_peers_are_timed_on_the_same_sequences(tmp_path):
    only = "--only=seqclf,torch_bucketed,torch_static"
    completed = run("--rounds=2", "--sequences=128", only, f"--output={tmp_path / 'peers'}")
    assert completed.returncode == 0, completed.stderr
    peers = json.loads(completed.stdout.strip().splitlines()[-1])["peers"]
    assert list(peers) == ["seqclf", "torch_bucketed", "torch_static"]
    for figures in peers.values():
        assert 0 < figures["slowest"] <= figures["tokens_per_s"] <= figures["fastest"] and 0 < figures["loss"] < 2
    assert peers["seqclf"]["seqclf_is"] == 1.0
    assert peers["torch_static"]["seqclf_is"] > peers["torch_bucketed"]["seqclf_is"]
    assert (tmp_path / "peers.png").read_bytes().startswith(b"\x89PNG")


def test_an_unknown_peer_is_refused_by_name():
    completed = run("--only=seqclf,jax")
    assert completed.returncode == 2 and "--only jax: must be some of seqclf, torch_bucketed" in completed.stderr
