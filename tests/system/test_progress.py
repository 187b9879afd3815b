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


WARNED = """
import sys, time
from seqclf.documents.terminal import console
from seqclf.system import progress
progress.DELAY_S = 0.1
with progress.stage("reading", summary=False):
    time.sleep(0.5)
    console.print("w" * 60, style="yellow")
    print("a line without an end", end="")
"""


def test_consoles_print_above_the_line_and_text_without_a_line_end_is_kept():
    _, output = run_in_terminal(["-c", WARNED])
    assert screen(output)[:2] == ["w" * 60, "a line without an end"] and "reading" not in "".join(screen(output))


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


PIPED = """
import sys, time
from seqclf.system import progress
progress.DELAY_S = 0.1
with open(sys.argv[1], "w") as sys.stdout, progress.stage("reading"):
    time.sleep(0.5)
    print("a result")
"""


def test_stdout_that_is_a_file_gets_its_text(tmp_path):
    _, output = run_in_terminal(["-c", PIPED, str(tmp_path / "out.txt")])
    assert (tmp_path / "out.txt").read_text() == "a result\n" and "a result" not in output


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


def test_the_cost_of_counting_is_below_a_microsecond(display):
    """A row takes 10 µs and more, so that counting each of them costs less than 1 %."""
    with progress.stage("reading", unit="rows") as reading:
        started = time.process_time()
        for _ in range(100_000):
            reading.advance()
    assert time.process_time() - started < 0.1


@pytest.mark.parametrize("width", [1, 2, 20, 40, 60, 80, 200])
@pytest.mark.parametrize("title", ["reading", "reading " + "x" * 100, "読む" * 30, "a\nb\x1b[31m"])
def test_a_line_fits_the_terminal(width, title):
    console = Console(width=width, file=io.StringIO(), soft_wrap=True, force_terminal=True, color_system=None)
    row = stage_of(completed=5e6, total=1e7, note="loss 0.1234").row()
    console.print(line_of((title, *row[1:])))
    lines = console.file.getvalue().removesuffix("\n").split("\n")
    assert len(lines) == 1 and cell_len(lines[0]) <= width and "\x1b" not in lines[0]


def stage_of(completed, total, note=""):
    """A stage that has read rows for ten seconds."""
    return progress.Stage("reading", total, "rows", completed=completed, note=note, started=time.monotonic() - 10)


def test_an_estimate_that_was_too_low_shows_no_share():
    _, fraction, figures = stage_of(1200, 1000).row()
    assert fraction is None and "left" not in figures and "1,200 rows" in figures and "10 s" in figures


def test_a_fraction_that_a_library_reports_counts_once_it_is_positive():
    shares = iter([-1.0, 0.5])
    stage = progress.Stage("sorting", share=lambda: next(shares), started=time.monotonic() - 10)
    assert [stage.row()[1], stage.row()[1]] == [None, 0.5]


def test_a_summary_has_the_count_and_the_rate():
    assert stage_of(1000, None).summary() == "reading: 1,000 rows, 100 rows/s, 10 s"
    slow = progress.Stage("searching", unit="trials", completed=2, started=time.monotonic() - 60)
    assert "30 s per trial" in slow.summary()


def test_hidden_stages_show_nothing(display, monkeypatch):
    monkeypatch.undo()
    with progress.hidden():
        assert not progress.is_shown()


def test_completed_and_total_units_are_shown():
    assert "6,000 of 12,345 rows" in stage_of(6000, 12_345).row()[2]
