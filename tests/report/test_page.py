"""report.html of simulated runs: its text, its figures, and its script in a real browser."""

import json
import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser

import numpy as np
import pytest
from markupsafe import escape
from support.binary_scores import decision_options
from support.browser import REPORT_WIDTH, browse, content_widths, needs_chromium, with_script

from seqclf.data.encoding.token_table import DescribedRow, TokenTable
from seqclf.data.storage.store import SplitCounts
from seqclf.documents.formatting import score
from seqclf.evaluation.calibration import calibration_of, fit_temperature
from seqclf.evaluation.choose_decision import choose_decision
from seqclf.evaluation.decision import Decision, Guarantee
from seqclf.evaluation.result import Facts, ModelResult, RunResult
from seqclf.evaluation.scores import ScoredRows
from seqclf.evaluation.split_result import judge_split
from seqclf.report.charts import MARGIN
from seqclf.report.description import write_page
from seqclf.report.reported import Reported, worst_mistakes
from seqclf.report.threshold import operating_points, threshold_section

SETTINGS = {"min_recall": 0.8, "min_precision": None, "max_alerts": None, "cost": None, "confidence": 0.95}
SETTINGS |= {"calibrate": False, "holdout": 0.5, "provisional": False}
EVIL = "<script>alert(1)</script>"


def described(row):
    """A text of many tokens, or a short sequence, in turn."""
    tokens = f"{EVIL} " * 200
    columns = {EVIL: ["a", "b"], "at": ["0 s", "9 h 32 min"]}
    return DescribedRow(str(row), {"text": f"{tokens}the end"} if row % 2 else {}, TokenTable([0, 9], columns, 10))


def simulated_report(rows=2000, separation=3.0, labels=("no", "yes"), positive="yes", seed=0, decision=None):
    """Report on rows of random logits. One row in ten is of the last class."""
    generator, classes = np.random.default_rng(seed), list(labels)
    outputs = {}
    for split in ("train", "validation", "test"):
        truth = np.where(generator.random(rows) < 0.1, len(classes) - 1, generator.integers(0, len(classes) - 1, rows))
        logits = generator.normal(size=(rows, len(classes))).astype(np.float32)
        logits[np.arange(rows), truth] += separation
        lengths = generator.integers(1, 400, rows)
        outputs[split] = ScoredRows(logits, truth, lengths, lengths > 350)
    validation = outputs["validation"]
    if decision is None:
        decision = choose_decision(decision_options(SETTINGS), validation.logits, validation.labels, classes, positive)
    metrics = {
        split: judge_split(split_outputs, classes, positive, decision, with_intervals=split != "train")
        for split, split_outputs in outputs.items()
    }
    baseline = {
        "name": "order-blind",
        "kind": "logistic regression",
        "comparisons": [],
        **metrics["validation"].to_dict(),
    }
    curves = {f"{split}/{name}": 0.5 for split in ("train", "validation") for name in ("loss", "accuracy", "recall")}
    curves["validation/average_precision"] = 0.625
    speed = {"tokens_per_s": 1e5, "padding_efficiency": 0.95, "memory_mb": 500.0}
    history = [{"epoch": k, "step": k, **speed, **curves} for k in range(30)]
    scored = {split: (part.logits, part.labels) for split, part in outputs.items()}
    result = RunResult(
        splits=metrics,
        rows=outputs,
        decision=decision,
        baseline=ModelResult.from_dict(baseline),
        calibration=calibration_of(scored, fit_temperature(validation.logits, validation.labels), False),
    )
    return Reported(
        title="cards",
        result=result,
        facts=Facts(
            history=history,
            best_epoch=7,
            warnings=[f"a column named {EVIL}"],
            settings={"seed": 0, "monitor": "average_precision"},
        ),
        mistakes=worst_mistakes(result, described),
        versions={"seqclf": "1"},
    )


@pytest.fixture(scope="module")
def reports():
    many_labels = [f"class {k} {EVIL}" for k in range(40)]
    three_labels = ("calm", "odd", "a very long name of a class indeed")
    never_positive = Decision().with_margin("threshold", ["no", "yes"], 99.0, "yes")
    return {
        "two_classes.html": simulated_report(),
        "three_classes.html": simulated_report(labels=three_labels, positive=None, decision=Decision()),
        "many_classes.html": simulated_report(rows=600, labels=many_labels, positive=None, decision=Decision()),
        "uninformed.html": simulated_report(separation=0.0, decision=never_positive),
        "without_errors.html": simulated_report(separation=60.0, rows=300),
    }


@pytest.fixture(scope="module")
def rendered(reports, tmp_path_factory):
    """The text of each page by file name. Drawing the figures takes most of the time, so it is done once."""
    folder = tmp_path_factory.mktemp("rendered")
    for name, report in reports.items():
        write_page(folder / name, report)
    return {name: (folder / name).read_text(encoding="utf-8") for name in reports}


@pytest.fixture
def pages(rendered, tmp_path):
    """A folder with all pages, which a test may change."""
    for name, content in rendered.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    return tmp_path


def visible_text(page):
    return " ".join(re.sub(r"<style>.*?</style>|<script.*?</script>|<[^>]+>", " ", page, flags=re.DOTALL).split())


def test_the_page_is_small_and_loads_nothing_from_elsewhere(reports, pages):
    for name in reports:
        content = (pages / name).read_text(encoding="utf-8")
        assert len(content) < 2_000_000
        assert EVIL not in content
        assert not re.search(r"(src|href)=[\"'](?!#)", content)
        assert "http" not in content.replace("http-equiv", "")


@pytest.mark.parametrize(
    ("name", "line"), [("tokens_read", "tokens_read: 50.0% of the tokens"), ("gain", "gain: 2.5 on")]
)
def test_the_page_has_a_line_for_each_number_of_the_network(tmp_path, name, line):
    report = simulated_report(rows=300)
    outputs = dict(report.result.rows)
    rows = outputs[report.split]
    values = rows.lengths / 2 if name == "tokens_read" else np.full(len(rows.labels), 2.5)
    outputs[report.split] = rows._replace(extra={name: values, "pooled": np.zeros((len(values), 2))})
    write_page(tmp_path / "outputs.html", replace(report, result=replace(report.result, rows=outputs)))
    text = visible_text((tmp_path / "outputs.html").read_text(encoding="utf-8"))
    assert line in text and "pooled" not in text


class Tags(HTMLParser):
    """Collects the tags and the attribute names of a page."""

    def __init__(self, content):
        super().__init__()
        self.tags, self.attributes = Counter(), set()
        self.feed(content)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.attributes |= {name for name, _ in attrs}


def report_with(text, has_positive):
    """Report that holds `text` in each position that comes from data, files or configuration."""
    labels = (f"no {text}", f"yes {text}")
    positive = labels[1] if has_positive else None
    report = simulated_report(rows=400, labels=labels, positive=positive, decision=Decision(positive=positive))
    return replace(
        report,
        title=text,
        mistakes=[mistake._replace(row=mistake.row._replace(id=text)) for mistake in report.mistakes],
        facts=replace(report.facts, warnings=[text], settings={**report.facts.settings, "note": text}),
        versions={text: text},
    )


@pytest.mark.parametrize("evil", [EVIL, "</script><b onclick='x'>", '"><b onclick=x>', "{{ 7 * 7 }} {% raw %}"])
@pytest.mark.parametrize("has_positive", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_text_from_outside_never_becomes_markup(tmp_path, evil, has_positive):
    """A page with hostile text has the tags and attributes of one with harmless text in the same positions."""
    parsed = []
    for text in ("harmless", evil):
        write_page(tmp_path / "report.html", report_with(text, has_positive))
        content = (tmp_path / "report.html").read_text(encoding="utf-8")
        (title,) = re.findall(r"<h1>(.*?)</h1>", content)
        assert title == str(escape(text))
        parsed.append(Tags(content))
    harmless, hostile = parsed
    assert hostile.tags == harmless.tags and hostile.attributes == harmless.attributes
    assert hostile.tags["script"] == (2 if has_positive else 0), "the slider's script and its data"


def test_an_evaluation_has_a_page_without_epochs(reports, tmp_path):
    report = reports["two_classes.html"]
    result = replace(report.result, calibration=None, baseline=None)
    write_page(tmp_path / "page.html", replace(report, result=result, facts=Facts(), versions={}))
    page = visible_text((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert "Epochs" not in page and "Calibration error" in page
    assert page.endswith("Provenance -")


def test_the_monitored_metric_has_a_curve_and_a_column_in_the_table_of_epochs(pages):
    content = (pages / "two_classes.html").read_text(encoding="utf-8")
    assert "loss, macro recall, average precision of training and validation by epoch" in content
    columns = "epoch loss accuracy macro recall average precision choice"
    assert f"{columns} 1 0.5000 0.5000 0.5000 0.6250" in visible_text(content)


def test_epochs_count_from_one_and_many_are_folded(reports, rendered, tmp_path):
    """The exported epoch, number 7 of metrics.csv, is the eighth."""
    best = '<tr class="strong"><th class="number" scope="row">8</th>'
    content = rendered["two_classes.html"]
    (epochs,) = re.findall(r'<section id="epochs">.*?</section>', content, re.DOTALL)
    visible, folded = re.split(r"<details.*?>", epochs)
    assert 'scope="row"' not in visible and ">chosen<" in folded
    assert re.findall(r'scope="row">(\d+)<', folded) == [str(epoch) for epoch in range(1, 31)] and best in folded
    assert "Every validation (30)" in folded
    facts = replace(reports["two_classes.html"].facts, history=reports["two_classes.html"].facts.history[:9])
    write_page(tmp_path / "short.html", replace(reports["two_classes.html"], facts=facts))
    (epochs,) = re.findall(r'<section id="epochs">.*?</section>', (tmp_path / "short.html").read_text(), re.DOTALL)
    assert "<details" not in epochs and epochs.count(best) == 1


def test_the_page_says_what_it_is_about(reports, tmp_path):
    report = reports["two_classes.html"]
    report = replace(
        report,
        result=replace(report.result, data={"test": SplitCounts(refused=3)}, holdout_rows=77),
        created=datetime(2026, 2, 3, 4, 5, tzinfo=UTC),
        sources={"train": "cards.parquet", "validation": "20% of train, at random", "test": EVIL},
    )
    write_page(tmp_path / "report.html", report)
    page = visible_text((tmp_path / "report.html").read_text(encoding="utf-8"))
    facts = page[: page.index(" Verdict ")]
    assert f"Data train: cards.parquet validation: 20% of train, at random test: {escape(EVIL)} Rows train" in facts
    rows = "train 2,000, validation 2,000 + 77 for the threshold, test 2,000"
    assert f"Rows {rows} Classes 2 Written 2026-02-03 04:05 UTC seqclf 1" in facts
    warning = page.index(f"a column named {escape(EVIL)}")
    assert warning < page.index("The test split has"), "warnings about the data come before the scores"


def test_pictures_have_text_alternatives_and_tables_headings(rendered):
    for content in rendered.values():
        figures = re.findall(r"<[^>]*>(?=(?:<!--.*?-->)?\s*<svg)", content)
        assert len(figures) == content.count("<svg") > 0
        assert all('role="img"' in tag and 'aria-label="' in tag for tag in figures)
        levels = [int(level) for level in re.findall(r"<h(\d)", content)]
        assert levels[0] == 1 and set(levels[1:]) == {2}
        for table in re.findall(r"<table.*?</table>", content, re.DOTALL):
            assert 'scope="col"' in table and 'scope="row"' in table


def test_alarms_come_before_all_figures(pages):
    content = (pages / "uninformed.html").read_text(encoding="utf-8")
    assert "it never predicts yes" in visible_text(content)
    alarm = content.index("is never predicted")
    assert content.index("Settle this before you use the model") < alarm < content.index("<h2>Threshold")


def test_operating_points_equal_counts_over_all_rows():
    generator = np.random.default_rng(0)
    is_positive, score = generator.random(500) < 0.1, generator.random(500)
    points, current = operating_points(is_positive, score, 0.25)
    assert points[current].threshold == 0.25
    for threshold, recall, precision, alerts in points:
        is_alert = score >= threshold
        hits = (is_alert & is_positive).sum()
        assert alerts == is_alert.mean() and recall == hits / is_positive.sum()
        assert precision == (hits / is_alert.sum() if is_alert.any() else None)
    assert points[0].recall == 1.0 and points[-1].alerts == 0.0


def test_the_threshold_section_shows_what_a_target_changes_with_any_number_of_classes(tmp_path):
    labels = ("calm", "odd", "loud")
    goal = Guarantee(
        rule="min_recall",
        label="loud",
        target=0.9,
        confidence=0.95,
        statement="average",
        backed=False,
        rows=9,
        needed=29,
    )
    decision = Decision(rule="min_recall", offsets=(0.0, 0.0, 5.0), targets=(goal,))
    report = simulated_report(rows=500, labels=labels, positive=None, decision=decision)
    section = threshold_section(report)
    rows = {name: (before, after) for name, before, after in section.blocks[1].rows}
    assert rows["recall of loud"][0] < rows["recall of loud"][1]
    assert rows["precision of loud"][0] > rows["precision of loud"][1]
    accuracy = (report.rows.logits.argmax(axis=1) == report.rows.labels).mean()
    assert rows["accuracy"] == (score(accuracy), score(report.metrics.accuracy))
    write_page(tmp_path / "report.html", report)
    assert "rows given loud" in visible_text((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert threshold_section(simulated_report(rows=90, labels=labels, positive=None, decision=Decision())) is None


@needs_chromium
@pytest.mark.parametrize("width", [360, 390, 1280])
def test_the_page_fits_the_width_of_the_window(reports, pages, width):
    for name in reports:
        content = (pages / name).read_text(encoding="utf-8")
        (pages / name).write_text(with_script(content, REPORT_WIDTH), encoding="utf-8")
    assert content_widths(pages, list(reports), width) == [width] * len(reports)


@needs_chromium
def test_the_slider_moves_recall_precision_alerts_and_the_dot(reports, pages):
    report = reports["two_classes.html"]
    threshold = report.result.decision.threshold_of(1)
    points, _ = operating_points(report.rows.labels == 1, report.probabilities[:, 1], threshold)
    move_slider = """
      const slider = document.getElementById("threshold-slider"), readings = [];
      for (const index of [0, 40, 120, slider.max]) {
        slider.value = index;
        slider.dispatchEvent(new Event("input"));
        const read = name => document.getElementById("threshold-" + name).textContent;
        const dot = document.querySelector(".plot i.dot");
        const hidden = getComputedStyle(dot).display === "none";
        const texts = ["recall", "precision", "alerts"].map(read);
        readings.push([+index, ...texts, hidden ? null : [parseFloat(dot.style.left), parseFloat(dot.style.top)]]);
      }
      document.title = JSON.stringify(readings);
    """
    content = (pages / "two_classes.html").read_text(encoding="utf-8")
    (pages / "two_classes.html").write_text(with_script(content, move_slider), encoding="utf-8")
    readings = json.loads(re.search(r"<title>(.*?)</title>", browse(pages, "two_classes.html", "--dump-dom")).group(1))
    share = lambda value: f"{100 * value:.{2 if 0 < value < 0.01 else 1}f}%"  # noqa: E731
    for index, recall, precision, alerts, dot in readings:
        point = points[index]
        assert recall == share(point.recall) and alerts == share(point.alerts)
        assert precision == ("-" if point.precision is None else share(point.precision))
        if point.precision is None:
            assert dot is None, "a dot without a precision"
        else:
            assert dot == pytest.approx(in_box(point.recall, point.precision), abs=1e-3)
    assert points[readings[-1][0]].precision is None
    assert len({tuple(reading[4] or ()) for reading in readings}) == 4, "the dot did not move each time"


def in_box(x, y):
    """Percentages from the left and the top of a figure, of a point in its axes from 0 to 1."""
    left, bottom = MARGIN["left"], MARGIN["bottom"]
    width, height = MARGIN["right"] - left, MARGIN["top"] - bottom
    return [100 * (left + x * width), 100 * (1 - bottom - y * height)]


@needs_chromium
def test_the_content_security_policy_allows_only_the_script_of_the_page(pages):
    """The script sets `aria-valuetext`, which is not in the file, and an inserted script does not run."""
    content = (pages / "two_classes.html").read_text(encoding="utf-8")
    assert "aria-valuetext=" not in content
    (pages / "two_classes.html").write_text(content.replace("</body>", "<script>document.title = 'in'</script></body>"))
    rendered = browse(pages, "two_classes.html", "--dump-dom")
    assert "aria-valuetext=" in rendered and "<title>cards</title>" in rendered
