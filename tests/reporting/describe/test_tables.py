"""The terminal says what the survey found, each warning once, whatever the labels look like."""

import numpy as np
import pytest

from seqclf.data.splitting.leakage import leak_lines
from seqclf.reporting.console import MOST_CLASSES, console
from seqclf.reporting.describe.rows import majority_scores
from seqclf.reporting.describe.tables import show_survey
from seqclf.reporting.formatting import number, percent


@pytest.fixture
def shown(monkeypatch):
    """`shown(found)`: the lines that are printed, without colours."""

    def lines(found, width=120):
        monkeypatch.setattr(console, "_width", width)
        with console.capture() as captured:
            show_survey(found)
        return captured.get().splitlines()

    return lines


def cells(lines, first):
    return next(line.split() for line in lines if line.startswith(first))


def test_tables_show_what_the_survey_found(shown, surveyed):
    lines = shown(surveyed)
    for entry in surveyed["classes"]:
        own = surveyed["lengths"]["by_class"][entry["label"]]
        counts = [number(entry[split]) for split in ("train", "validation", "test")]
        spread = [number(own[name]) for name in ("p5", "p50", "p95", "max")]
        assert cells(lines, entry["label"]) == [entry["label"], *counts, percent(entry["share"]), *spread]
    text = "\n".join(lines)
    assert f"padding: {percent(surveyed['batches']['padding_efficiency'])}" in text
    assert "all of it" in text
    majority = majority_scores(surveyed)
    assert cells(lines, "majority class")[2:] == [f"{value:.4f}" for value in majority.values()]
    for model, by_split in surveyed["baseline"]["models"].items():
        own, positive = by_split["test"], by_split["test"]["positive"]
        values = [own["accuracy"], own["recall"], own["f1"], positive["recall"], positive["average_precision"]]
        assert cells(lines, model)[2:] == [f"{value:.4f}" for value in [*values, positive["auroc"]]]


def test_warnings_come_last_without_those_of_leaks(shown, surveyed):
    leaks = leak_lines(surveyed["leaks"])
    others = [line for line in surveyed["warnings"] if line not in leaks]
    assert leaks and others
    lines = shown(surveyed)
    assert lines[-len(others) :] == [f"data: {line}" for line in others]
    assert not [line for line in lines if any(leak in line for leak in leaks)]


def test_of_many_classes_the_largest_and_the_smallest_are_shown(shown, made):
    labels = [f"c{row}" for row in range(300)]
    lines = shown(made(labels, [np.full(600 - row, 1 + row % 7) for row in range(300)]))
    rows = [line for line in lines if line.startswith(("c0 ", "c299 "))]
    assert len(rows) == 2
    table = lines[: lines.index(rows[1]) + 1]
    assert len(table) <= MOST_CLASSES + 2  # with its title and its headings
    assert any("276 more" in line or "277 more" in line for line in table)


def test_labels_are_no_markup(shown, made):
    found = made(["[bold]a[/] :smile:", "[/nothing]"], [np.arange(1, 9), np.arange(1, 5)], ["[red]x"])
    text = "\n".join(shown(found))
    assert "[bold]a[/] :smile: " in text and "[/nothing] " in text and "class [/nothing] is rare" in text
    assert "[red]x" in text


def test_tables_cope_without_a_baseline_and_with_long_names(shown, broad, made):
    assert shown(broad, width=80)
    assert shown(made(["a"], [np.array([5])]))
