"""The terminal shows problems, guarantees and the baseline of a dataset, with any labels."""

from dataclasses import replace

import pytest

from seqclf.documents.terminal import console, show_section
from seqclf.survey.document import _majority_metrics, survey_sections
from seqclf.survey.guarantees import GuaranteeSurvey, LabelEvidence

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


@pytest.fixture
def printed_lines(monkeypatch):
    """`printed_lines(survey)`: the lines that are printed, without colours."""

    def lines(survey, width=120):
        monkeypatch.setattr(console, "_width", width)
        with console.capture() as captured:
            for section in survey_sections(survey):
                show_section(section)
        return captured.get().splitlines()

    return lines


def test_of_two_classes_the_evidence_for_the_positive_one_is_shown(printed_lines, surveyed):
    survey = replace(surveyed, guarantees=GUARANTEES)
    lines = printed_lines(survey)
    start = next(row for row, line in enumerate(lines) if "decision.min_recall" in line)
    assert "20 for 0.8, 40 for 0.9" in lines[start]
    assert lines[start + 1].split() == ["class", "held-out", "groups", "for", "0.8", "for", "0.9"]
    assert lines[start + 2].split() == ["bad", "25", "enough", "15", "too", "few"]
    assert not lines[start + 3].startswith("good")
    stored = survey.to_dict()["guarantees"]["labels"]
    assert [(entry["label"], entry["held_out"]) for entry in stored] == [("bad", 25), ("good", 60)]
    assert "guarantees" not in surveyed.to_dict() and len(lines) <= 40


def test_the_baseline_is_shown_beside_the_majority_class(printed_lines, surveyed):
    lines = printed_lines(surveyed)
    metrics = [by_split["test"] for by_split in surveyed.baseline.models.values()]
    majority = _majority_metrics(surveyed, metrics[0].support_by_class)
    columns = [
        [entry.accuracy, entry.recall, entry.f1, of_bad.recall, of_bad.average_precision, of_bad.auroc]
        for entry in (majority, *metrics)
        for of_bad in [entry.positive]
    ]
    titles = ["accuracy", "macro recall", "macro F1", "recall of bad", "average precision", "AUROC"]
    for title, *scores in zip(titles, *columns, strict=True):
        cells = next(line.split() for line in lines if line.startswith(f"{title} "))
        assert cells[len(title.split()) :] == [f"{value:.4f}" for value in scores]
    for name, recall in surveyed.single_field_recall.items():
        assert [name, f"{recall:.4f}"] in [line.split() for line in lines]


def test_every_problem_is_shown_once_those_of_leaks_included(printed_lines, surveyed):
    assert surveyed.leaks.warnings() and set(surveyed.leaks.warnings()) < set(surveyed.warnings)
    lines = printed_lines(surveyed)
    assert all(lines.count(line) == 1 for line in surveyed.warnings)
    assert "Nothing stood out." in printed_lines(replace(surveyed, warnings=[]))


def test_labels_are_not_read_as_markup(printed_lines, surveyed):
    evidence = [replace(GUARANTEES.labels[0], label="[bold]a[/] :smile:")]
    guarantees = replace(GUARANTEES, labels=evidence)
    text = "\n".join(printed_lines(replace(surveyed, positive=None, guarantees=guarantees, warnings=["[/nothing] x"])))
    assert "[bold]a[/] :smile: " in text and "[/nothing] x" in text


@pytest.mark.parametrize("rows", [(9, 5), (0, 5)])
def test_the_majority_class_is_that_of_training(surveyed, rows):
    counts = {"a": {"train": 29}, "b": {"train": 9}}
    found = _majority_metrics(replace(surveyed, positive="b", classes=counts), dict(zip("ab", rows, strict=True)))
    both = all(rows)
    accuracy = rows[0] / sum(rows)
    assert (found.accuracy, found.recall, found.f1) == pytest.approx((accuracy, 0.5 * both, accuracy / (1 + accuracy)))
    assert found.positive is not None and found.positive.recall == 0
    assert found.positive.average_precision == (pytest.approx(5 / 14) if both else None)
    assert found.positive.auroc == (pytest.approx(0.5) if both else None)
