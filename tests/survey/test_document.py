"""The page shows the survey, needs no other file, and fits any screen and any data."""

import dataclasses
import re
import time
import warnings
from html import escape, unescape
from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    recall_score,
    roc_auc_score,
)
from support.browser import REPORT_WIDTH, content_widths, needs_chromium, with_script

from seqclf.documents.formatting import number, percent, shortened
from seqclf.documents.html import MAX_ALERT_CHARACTERS, MAX_ALERTS, POLICY, render_document
from seqclf.survey.document import majority_scores, survey_document

VOID = {"meta", "br", "use", "path", "stop"}


class Reader(HTMLParser):
    """Collects tags and text, and checks that every tag is closed."""

    def __init__(self, content):
        super().__init__()
        self.tags, self.open, self.words = [], [], []
        self.feed(content)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def write_page(survey, path):
    path.write_text(render_document(survey_document(survey)), encoding="utf-8")


def read(path):
    reader = Reader(path.read_text(encoding="utf-8"))
    assert not reader.open
    return reader


def test_page_shows_classes_and_their_lengths(surveyed, page):
    write_page(surveyed, page)
    text = read(page).text
    lengths = surveyed.lengths
    assert f"{number(lengths.all_rows.rows)} sequences in 2 classes" in text
    for counts in surveyed.classes:
        name = counts.label + (" (positive)" if counts.label == "bad" else "")
        rows = " ".join(str(counts.rows[split]) for split in ("train", "validation", "test"))
        assert f"{name} {percent(counts.share)} {rows}" in text
        summary = lengths.by_class[counts.label]
        percentiles = " ".join(number(value) for value in (summary.p5, summary.p50, summary.p95, summary.max))
        assert f"{counts.label} {percentiles}" in text


def test_page_shows_padding_and_limits(surveyed, page):
    write_page(surveyed, page)
    text = read(page).text
    for share in (surveyed.batches.padding_efficiency, surveyed.batches.padding_efficiency_static):
        assert percent(share) in text
    cutting = [trial for trial in surveyed.truncation.trials if trial.cut_rows]
    assert cutting
    for trial in cutting:
        assert f"{trial.max_length} {percent(trial.cut_rows)} {percent(trial.lost_tokens)}" in text


def test_page_shows_target_leakage_duplicates_and_constant_fields(surveyed, page):
    write_page(surveyed, page)
    text = read(page).text
    assert f"outcome {surveyed.columns[0].auroc:.3f} gives the label away" in text
    duplicates = surveyed.leaks.repeated
    assert duplicates and f"rows that repeat an earlier row {duplicates} {percent(duplicates / 60)}" in text
    assert "all of it" in text  # the field that never changes


def test_page_shows_the_spread_of_numbers(surveyed, synthetic, page):
    write_page(surveyed, page)
    assert "field range within p95/p5 between flat flat 1 to 1 0 - 0 -" in read(page).text  # the field named flat
    write_page(synthetic(["a"], [np.array([5])], ["east", "west"]), page)
    text = read(page).text
    assert "x -1000000 to 1000001 3 40,000 1e-05 25.0%" in text
    assert "east -1000000 to 1000000 3 40,000 1e-05 west" in text


def test_page_compares_the_baseline_with_the_majority_class(surveyed, page):
    write_page(surveyed, page)
    text = read(page).text
    majority = majority_scores(surveyed)
    models = [by_split["test"] for by_split in surveyed.baseline.models.values()]
    accuracies = [f"{accuracy:.4f}" for accuracy in (majority["accuracy"], *(model.accuracy for model in models))]
    aurocs = [f"{auroc:.4f}" for auroc in (majority["auroc"], *(model.positive.auroc for model in models))]
    assert f"accuracy {' '.join(accuracies)}" in text and f"AUROC {' '.join(aurocs)}" in text
    for name, recall in surveyed.single_field_recall.items():
        assert f"{name} {recall:.4f}" in text


@pytest.mark.parametrize("positive", [None, "a", "b"])
@pytest.mark.parametrize("rows", [(9, 5), (0, 5), (4, 0)])
def test_majority_scores_are_those_of_scikit_learn(synthetic, positive, rows):
    survey = synthetic(["a", "b"], [np.arange(1, 30), np.arange(1, 10)])
    classes = [
        dataclasses.replace(counts, rows={**counts.rows, "test": count})
        for counts, count in zip(survey.classes, rows, strict=True)
    ]
    scores = majority_scores(dataclasses.replace(survey, positive=positive, classes=classes))
    labels = np.repeat([0, 1], rows)
    predictions = np.zeros(len(labels), int)  # class a has the most training rows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of classes that do not occur
        expected = {
            "accuracy": accuracy_score(labels, predictions),
            "recall": balanced_accuracy_score(labels, predictions),
            "f1": f1_score(labels, predictions, average="macro", zero_division=0),
        }
    if positive is not None:
        is_positive, alerts = labels == "ab".index(positive), predictions == "ab".index(positive)
        both_classes = 0 < is_positive.sum() < len(labels)
        constant = np.full(len(labels), 0.5)
        expected["positive_recall"] = recall_score(is_positive, alerts) if is_positive.any() else None
        expected["average_precision"] = average_precision_score(is_positive, constant) if both_classes else None
        expected["auroc"] = roc_auc_score(is_positive, constant) if both_classes else None
    assert scores == pytest.approx(expected)


def test_every_warning_is_on_the_page(surveyed, page):
    assert len(surveyed.warnings) > 2
    write_page(surveyed, page)
    text = read(page).text
    for line in surveyed.warnings:
        assert line in text


def test_page_without_warnings_says_so(synthetic, page):
    write_page(dataclasses.replace(synthetic(["a"], [np.array([3])]), warnings=[]), page)
    assert "Nothing stood out" in read(page).text


def test_page_is_self_contained(surveyed, page):
    write_page(surveyed, page)
    content = page.read_text(encoding="utf-8")
    assert "://" not in content and "@import" not in content
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", content))
    for tag, attributes in read(page).tags:
        assert tag not in {"script", "link", "img", "iframe", "object", "embed", "image"}
        assert all(target.startswith("#") for name, target in attributes.items() if name in {"href", "src"})


def test_pictures_of_one_page_share_no_id(surveyed, page):
    write_page(surveyed, page)
    tags = read(page).tags
    names = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(names) == len(set(names))
    assert {attributes["href"] for tag, attributes in tags if tag == "use"} <= {f"#{name}" for name in names}


def test_labels_are_escaped(broad, page):
    write_page(broad, page)
    content = page.read_text(encoding="utf-8")
    assert "<i>class" not in content and "<b onclick" not in content
    assert not [tag for tag, attributes in read(page).tags if tag == "i" and "style" not in attributes]
    assert escape("<i>class&0</i>") in content and shortened("<b onclick='x'>channel0</b>", 60) in unescape(content)


def test_page_of_hundreds_of_classes_stays_small(broad, page):
    started = time.process_time()  # busy neighbours on the machine do not count
    write_page(broad, page)
    assert time.process_time() - started < 3
    assert page.stat().st_size < 500_000
    text = read(page).text
    assert f"{broad.classes[0].rows['train']:,}" in text and "… 301 more" in text
    assert all(shortened(line, MAX_ALERT_CHARACTERS) in text for line in broad.warnings[:MAX_ALERTS])
    assert f"and {len(broad.warnings) - MAX_ALERTS} more warnings" in text


@pytest.mark.parametrize(
    "lengths",
    [[[5]], [[5], [5, 5]], [[1], [10**6]], [[1] * 99, [2, 10**7]]],
    ids=["one row", "equal", "far apart", "long tail"],
)
def test_page_is_drawn_for_few_rows(synthetic, page, lengths):
    labels = [str(index) for index in range(len(lengths))]
    write_page(synthetic(labels, [np.array(values) for values in lengths]), page)
    assert "Lengths" in read(page).text and "nan" not in page.read_text(encoding="utf-8")
    assert "No order-blind baseline" in read(page).text


@needs_chromium
@pytest.mark.parametrize("width", [360, 1280])
def test_page_is_no_wider_than_the_window(surveyed, broad, tmp_path, width):
    for name, survey in (("surveyed.html", surveyed), ("broad.html", broad)):
        path = tmp_path / name
        write_page(survey, path)
        content = path.read_text(encoding="utf-8")
        assert POLICY in content
        path.write_text(with_script(content, REPORT_WIDTH), encoding="utf-8")
    assert content_widths(tmp_path, ["surveyed.html", "broad.html"], width) == [width, width]
