"""`python -m seqclf.bench`, as a user runs it."""

import json

import pytest

TINY = ["sequences=64", "batch_size=8", "updates=3", "rounds=1", "leak_steps=40", "model.hidden_size=8"]
MODES = "modes=[dynamic,packed,static]"


@pytest.fixture(scope="module")
def benched(shell):
    here = shell.here / "benched"
    here.mkdir()
    return here, shell("bench", "lengths=[uniform]", MODES, *TINY, cwd=here)


def test_the_last_line_holds_every_figure(benched):
    found = benched[1].result
    assert list(found["workloads"]) == ["uniform"]
    for own in found["workloads"].values():
        assert list(own["modes"]) == ["dynamic", "packed", "static"]
        for figures in own["modes"].values():
            assert {"tokens_per_s", "step_ms", "step_ms_p95", "memory_mb", "first_step_s", "recall"} <= set(figures)
            assert figures["memory_mb"] > 50
        assert own["verdict"]["word"] in ("good", "acceptable", "bad")
        assert own["structure"]["errors"] == [] and own["leak"]["steps"] == 40
    modes = found["workloads"]["uniform"]["modes"]
    assert modes["static"]["padding_efficiency"] < 0.8 < modes["dynamic"]["padding_efficiency"]


def test_the_page_and_the_picture_are_written(benched):
    here, _ = benched
    assert (here / "bench.png").read_bytes().startswith(b"\x89PNG")
    page = (here / "bench.html").read_text()
    assert "Dynamic is " in page and "<script" not in page and "src=" not in page


@pytest.mark.slow
def test_own_data_is_benchmarked(shell):
    data = ["data=files", "data.train=train.jsonl", "data.label=fraud", "data.id=card"]
    found = shell("bench", *data, "modes=[dynamic,static]", *TINY, "output=null").result
    assert list(found["workloads"]) == ["data"]
    assert found["workloads"]["data"]["modes"]["dynamic"]["loss"] == pytest.approx(
        found["workloads"]["data"]["modes"]["static"]["loss"], abs=1e-3
    )
    assert json.dumps(found)


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ("modes=[dynamic,eager]", "error: modes=eager: must be one of dynamic, packed, static, compiled"),
        ("modes=[dynamic]", "error: modes: must hold dynamic and static, which are compared"),
        ("lengths=[normal]", "error: lengths=normal: must be one of equal, uniform"),
        (
            "precision=16-mixed device=cpu",
            "error: precision=16-mixed: needs an NVIDIA device; set precision=bf16-mixed",
        ),
        ("precision=8-bit", "error: precision=8-bit: must be 32-true, bf16-mixed or 16-mixed"),
        ("batch_size=100", "error: batch_size=100: there are only 64 sequences; set a smaller one"),
        ("updates=0", "error: updates=0"),
        ("leak_steps=5", "error: leak_steps=5"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(shell, wrong, line):
    done = shell("bench", "lengths=[equal]", *TINY, *wrong.split())
    assert done.code == 2 and done.err.strip().splitlines()[-1].startswith(line)
