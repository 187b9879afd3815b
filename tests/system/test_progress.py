"""Progress lines: on a terminal only, only for long stages, and never mixed with other output."""

import io
import time

import pytest
from rich.cells import cell_len
from rich.console import Console
from support.terminal import run_in_terminal, screen

from seqclf.system import progress
from seqclf.system.progress_line import line_of

LONG_STAGE = """
import sys, time
from seqclf.system import progress
progress.DELAY_S = 0.2
with progress.stage("short", total=1, unit="rows"):
    pass
with progress.stage("reading", total=10, unit="rows") as reading:
    for row in range(10):
        time.sleep(0.1)
        reading.advance()
        if row == 5:
            print("a line in between")
            print("another one", file=sys.stderr)
print(sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__)
"""


def test_a_long_stage_shows_a_bar_and_leaves_a_summary():
    exit_code, output = run_in_terminal(["-c", LONG_STAGE])
    assert exit_code == 0
    lines = screen(output)
    assert "━" in output and " rows/s" in output and " left" in output and "short" not in output
    assert lines[:2] == ["a line in between", "another one"], "the bar is erased before other output"
    assert lines[2].startswith("reading: 10 rows, ") and lines[3] == "True True"


@pytest.mark.slow
def test_nothing_is_printed_without_a_terminal_or_where_it_is_turned_off(capfd, monkeypatch):
    monkeypatch.setattr(progress, "DELAY_S", 0.0)
    with progress.stage("reading", total=2, unit="rows") as reading:
        reading.advance()
        time.sleep(0.3)
    assert capfd.readouterr() == ("", "")
    _, output = run_in_terminal(["-c", LONG_STAGE], environment={"SEQCLF_PROGRESS": "0"})
    assert screen(output)[:3] == ["a line in between", "another one", "True True"]
    _, output = run_in_terminal(["-c", LONG_STAGE], environment={"LOCAL_RANK": "1"})
    assert "reading" not in output, "one process of a distributed run shows it"


REDIRECTED = """
import contextlib, io, sys, time
from seqclf.system import progress
progress.DELAY_S = 0.1
with progress.stage("exporting"):
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()) as hidden:
        time.sleep(0.6)
        print("hidden")
print(repr(hidden.getvalue()), sys.stderr is sys.__stderr__, sys.stdout is sys.__stdout__)
"""


def test_a_library_may_redirect_the_output_while_a_line_is_shown():
    exit_code, output = run_in_terminal(["-c", REDIRECTED])
    assert exit_code == 0, output
    lines = screen(output)
    assert lines[0].startswith("exporting: ") and lines[1] == "'hidden\\n' True True"


INTERRUPTED = """
import time
from seqclf.system import progress
progress.DELAY_S = 0.1
with progress.stage("reading"):
    time.sleep(30)
"""


def test_an_interrupted_stage_leaves_neither_a_line_nor_a_hidden_cursor():
    exit_code, output = run_in_terminal(["-c", INTERRUPTED], interrupt_at="1 s")
    assert exit_code != 0 and screen(output)[0].startswith("Traceback") and "\x1b[?25l" not in output


FORKED = """
import os, sys, time
from seqclf.system import progress
progress.DELAY_S = 0.1
with progress.stage("reading", summary=False):
    time.sleep(0.5)
    if os.fork() == 0:
        print("a child", sys.stdout is sys.__stdout__, progress.DISPLAY.stages, flush=True)
        os._exit(0)
    os.wait()
"""


def test_a_fork_has_plain_streams_and_no_stages():
    _, output = run_in_terminal(["-c", FORKED])
    assert "a child True []" in output


@pytest.fixture
def display(monkeypatch):
    """A display that counts stages as on a terminal, and draws nothing."""
    display = progress.Display()
    monkeypatch.setattr(progress, "DISPLAY", display)
    monkeypatch.setattr(progress, "is_shown", lambda: True)
    return display


def test_deep_code_advances_the_innermost_stage_of_its_unit(display):
    with progress.stage("outer", unit="files") as outer:
        with progress.stage("inner", unit="rows") as inner:
            progress.advance("rows", 3)
            progress.advance("files", 5)
        progress.advance("rows", 7)
        progress.advance("files", 1)
    assert (inner.completed, outer.completed) == (3, 1) and not display.stages


def test_a_failed_stage_is_removed(display):
    with pytest.raises(ValueError, match="bad row"), progress.stage("reading"):
        raise ValueError("bad row")
    assert not display.stages


@pytest.mark.parametrize(("width", "title"), [(1, "reading"), (20, "読む" * 30), (80, "a\nb\x1b[31m" + "x" * 100)])
def test_a_line_fits_the_terminal(width, title):
    console = Console(width=width, file=io.StringIO(), soft_wrap=True, force_terminal=True, color_system=None)
    started = time.monotonic() - 10
    stage = progress.Stage(title, 1e7, "rows", completed=5e6, note="loss 0.1234", started=started)
    console.print(line_of(stage.row()))
    lines = console.file.getvalue().removesuffix("\n").split("\n")
    assert len(lines) == 1 and cell_len(lines[0]) <= width and "\x1b" not in lines[0] + stage.summary()
