"""A signal that ends a command says what became of its outputs."""

import signal

import pytest

from seqclf.system import signals


def end_by_signal():
    raise signals.Terminated(signal.SIGINT)


@pytest.mark.parametrize(
    ("earlier", "writes", "fate"),
    [(False, False, "was not written"), (True, False, "is unchanged"), (True, True, "was written")],
)
def test_outputs_are_reported(tmp_path, earlier, writes, fate):
    path = tmp_path / "scores.csv"
    if earlier:
        path.write_text("old")
    with pytest.raises(signals.Terminated) as raised, signals.reported_outputs(path, None):
        if writes:
            path.unlink()
            (tmp_path / "other").write_text("takes the inode")
            path.write_text("new")
        end_by_signal()
    assert raised.value.code == 130 and raised.value.advice == f"{path} {fate}"
