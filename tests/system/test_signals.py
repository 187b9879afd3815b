"""A signal ends a command with one message."""

import signal

import pytest

from seqclf.system import signals, watchdog


def end_by_signal():
    raise signals.Terminated(signal.SIGINT)


def test_the_message_is_one_write(monkeypatch):
    """Between the writes of one rank, another rank may write, where Python does not buffer."""
    written = []
    monkeypatch.setattr("sys.stderr", type("Unbuffered", (), {"write": lambda self, text: written.append(text)})())
    with pytest.raises(SystemExit), signals.ending_command():
        end_by_signal()
    assert written == ["stopped by SIGINT\n"]


@pytest.mark.parametrize("first", ["another rank", signal.SIGTERM])
def test_a_signal_while_the_command_ends_keeps_the_advice(first, capsys):
    """As for the rank that another rank has stopped, before its own signal arrives."""
    with pytest.raises(SystemExit) as raised, signals.ending_command():
        try:
            with signals.deferred_signals():
                if first != "another rank":
                    signal.raise_signal(first)
                signals.end()
        except signals.Terminated as end:
            signal.raise_signal(signal.SIGTERM)
            end.advice = "resume"
            raise
    assert raised.value.code == 143
    assert capsys.readouterr().err == "stopped by SIGTERM; resume\n"


def test_open_generators_are_closed_while_the_watchdog_runs_and_a_second_signal_breaks_nothing_off(capsys):
    closed = []

    def rows():
        try:
            yield
        finally:
            signal.raise_signal(signal.SIGHUP)
            closed.append(len(watchdog._pipes))

    def work():
        opened = rows()
        next(opened)
        signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SystemExit) as raised, signals.ending_command():
        work()
    assert (raised.value.code, closed, capsys.readouterr().err) == (143, [1], "stopped by SIGTERM\n")
    signal.raise_signal(signal.SIGHUP)  # after the message
    with pytest.raises(SystemExit) as raised, signals.ending_command():
        signal.raise_signal(signal.SIGHUP)
    assert raised.value.code == 129
