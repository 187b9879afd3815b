"""Progress lines: on a terminal only, only for long stages, and never mixed with other output."""

import os
import sys
import time
from types import ModuleType, SimpleNamespace

import pytest
from support.terminal import run_in_terminal, screen

from seqclf.data.reading.row_estimate import estimate_lines
from seqclf.system import progress
from seqclf.system.progress_line import progress_line

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
print("rich" in sys.modules, sys.stderr is sys.__stderr__)
"""


def test_a_long_stage_shows_a_bar_and_leaves_a_summary():
    exit_code, output = run_in_terminal(["-c", LONG_STAGE])
    assert exit_code == 0
    lines = screen(output)
    assert "━" in output and " rows/s" in output and " left" in output and "short" not in output
    assert lines[:2] == ["a line in between", "another one"], "the bar is erased before other output"
    assert lines[2].startswith("reading: 10 rows in ") and lines[3] == "False True"


def test_nothing_is_printed_without_a_terminal_or_where_it_is_turned_off(capfd, monkeypatch):
    monkeypatch.setattr(progress, "DELAY_S", 0.0)
    with progress.stage("reading", total=2, unit="rows") as reading:
        reading.advance()
        time.sleep(2 * progress.INTERVAL_S)
    assert capfd.readouterr() == ("", "")
    _, output = run_in_terminal(["-c", LONG_STAGE], environment={"SEQCLF_PROGRESS": "0"})
    assert screen(output)[:3] == ["a line in between", "another one", "False True"]
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


@pytest.fixture
def display(monkeypatch):
    """A display that counts stages as on a terminal, and draws nothing."""
    display = progress.Display()
    monkeypatch.setattr(progress, "DISPLAY", display)
    monkeypatch.setattr(progress, "is_shown", lambda: True)
    monkeypatch.setattr(display, "_draw", lambda: None)
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
    line = progress_line(title, 5e6, 1e7, "rows", 1000.0, None, "loss 0.1234", width)
    wide = sum(character in "読む" for character in line)
    assert len(line) + wide < width and "\n" not in line and "\x1b" not in line


def test_an_estimate_that_was_too_low_shows_no_share():
    line = progress_line("reading", 1200, 1000, "rows", 10.0, None, "", 80)
    assert "%" not in line and "left" not in line and "1,200 rows" in line and "0:10" in line


def test_a_terminal_without_a_size_has_lines_of_the_usual_width(display, monkeypatch):
    assert progress_line("reading", 1, 2, "rows", 1.0, None, "", 0) == ""
    display.stream = sys.stderr
    monkeypatch.setattr(os, "get_terminal_size", lambda descriptor: os.terminal_size((0, 0)))
    monkeypatch.setattr(display.stream, "fileno", lambda: 2, raising=False)
    assert display._width() == progress.USUAL_WIDTH


def test_a_notebook_shows_one_output_that_is_replaced(monkeypatch, capfd):
    shown = []
    module = ModuleType("IPython")
    module.get_ipython = lambda: SimpleNamespace(kernel=None)
    module.display = ModuleType("IPython.display")
    module.display.display = lambda data, *, raw, display_id, update: shown.append((display_id, update, data))
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", module.display)
    monkeypatch.setattr(progress, "DISPLAY", progress.Display())
    monkeypatch.setattr(progress, "DELAY_S", 0.0)
    for title in ("reading", "encoding"):  # as two cells
        with progress.stage(title, total=2, unit="rows") as reading:
            time.sleep(3 * progress.INTERVAL_S)
            print("a line in between")
            reading.advance()
    outputs = list(dict.fromkeys(name for name, _, _ in shown))
    assert len(outputs) == 2
    for name, title in zip(outputs, ("reading", "encoding"), strict=True):
        updates, texts = zip(
            *[(update, data["text/plain"]) for output, update, data in shown if output == name], strict=True
        )
        assert not updates[0] and all(updates[1:]) and len(updates) > 1
        assert title in texts[0] and texts[-1] == "", "nothing of it is saved with the notebook"
    assert capfd.readouterr() == ("a line in between\n" * 2, "")


def test_hidden_stages_show_nothing(display, monkeypatch):
    monkeypatch.undo()
    with progress.hidden():
        assert not progress.is_shown()


def test_an_estimated_total_is_rounded_and_called_one(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("x\n" + "12,3\n" * 12_344)
    line = progress_line("reading", 6000, estimate_lines([path]), "rows", 10.0, None, "", 80)
    assert "6,000 of about 12,300 rows" in line
    assert "6,000 of 12,345 rows" in progress_line("reading", 6000, 12_345, "rows", 10.0, None, "", 80)
