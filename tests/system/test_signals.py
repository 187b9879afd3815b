"""A signal ends a command with one message."""

import _imp
import signal
from importlib.machinery import ExtensionFileLoader

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
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL, "no watchdog runs after the message"
    with pytest.raises(SystemExit) as raised, signals.ending_command():
        signal.raise_signal(signal.SIGHUP)
    assert raised.value.code == 129


def test_a_signal_that_is_only_recorded_does_not_wait_for_a_compiled_module(monkeypatch):
    """Sent again and again, it would look like a second request to the watchdog."""
    recorded = []

    def load(_):
        signal.raise_signal(signal.SIGTERM)
        recorded.append(signals.requested())

    monkeypatch.setattr(_imp, "exec_dynamic", load)
    signals.install()
    with pytest.raises(signals.Terminated), signals.deferred_signals():
        ExtensionFileLoader("a", "a.so").exec_module(None)
    assert recorded == [True]


def test_a_second_signal_ends_a_process_without_watchdog(monkeypatch):
    """Python drops an exception in a finalizer."""
    monkeypatch.setattr("sys.unraisablehook", lambda _: None)

    class Finalized:
        def __del__(self):
            signal.raise_signal(signal.SIGTERM)

    signals.install()
    with pytest.raises(signals.Terminated):
        Finalized()
        signal.raise_signal(signal.SIGTERM)


def test_an_inner_block_remembers_the_signal_of_the_outer_one(capsys):
    with pytest.raises(SystemExit) as raised, signals.ending_command():
        signals._State.received, signals._State.ending = signal.SIGTERM, True  # as after an exception that is dropped
        with signals.ending_command():
            pass
    assert (raised.value.code, capsys.readouterr().err) == (143, "stopped by SIGTERM\n")
