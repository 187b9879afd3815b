"""report.html of runs made up here, in words, numbers and a real browser."""

import json
import re
import time
from dataclasses import replace

import numpy as np
import pytest
from support.browser import REPORT_WIDTH, browse, content_widths, needs_chromium, with_script

from seqclf.evaluation.calibration import fit_temperature
from seqclf.evaluation.decision import Decision, choose_decision
from seqclf.evaluation.results import BaselineMetrics, Evaluation, SplitOutputs, calibration_of, evaluate_split
from seqclf.reporting.run.mistakes import worst_mistakes
from seqclf.reporting.run.page import write_report
from seqclf.reporting.run.report import Report
from seqclf.reporting.run.summary import headline
from seqclf.reporting.run.threshold_slider import operating_points

SETTINGS = {"min_recall": 0.8, "min_precision": None, "max_alerts": None, "cost": None, "confidence": 0.95}
SETTINGS |= {"calibrate": False, "holdout": 0.5, "provisional": False}
EVIL = "<script>alert(1)</script>"


def made(rows=2000, apart=3.0, labels=("no", "yes"), positive="yes", seed=0, decision=None):
    """A report on rows of made-up logits; the last class is one row in ten."""
    generator, classes = np.random.default_rng(seed), list(labels)
    scored = {}
    for split in ("train", "validation", "test"):
        truth = np.where(generator.random(rows) < 0.1, len(classes) - 1, generator.integers(0, len(classes) - 1, rows))
        logits = generator.normal(size=(rows, len(classes))).astype(np.float32)
        logits[np.arange(rows), truth] += apart
        lengths = generator.integers(1, 400, rows)
        scored[split] = SplitOutputs(logits, truth, lengths, lengths > 350)
    held, last = scored["validation"], scored["test"]
    if decision is None:
        decision = choose_decision(SETTINGS, held.logits, held.labels, classes, positive)
    metrics = {
        split: evaluate_split(outputs, classes, positive, decision, with_intervals=split != "train")
        for split, outputs in scored.items()
    }
    evaluation = Evaluation(scored, decision, metrics)
    rows = (last.labels, evaluation.predicted, evaluation.probabilities, last.lengths, classes)
    baseline = {"model": "logistic regression", "split": "test", **metrics["validation"].to_dict()}
    curves = {f"{split}/{name}": 0.5 for split in ("train", "validation") for name in ("loss", "accuracy", "recall")}
    curves["validation/average_precision"] = 0.625
    speed = {"tokens_per_s": 1e5, "padding_efficiency": 0.95, "memory_mb": 500.0}
    history = [{"epoch": k, "step": k, **speed, **curves, "observation": f"epoch {k} & so on"} for k in range(30)]
    return Report(
        title="cards",
        evaluation=evaluation,
        classes=classes,
        positive=positive,
        mistakes=worst_mistakes(*rows, lambda row: (str(row), f"{EVIL} " * 200)),
        baseline=BaselineMetrics.from_dict(baseline),
        calibration=calibration_of(scored, fit_temperature(held.logits, held.labels), False),
        history=history,
        best_epoch=7,
        warnings=[f"a column named {EVIL}"],
        config={"seed": 0, "monitor": "average_precision"},
        versions={"seqclf": "1"},
    )


@pytest.fixture(scope="module")
def reports():
    many = [f"class {k} {EVIL}" for k in range(40)]
    three = ("calm", "odd", "a very long name of a class indeed")
    return {
        "two.html": made(),
        "three.html": made(labels=three, positive=None, decision=Decision()),
        "many.html": made(rows=600, labels=many, positive=None, decision=Decision()),
        "blind.html": made(apart=0.0, decision=Decision().with_margin("threshold", ["no", "yes"], 99.0, "yes")),
        "right.html": made(apart=60.0, rows=300),
    }


@pytest.fixture
def pages(reports, tmp_path):
    for name, report in reports.items():
        write_report(report, tmp_path / name)
    return tmp_path


def words(page):
    return " ".join(re.sub(r"<style>.*?</style>|<script.*?</script>|<[^>]+>", " ", page, flags=re.DOTALL).split())


def test_the_page_needs_nothing_but_itself_and_is_small(reports, pages):
    for name in reports:
        content = (pages / name).read_text(encoding="utf-8")
        assert len(content) < 2_000_000
        assert EVIL not in content
        assert not re.search(r"(src|href)=[\"'](?!#)", content)
        assert "http" not in content.replace("http-equiv", "")


def test_a_report_takes_less_than_five_seconds(reports, tmp_path):
    start = time.perf_counter()
    write_report(reports["two.html"], tmp_path / "again.html")
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("positive", ["yes", None])
def test_rows_that_chose_the_model_are_said_to_flatter_it(positive):
    labels = np.array([0, 1] * 20)
    scored = SplitOutputs(np.eye(2)[labels] * 3.0, labels, np.full(40, 5), np.zeros(40, bool))
    block = evaluate_split(scored, ["no", "yes"], positive, Decision(positive=positive), with_intervals=True)
    assert "also chose" not in headline(block, "validation")
    chosen = headline(replace(block, used_for=["epoch", "threshold"]), "validation")
    assert "These validation rows also chose the epoch and the threshold, so the scores are better" in chosen
    assert "data.split.test=0.2" in chosen


def test_the_verdict_comes_first_and_in_words(reports, pages):
    page = words((pages / "two.html").read_text(encoding="utf-8"))
    block = reports["two.html"].metrics.positive
    assert page.startswith("cards cards Finds ")
    assert f"Finds {block.recall:.1%} of yes (between " in page
    assert "At least 80.0% of yes found (95% sure, on" in page
    assert "Do not use this model" not in page
    assert "order-blind (logistic regression)" in page and "always no" in page
    assert "epoch 3 &amp; so on" in page


def test_what_is_monitored_stands_in_the_table_of_epochs_and_among_the_curves(pages):
    content = (pages / "two.html").read_text(encoding="utf-8")
    assert "loss, recall, average precision of training and validation by epoch" in content
    assert "epoch loss accuracy recall average precision observation 0 0.5000 0.5000 0.5000 0.6250 epoch 0" in words(
        content
    )


def test_alarms_stand_above_all_numbers(pages):
    page = words((pages / "blind.html").read_text(encoding="utf-8"))
    assert "it never predicts yes" in page
    assert page.index("Do not use this model as it is") < page.index("is never predicted") < page.index("Threshold")


def test_every_row_right_is_said_so(pages):
    assert "Every row of test is right" in words((pages / "right.html").read_text(encoding="utf-8"))


def test_many_classes_show_the_commonest_mistakes(pages):
    assert "Largest confusions" in (pages / "many.html").read_text(encoding="utf-8")


def test_operating_points_are_counted_row_by_row():
    generator = np.random.default_rng(0)
    truth, own = generator.random(500) < 0.1, generator.random(500)
    points, place = operating_points(truth, own, 0.25)
    assert points[place].threshold == 0.25
    for threshold, recall, precision, alerts in points:
        chosen = own >= threshold
        assert alerts == chosen.mean() and recall == (chosen & truth).sum() / truth.sum()
        assert precision == ((chosen & truth).sum() / chosen.sum() if chosen.any() else None)
    assert points[0][1] == 1.0 and points[-1][3] == 0.0


@needs_chromium
@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_is_no_wider_than_the_window(reports, pages, width):
    for name in reports:
        content = (pages / name).read_text(encoding="utf-8")
        (pages / name).write_text(with_script(content, REPORT_WIDTH), encoding="utf-8")
    assert content_widths(pages, list(reports), width) == [width] * len(reports)


@needs_chromium
def test_the_slider_moves_recall_precision_alerts_and_the_dot(reports, pages):
    report = reports["two.html"]
    evaluation = report.evaluation
    threshold = evaluation.decision.threshold_of(1)
    points, _ = operating_points(report.labels == 1, evaluation.probabilities[:, 1], threshold)
    drive = """
      const slider = document.getElementById("threshold"), told = [];
      for (const place of [0, 40, 120, slider.max]) {
        slider.value = place;
        slider.dispatchEvent(new Event("input"));
        const read = name => document.getElementById("threshold-" + name).textContent;
        const dot = document.querySelector(".plot i.dot");
        told.push([+place, read("recall"), read("precision"), read("alerts"), dot.style.left, dot.style.top]);
      }
      document.title = JSON.stringify(told);
    """
    content = (pages / "two.html").read_text(encoding="utf-8")
    (pages / "two.html").write_text(with_script(content, drive), encoding="utf-8")
    told = json.loads(re.search(r"<title>(.*?)</title>", browse(pages, "two.html", "--dump-dom")).group(1))
    share = lambda value: f"{100 * value:.{2 if 0 < value < 0.01 else 1}f}%"  # noqa: E731
    for place, recall, precision, alerts, _, _ in told:
        _, *expected = points[place]
        assert recall == share(expected[0]) and alerts == share(expected[2])
        assert precision == ("-" if expected[1] is None else share(expected[1]))
    assert len({tuple(entry[4:]) for entry in told}) == 4, "the dot moved each time"


@needs_chromium
def test_the_policy_lets_the_pages_own_script_run_and_no_other(pages):
    """The script writes `aria-valuetext`, which is not in the file; another script is forbidden."""
    content = (pages / "two.html").read_text(encoding="utf-8")
    assert "aria-valuetext=" not in content
    (pages / "two.html").write_text(content.replace("</body>", "<script>document.title = 'in'</script></body>"))
    shown = browse(pages, "two.html", "--dump-dom")
    assert "aria-valuetext=" in shown and "<title>cards</title>" in shown


@needs_chromium
@pytest.mark.parametrize("size", ["390,844", "1280,900"])
def test_a_browser_draws_it(pages, size):
    browse(pages, "two.html", f"--window-size={size}", f"--screenshot={pages / 'shot.png'}")
    assert (pages / "shot.png").stat().st_size > 20_000
