"""A command ends after a signal, whatever it computes, and a crash leaves a line."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from seqclf.system import watchdog

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
GRACE_S, REPEAT_S = 0.5, 0.3
COMMAND = f"""
import ctypes, os, signal, sys, time
from seqclf.system import signals, watchdog
watchdog.GRACE_S, watchdog.REPEAT_S, watchdog.CHECK_S = {GRACE_S}, {REPEAT_S}, 0.1
with signals.ending_command():
    print("runs", flush=True)
    {{}}
"""
IGNORED = """
    while True:
        try:
            time.sleep(9)
        except SystemExit:
            pass
"""
ENDLESS = {
    "one instruction of Python": "sum(range(10**15))",
    "a handler that goes on": IGNORED,
}
PATIENT = "with watchdog.patience(), signals.deferred_signals(): time.sleep({})"


@contextlib.contextmanager
def command(code, script=COMMAND, stderr=subprocess.PIPE, **options):
    """Run a script, and kill it where the test fails."""
    arguments = [sys.executable, "-c", script.format(code)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=stderr, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(running, *numbers, pause=2 * REPEAT_S):
    """Send signals to a running command. Return its exit code, its messages, and the seconds after the last signal."""
    with running as process:
        process.stdout.readline()
        time.sleep(0.2)
        for position, number in enumerate(numbers):
            time.sleep(pause if position else 0)
            start = time.monotonic()
            process.send_signal(number)
        messages = process.communicate(timeout=30)[1]
        return process.returncode, messages, time.monotonic() - start


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("kind", ENDLESS)
def test_a_signal_ends_what_does_not_end_itself(kind, number):
    code, messages, seconds = ended(command(ENDLESS[kind]), number)
    assert code == -signal.SIGKILL and seconds < GRACE_S + 3
    assert messages.startswith(f"stopped by {signal.Signals(number).name}") and len(messages.splitlines()) == 1


def test_a_command_ends_itself_where_it_can():
    code, messages, _ = ended(command("time.sleep(60)"), signal.SIGTERM)
    assert (code, messages) == (143, "stopped by SIGTERM\n")


def test_a_training_has_time_after_the_first_signal():
    code, messages, seconds = ended(command(PATIENT.format(3 * GRACE_S)), signal.SIGTERM)
    assert (code, messages) == (143, "stopped by SIGTERM\n") and seconds > GRACE_S


def test_a_second_signal_ends_a_training():
    code, messages, _ = ended(command(PATIENT.format(60)), signal.SIGTERM, signal.SIGTERM)
    assert code == -signal.SIGKILL and messages.startswith("stopped by SIGTERM, as")


def test_the_same_signal_to_process_and_group_is_one_signal():
    code, _, _ = ended(command(PATIENT.format(4 * GRACE_S)), signal.SIGTERM, signal.SIGTERM, pause=REPEAT_S / 3)
    assert code == 143


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_crash_leaves_one_line(number):
    code, messages, _ = ended(command("time.sleep(60)"), number)
    assert code == -number and messages == f"{watchdog.CRASHED}\n"


def test_a_signal_to_a_worker_is_none_to_the_command():
    wait = "time.sleep(0.5); os.kill(child, signal.SIGTERM); os.waitpid(child, 0); time.sleep(2)"
    worker = "child = os.fork() or time.sleep(60); " + wait
    with command(worker) as process:
        assert process.communicate(timeout=30)[1] == "stopped by SIGTERM\n" and process.returncode == 0


@pytest.mark.parametrize("code", ["pass", "sys.exit(3)", "raise ValueError"])
def test_a_command_that_ends_leaves_no_line(code):
    with command(code) as process:
        _, messages = process.communicate(timeout=30)
    assert "crashed" not in messages and process.returncode == {"pass": 0, "sys.exit(3)": 3}.get(code, 1)


@pytest.mark.parametrize("code", ["pass", "time.sleep(60)"])
def test_ignored_signals_start_one_watchdog(code):
    """As under nohup in a script. Each command of `seqclf` is in two blocks."""
    ignored = "import signal\nfor number in (signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)"
    with command("with signals.ending_command(): " + code, ignored + COMMAND) as process:
        process.stdout.readline()
        if code != "pass":
            time.sleep(0.3)
            process.terminate()
        messages = process.communicate(timeout=30)[1]
    assert messages == ("" if code == "pass" else "stopped by SIGTERM\n")


def test_signals_of_a_job_system_leave_the_watchdog():
    code = "signal.signal(signal.SIGUSR1, lambda *_: None); os.killpg(0, signal.SIGUSR1); sum(range(10**15))"
    code, messages, _ = ended(command(code, start_new_session=True), signal.SIGTERM)
    assert code == -signal.SIGKILL and messages.startswith("stopped by SIGTERM, as")


def test_a_terminal_that_takes_no_line_holds_up_nothing():
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, bytes(4096))
    os.set_blocking(writing, True)
    with command("sum(range(10**15))", stderr=writing) as process:
        process.stdout.readline()
        time.sleep(0.3)
        process.terminate()
        assert process.communicate(timeout=10)[0] == "", "the watchdog has stdout open"
        assert process.returncode == -signal.SIGKILL
    os.close(writing)
    os.close(reading)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-"])
def test_closed_files_leave_the_watchdog(closed):
    send = "os.spawnlp(os.P_NOWAIT, 'sh', 'sh', '-c', f'sleep 0.3; kill {os.getpid()}')"
    script = COMMAND.format(f"{send}; {ENDLESS['one instruction of Python']}")
    run = f'exec {sys.executable} -c "$0" {closed}'
    script = script.replace('print("runs", flush=True)', "pass")
    done = subprocess.run(["bash", "-c", run, script], capture_output=True, check=False, text=True, timeout=30)
    assert done.returncode == -signal.SIGKILL and done.stderr.startswith("stopped by SIGTERM, as")


def test_a_signal_that_ends_the_end_of_the_watchdog_leaves_nothing(monkeypatch):
    monkeypatch.setattr(os, "waitpid", lambda *_: sys.exit(143))
    with pytest.raises(SystemExit), watchdog.watched((signal.SIGTERM,)):
        pass
    assert not watchdog._pipes and not signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_closed_stderr_keeps_the_exit_code():
    script = COMMAND.format("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)")
    done = subprocess.run(["bash", "-c", f'{sys.executable} -c "$0" 2>&-', script], capture_output=True, check=False)
    assert done.returncode == 143


def test_the_first_process_of_a_container_has_no_watchdog(monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with watchdog.watched((signal.SIGTERM,)):
        assert not watchdog._pipes


def test_signals_are_not_blocked_where_no_pipe_can_be_made(monkeypatch):
    monkeypatch.setattr(os, "pipe", lambda: os.close(-1))
    with pytest.raises(OSError, match="descriptor"), watchdog.watched((signal.SIGTERM,)):
        pass
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_signal_waits_for_a_compiled_module():
    load = "_imp.exec_dynamic = lambda _: (os.kill(os.getpid(), signal.SIGTERM), time.sleep(0.1), print('loaded'))"
    code = f"import _imp; {load}; machinery.ExtensionFileLoader('a', 'a.so').exec_module(None); time.sleep(60)"
    with command(code.replace("import _imp", "import _imp, importlib.machinery as machinery")) as process:
        output, messages = process.communicate(timeout=30)
    assert (process.returncode, output, messages) == (143, "runs\nloaded\n", "stopped by SIGTERM\n")


def test_blocks_that_follow_each_other_leave_no_child(monkeypatch):
    children, fork = [], os.fork
    monkeypatch.setattr(os, "fork", lambda: children.append(fork()) or children[-1])
    before = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(before)
    for _ in range(2):
        with watchdog.watched((signal.SIGTERM,)):
            assert len(watchdog._pipes) == 1
    assert not watchdog._pipes
    assert signal.set_wakeup_fd(before) == before
    assert len(children) == 2
    for child in children:
        with pytest.raises(ChildProcessError):
            os.waitpid(child, os.WNOHANG)
