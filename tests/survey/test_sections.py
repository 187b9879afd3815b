"""The terminal shows problems, thresholds and the baseline of a dataset, with any labels."""

from dataclasses import replace

import pytest

from seqclf.documents.terminal import console, show_section
from seqclf.evaluation.metrics import majority_metrics
from seqclf.survey.outlook import ThresholdOutlook
from seqclf.survey.sections import survey_sections

THRESHOLDS = [
    ThresholdOutlook(
        rule="min_recall",
        label=label,
        rows=rows,
        counted=f"groups with {label}",
        where="all of validation",
        on_average=0.9,
        confidence=0.95,
        sure=0.8,
        needed=None,
        by_folds=more,
        folds="data.split.by=fold data.split.fold=all",
    )
    for label, rows, more in (("good", 60, None), ("bad", 25, 99))
]


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


def test_what_each_threshold_will_rest_on_is_shown(printed_lines, surveyed):
    survey = replace(surveyed, thresholds=THRESHOLDS)
    lines = [line for line in printed_lines(survey, 400) if "The threshold of" in line]
    assert lines[0] == (
        "The threshold of bad would be set by 25 groups with bad (all of validation), which back a recall of at most "
        "0.90 on average, 0.80 with 95% confidence; 99 instead of 25 with data.split.by=fold data.split.fold=all."
    )
    assert lines[1].startswith("The threshold of good would be set by 60") and "fold" not in lines[1]
    assert [entry["label"] for entry in survey.to_dict()["thresholds"]] == ["good", "bad"]
    assert "thresholds" not in surveyed.to_dict()


def test_the_baseline_is_shown_beside_the_majority_class(printed_lines, surveyed):
    lines = printed_lines(surveyed)
    metrics = [by_split["test"] for by_split in surveyed.baseline.values()]
    largest = max(surveyed.classes, key=lambda label: surveyed.classes[label]["train"])
    majority = majority_metrics(metrics[0].support_by_class, largest, surveyed.positive)
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
    thresholds = [replace(THRESHOLDS[0], label="[bold]a[/] :smile:")]
    text = "\n".join(printed_lines(replace(surveyed, thresholds=thresholds, warnings=["[/nothing] x"])))
    assert "[bold]a[/] :smile: " in text and "[/nothing] x" in text


@pytest.mark.parametrize("rows", [(9, 5), (0, 5)])
def test_the_metrics_of_the_majority_class_are_those_of_constant_scores(rows):
    found = majority_metrics(dict(zip("ab", rows, strict=True)), "a", positive="b")
    both = all(rows)
    accuracy = rows[0] / sum(rows)
    assert (found.accuracy, found.recall, found.f1) == pytest.approx((accuracy, 0.5 * both, accuracy / (1 + accuracy)))
    assert found.positive is not None and found.positive.recall == 0
    assert found.positive.average_precision == (pytest.approx(5 / 14) if both else None)
    assert found.positive.auroc == (pytest.approx(0.5) if both else None)
