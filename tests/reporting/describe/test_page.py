"""The page says what the survey found, needs nothing but itself, and fits any screen and any data."""

import json
import re
import time
from html import escape, unescape
from html.parser import HTMLParser

import numpy as np
import pytest
from support.browser import TELL_WIDTH, needed_widths, needs_chromium, telling

from seqclf.evaluation.metrics import classification_metrics
from seqclf.reporting.describe.page import LONGEST_WARNING, MOST_WARNINGS, write_page
from seqclf.reporting.describe.rows import majority_scores
from seqclf.reporting.formatting import ends, number, percent, shortened
from seqclf.reporting.html import POLICY, table

VOID = {"meta", "br", "use", "path", "stop"}


class Reader(HTMLParser):
    """Tags in order, the text, and whether every tag that opens is closed."""

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


def read(path):
    reader = Reader(path.read_text(encoding="utf-8"))
    assert not reader.open
    return reader


def test_page_shows_what_the_survey_found(surveyed, page):
    write_page(surveyed, page)
    text = read(page).text
    lengths = surveyed["lengths"]
    assert f"{number(lengths['all']['rows'])} sequences in 2 classes" in text
    for entry in surveyed["classes"]:
        name = entry["label"] + (" (positive)" if entry["label"] == "bad" else "")
        counts = [entry[split] for split in ("train", "validation", "test")]
        assert f"{name} {percent(entry['share'])} {' '.join(map(str, counts))}" in text
        own = lengths["by_class"][entry["label"]]
        assert f"{entry['label']} {' '.join(number(own[name]) for name in ('p5', 'p50', 'p95', 'max'))}" in text
    for share in ("padding_efficiency", "padding_efficiency_static"):
        assert percent(surveyed["batches"][share]) in text
    limits = surveyed["truncation"]["if"]
    assert any(row["cut_rows"] for row in limits)
    for row in limits:
        assert (
            not row["cut_rows"]
            or f"{row['max_length']} {percent(row['cut_rows'])} {percent(row['lost_steps'])}" in text
        )
    assert f"outcome {surveyed['columns'][0]['auroc']:.3f} gives the label away" in text
    doubled = surveyed["leaks"]["rows"] - surveyed["leaks"]["distinct"]
    assert doubled and f"rows that repeat an earlier row {doubled} {percent(doubled / 60)}" in text
    assert "all of it" in text  # of the field that never changes


def test_baseline_stands_beside_the_majority_class(surveyed, page):
    write_page(surveyed, page)
    text = read(page).text
    majority = majority_scores(surveyed)
    columns = [majority, *(by_split["test"] for by_split in surveyed["baseline"]["models"].values())]
    accuracies = [f"{own['accuracy']:.4f}" for own in columns]
    areas = [f"{area:.4f}" for area in (majority["auroc"], *(own["positive"]["auroc"] for own in columns[1:]))]
    assert f"accuracy {' '.join(accuracies)}" in text and f"AUROC {' '.join(areas)}" in text
    for name, recall in surveyed["alone"].items():
        assert f"{name} {recall:.4f}" in text


@pytest.mark.parametrize("positive", [None, "a", "b"])
@pytest.mark.parametrize("rows", [(9, 5), (0, 5), (4, 0)])
def test_majority_scores_are_those_of_a_constant_answer(made, positive, rows):
    found = made(["a", "b"], [np.arange(1, 30), np.arange(1, 10)])
    found["positive"] = positive
    for entry, count in zip(found["classes"], rows, strict=True):
        entry["test"] = count
    labels = np.repeat([0, 1], rows)
    expected = classification_metrics(labels, np.tile([1.0, 0.0], (len(labels), 1)), ["a", "b"], positive).to_dict()
    if positive:
        block = expected.pop("positive")
        expected |= {"positive_recall": block["recall"], **{key: block[key] for key in ("average_precision", "auroc")}}
    row = majority_scores(found)
    assert row == pytest.approx({name: expected[name] for name in row})


def test_every_warning_is_on_the_page(surveyed, page):
    assert len(surveyed["warnings"]) > 2
    write_page(surveyed, page)
    text = read(page).text
    for line in surveyed["warnings"]:
        assert line in text


def test_page_without_warnings_says_so(made, page):
    write_page({**made(["a"], [np.array([3])]), "warnings": []}, page)
    assert "Nothing stood out" in read(page).text


def test_page_is_self_contained(surveyed, page):
    write_page(surveyed, page)
    content = page.read_text(encoding="utf-8")
    assert "://" not in content and "@import" not in content
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", content))
    for tag, attributes in read(page).tags:
        assert tag not in {"script", "link", "img", "iframe", "object", "embed", "image"}
        assert all(target.startswith("#") for name, target in attributes.items() if name in {"href", "src"})


def test_pictures_of_one_page_share_no_name(surveyed, page):
    write_page(surveyed, page)
    tags = read(page).tags
    names = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(names) == len(set(names))
    assert {attributes["href"] for tag, attributes in tags if tag == "use"} <= {f"#{name}" for name in names}


def test_colours_of_pictures_follow_the_page(surveyed, page):
    write_page(surveyed, page)
    for svg in re.findall(r"<svg.*?</svg>", page.read_text(encoding="utf-8"), flags=re.DOTALL):
        assert not re.search(r"#[0-9a-f]{6}\b", svg)
        assert "var(--fill)" in svg and "currentColor" in svg


def test_labels_are_escaped(broad, page):
    write_page(broad, page)
    content = page.read_text(encoding="utf-8")
    assert "<i>class" not in content and "<b onclick" not in content
    assert not [tag for tag, attributes in read(page).tags if tag == "i" and "style" not in attributes]
    assert escape("<i>class&0</i>") in content and shortened("<b onclick='x'>channel0</b>", 60) in unescape(content)


def test_page_copes_with_hundreds_of_classes(broad, page):
    started = time.perf_counter()
    write_page(broad, page)
    assert time.perf_counter() - started < 3
    assert page.stat().st_size < 500_000
    text = read(page).text
    assert f"{broad['classes'][0]['train']:,}" in text and "… 301 more" in text
    assert all(shortened(line, LONGEST_WARNING) in text for line in broad["warnings"][:MOST_WARNINGS])
    assert f"and {len(broad['warnings']) - MOST_WARNINGS} more warnings" in text


@pytest.mark.parametrize(
    "lengths", [[[5]], [[5], [5, 5]], [[1], [10**6]], [[1] * 99, [2, 10**7]]], ids=["one", "equal", "far", "tail"]
)
def test_page_copes_with_few_rows(made, page, lengths):
    write_page(made([str(place) for place in range(len(lengths))], [np.array(own) for own in lengths]), page)
    assert len(re.findall("<svg", page.read_text(encoding="utf-8"))) == 2
    assert "No order-blind baseline" in read(page).text


def test_a_plain_survey_becomes_the_same_page_after_json(surveyed, page, tmp_path):
    write_page(surveyed, page)
    write_page(json.loads(json.dumps(surveyed)), tmp_path / "again.html")
    assert page.read_bytes() == (tmp_path / "again.html").read_bytes()


def test_short_rows_keep_the_table_square():
    markup = table(dict.fromkeys("abc", "number"), [[1, 2, 3], ["more"]])
    assert markup.count("<td") == 5 and 'colspan="2"' in markup


def test_shares_do_not_round_to_nothing_or_all():
    assert [percent(share) for share in (0, 1e-9, 0.0002, 0.5, 0.99999, 1)] == [
        "0%",
        "<0.01%",
        "0.02%",
        "50.0%",
        ">99.9%",
        "100%",
    ]


@pytest.mark.parametrize("count", [0, 1, 24, 25, 26, 1000])
def test_ends_lose_no_item_uncounted(count):
    first, left_out, last = ends(range(count), 25)
    assert [*first, *last] == [*range(len(first)), *range(count - len(last), count)]
    assert len(first) + left_out + len(last) == count and len(first) + bool(left_out) + len(last) <= 25


@needs_chromium
@pytest.mark.parametrize("width", [360, 1280])
def test_page_is_no_wider_than_the_window(surveyed, broad, tmp_path, width):
    for name, found in (("surveyed.html", surveyed), ("broad.html", broad)):
        path = tmp_path / name
        write_page(found, path)
        content = path.read_text(encoding="utf-8")
        assert POLICY in content
        path.write_text(telling(content, TELL_WIDTH), encoding="utf-8")
    assert needed_widths(tmp_path, ["surveyed.html", "broad.html"], width) == [width, width]
