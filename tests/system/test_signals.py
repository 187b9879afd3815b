"""A signal ends a command with one message."""

import signal

import pytest

from seqclf.system import signals


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


def test_open_generators_are_closed_and_a_second_sigterm_breaks_nothing_off(capsys):
    closed = []

    def rows():
        try:
            yield
        finally:
            signal.raise_signal(signal.SIGHUP)
            closed.append(True)

    def work():
        opened = rows()
        next(opened)
        signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SystemExit) as raised, signals.ending_command():
        work()
    assert (raised.value.code, closed, capsys.readouterr().err) == (143, [True], "stopped by SIGTERM\n")
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL, "nothing is left to end in order"
    with pytest.raises(SystemExit) as raised, signals.ending_command():
        signal.raise_signal(signal.SIGHUP)
    assert raised.value.code == 129


@pytest.mark.parametrize(("numbers", "later"), [([signal.SIGTERM] * 2, True), ([signal.SIGTERM, signal.SIGINT], False)])
def test_a_second_signal_does_not_wait_for_what_the_first_one_waits_for(monkeypatch, numbers, later):
    if later:
        monkeypatch.setattr(signals, "REPEAT_S", 0.0)
    reached = []
    signals.install()
    with pytest.raises(signals.Terminated) as raised, signals.deferred_signals():
        for number in numbers:
            signal.raise_signal(number)
            reached.append(number)
    assert reached == numbers[:1] and raised.value.name == "SIGTERM"


def test_an_inner_block_leaves_a_signal_to_the_outer_one():
    reached = []
    signals.install()
    with pytest.raises(signals.Terminated), signals.deferred_signals():
        with signals.deferred_signals():
            signal.raise_signal(signal.SIGTERM)
        reached.append(signals._SignalState.deferred)
    assert reached == [True] and not signals._SignalState.deferred


def test_a_later_signal_raises_what_a_finalizer_dropped_and_keeps_its_advice(monkeypatch):
    """Python drops an exception in a finalizer."""
    monkeypatch.setattr("sys.unraisablehook", lambda _: None)
    monkeypatch.setattr(signals, "REPEAT_S", 0.0)

    class Finalized:
        def __del__(self):
            signal.raise_signal(signal.SIGTERM)

    signals.install()
    with pytest.raises(signals.Terminated) as first:
        Finalized()
        signal.raise_signal(signal.SIGTERM)
    first.value.advice = "resume"
    with pytest.raises(signals.Terminated) as second:
        signal.raise_signal(signal.SIGTERM)
    assert second.value.message == "stopped by SIGTERM; resume"


def test_ignored_signals_stay_ignored_and_the_handler_of_sigterm_is_installed_again(capsys):
    """As under nohup in the background of a script, where Lightning replaces the handler of SIGTERM."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with pytest.raises(SystemExit), signals.ending_command():
        signal.raise_signal(signal.SIGHUP)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signals.reinstall()
        signal.raise_signal(signal.SIGTERM)
    assert capsys.readouterr().err == "stopped by SIGTERM\n"


def test_an_inner_block_remembers_the_signal_of_the_outer_one(capsys):
    with pytest.raises(SystemExit) as raised, signals.ending_command():
        signals._SignalState.received = signal.SIGTERM  # as after an exception that is dropped
        with signals.ending_command():
            pass
    assert (raised.value.code, capsys.readouterr().err) == (143, "stopped by SIGTERM\n")
