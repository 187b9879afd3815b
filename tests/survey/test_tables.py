"""The terminal shows the survey, each warning once, with any labels."""

from dataclasses import replace

import numpy as np
import pytest

from seqclf.documents.formatting import number, percent
from seqclf.documents.html import render_document
from seqclf.documents.terminal import MAX_ROWS, console, show_document
from seqclf.survey.document import majority_scores, survey_document
from seqclf.survey.guarantees import GuaranteeSurvey, LabelEvidence


@pytest.fixture
def printed_lines(monkeypatch):
    """`printed_lines(survey)`: the lines that are printed, without colours."""

    def lines(survey, width=120):
        monkeypatch.setattr(console, "_width", width)
        with console.capture() as captured:
            show_document(survey_document(survey))
        return captured.get().splitlines()

    return lines


def cells(lines, first):
    return next(line.split() for line in lines if line.startswith(first))


def test_tables_show_classes_with_their_lengths(printed_lines, surveyed):
    lines = printed_lines(surveyed)
    for counts in surveyed.classes:
        summary = surveyed.lengths.by_class[counts.label]
        rows = [number(counts.rows[split]) for split in ("train", "validation", "test")]
        percentiles = [number(value) for value in (summary.p5, summary.p50, summary.p95, summary.max)]
        found = [line.split() for line in lines if line.startswith(counts.label)]
        positive = ["(positive)"] if counts.label == surveyed.positive else []
        assert [counts.label, *positive, percent(counts.share), *rows] in found
        assert [counts.label, *percentiles] in found


GUARANTEES = GuaranteeSurvey(
    confidence=0.95,
    holdout=0.5,
    unit="group",
    needed={0.8: 20, 0.9: 40},
    labels=[
        LabelEvidence(label=label, held_out=count, backed={0.8: count >= 20, 0.9: count >= 40})
        for label, count in (("bad", 25), ("good", 60))
    ],
)


def test_of_two_classes_the_evidence_for_the_positive_one_is_shown(printed_lines, surveyed):
    survey = replace(surveyed, guarantees=GUARANTEES)
    lines = printed_lines(survey)
    start = next(row for row, line in enumerate(lines) if "decision.min_recall" in line)
    assert lines[start + 1].split() == ["class", "held-out", "groups", "for", "0.8", "for", "0.9"]
    assert lines[start + 2].split() == ["bad", "25", "enough", "15", "too", "few"]
    assert not lines[start + 3].startswith("good")
    content = render_document(survey_document(survey))
    assert ">15 too few<" in content and "20 for 0.8, 40 for 0.9" in content
    stored = survey.to_dict()["guarantees"]["labels"]
    assert [(entry["label"], entry["held_out"]) for entry in stored] == [("bad", 25), ("good", 60)]
    assert "guarantees" not in surveyed.to_dict()


def test_of_many_classes_those_with_the_fewest_held_out_rows_are_shown(printed_lines, synthetic):
    labels = [f"c{row}" for row in range(300)]
    evidence = [LabelEvidence(label=label, held_out=row, backed={0.8: row >= 20}) for row, label in enumerate(labels)]
    guarantees = replace(GUARANTEES, unit="row", needed={0.8: 20}, labels=evidence)
    survey = replace(synthetic(labels, [np.array([5])] * 300), guarantees=guarantees)
    lines = printed_lines(survey)
    start = next(row for row, line in enumerate(lines) if "decision.min_recall" in line)
    shown = [line.split()[0] for line in lines[start + 2 : start + 2 + MAX_ROWS]]
    gap = shown.index("…")
    assert shown == [*labels[:gap], "…", *labels[gap + 1 - MAX_ROWS :]] and gap > MAX_ROWS // 2


def test_tables_show_padding_constant_fields_and_the_baseline(printed_lines, surveyed):
    lines = printed_lines(surveyed)
    text = "\n".join(lines)
    assert cells(lines, "batches of similar lengths")[-1] == percent(surveyed.batches.padding_efficiency)
    assert "all of it" in text
    models = [by_split["test"] for by_split in surveyed.baseline.models.values()]
    columns = [list(majority_scores(surveyed).values())]
    for metrics in models:
        positive = metrics.positive
        macro = [metrics.accuracy, metrics.recall, metrics.f1]
        columns.append([*macro, positive.recall, positive.average_precision, positive.auroc])
    titles = ["accuracy", "macro recall", "macro F1", "recall of bad", "average precision", "AUROC"]
    for title, *scores in zip(titles, *columns, strict=True):
        assert cells(lines, f"{title} ")[len(title.split()) :] == [f"{value:.4f}" for value in scores]


def test_tables_show_the_spread_of_numbers_over_all_channels(printed_lines, surveyed, synthetic):
    rows = [line.split() for line in printed_lines(surveyed) if line.startswith("flat ")]
    assert ["flat", "1", "to", "1", "0", "-", "0", "-"] in rows
    rows = [line.split() for line in printed_lines(synthetic(["a"], [np.array([5])], ["east", "west"]))]
    assert ["x", "-1000000", "to", "1000001", "3", "40,000", "1e-05", "25.0%"] in rows


def test_classes_that_differ_in_spaces_are_told_apart(printed_lines, synthetic):
    lines = printed_lines(synthetic([" p", "p"], [np.array([5]), np.array([6])]))
    assert {"' p'", "p"} <= {line[:4].strip() for line in lines}


def test_warnings_come_last_and_once_those_of_leaks_included(printed_lines, surveyed):
    assert surveyed.leaks.warnings() and set(surveyed.leaks.warnings()) < set(surveyed.warnings)
    lines = printed_lines(surveyed)
    warnings = [f"data: {line}" for line in surveyed.warnings]
    assert lines[-len(warnings) :] == warnings
    assert [line for line in lines if line.startswith("data: ")] == warnings


def test_of_many_classes_the_largest_and_the_smallest_are_shown(printed_lines, synthetic):
    labels = [f"c{row}" for row in range(300)]
    lines = printed_lines(synthetic(labels, [np.full(600 - row, 1 + row % 7) for row in range(300)]))
    rows = [row for row, line in enumerate(lines) if line.startswith(("c0 ", "c299 "))]
    assert rows[1] - rows[0] == MAX_ROWS - 1, "the largest class is the first row of the table, the smallest the last"
    assert f"… {300 - MAX_ROWS + 1} more" in "\n".join(lines[rows[0] : rows[1]])


def test_labels_are_not_read_as_markup(printed_lines, synthetic):
    survey = synthetic(["[bold]a[/] :smile:", "[/nothing]"], [np.arange(1, 9), np.arange(1, 5)], ["[red]x"])
    text = "\n".join(printed_lines(survey))
    assert "[bold]a[/] :smile: " in text and "[/nothing] " in text and "class [/nothing] is rare" in text
    assert "class [bold]a[/] :smile: is rare" in text


def test_tables_are_printed_without_a_baseline_and_with_long_names(printed_lines, broad, synthetic):
    assert printed_lines(broad, width=80)
    assert printed_lines(synthetic(["a"], [np.array([5])]))
