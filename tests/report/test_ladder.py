"""The report and the model card show the ladder with its figures."""

import re
from dataclasses import replace

import numpy as np
import pytest

from seqclf.documents.blocks import Document, Section, Text
from seqclf.documents.html import render_document
from seqclf.documents.markdown import render_markdown
from seqclf.evaluation.comparison import MetricComparison
from seqclf.evaluation.decision import Decision
from seqclf.evaluation.ladder import Rung
from seqclf.evaluation.results import BaselineMetrics, SplitOutputs, evaluate_split
from seqclf.evaluation.run_result import RunResult
from seqclf.report.ladder import gain_sentence, ladder_blocks
from seqclf.report.score_table import verdict_blocks

LABELS = np.arange(60) % 3
OUTPUTS = SplitOutputs(np.eye(3)[LABELS] * 3.0, LABELS, LABELS + 3, LABELS < 0)
METRICS = evaluate_split(OUTPUTS, ["a", "b", "c"], None, Decision(), with_intervals=True)


def gain(low, difference, high, few=None):
    return [
        MetricComparison(
            metric="average_precision",
            model=0.5 + difference,
            baseline=0.5,
            difference=difference,
            low=low,
            high=high,
            too_few_groups=few,
        )
    ]


def rung(name, value, gained=None, metric="average_precision"):
    figures = {"loss": 1 - value, "accuracy": value + 0.01, "recall": value + 0.02, "auroc": value + 0.03}
    return Rung(name=name, model=f"{name} model", rows=60, metric=metric, value=value, gain=gained, **figures)


LADDER = (
    rung("order-blind", 0.4111),
    rung("kernels", 0.4333, gain(-0.0123, 0.0222, 0.0567)),
    rung("network", 0.8444, gain(0.3456, 0.4111, 0.4766)),
)
RESULT = RunResult(splits={"test": METRICS}, decision=Decision(), ladder=LADDER)


def shown(result):
    """Dict reader → text that it gets."""
    document = Document("a run", "", [Section("Verdict", verdict_blocks(result))])
    page = re.sub(r"<[^>]+>", " ", render_document(document))
    return {"page": page, "card": render_markdown(document)}


@pytest.mark.parametrize("reader", ["page", "card"])
def test_every_reader_sees_the_figures_of_each_rung(reader):
    text = shown(RESULT)[reader]
    for entry in LADDER:
        assert entry.name in text
        assert all(
            f"{value:.4f}" in text for value in (entry.value, entry.auroc, entry.accuracy, entry.recall, entry.loss)
        )
    for figures in ("+0.022", "-0.012 to +0.057", "+0.411", "+0.346 to +0.477"):
        assert figures in text


def test_fewer_than_two_rungs_are_not_shown():
    assert ladder_blocks(replace(RESULT, ladder=())) == ladder_blocks(replace(RESULT, ladder=LADDER[-1:])) == []


def test_what_the_verdict_and_the_score_table_say_is_not_said_again():
    two = (LADDER[0], LADDER[2])
    state = {**METRICS.to_dict(), "model": "gradient boosting", "split": "test", "comparison": two[1].gain}
    baseline = BaselineMetrics.from_dict(state)
    assert ladder_blocks(replace(RESULT, ladder=two, baseline=baseline)) == []
    (*_, sentence) = ladder_blocks(replace(RESULT, ladder=two))
    assert isinstance(sentence, Text) and "network adds" in sentence.text


@pytest.mark.parametrize(
    ("gained", "words"),
    [
        (gain(0.1, 0.2, 0.3), "The network adds +0.200 average precision (+0.100 to +0.300) to "),
        (gain(-0.1, 0.2, 0.3), "The network is not shown to add anything to "),
        (gain(-0.3, -0.2, -0.1), "The network is worse than "),
        (gain(-1, 0.2, 1, few=True), "The network is not judged against "),
    ],
)
def test_a_gain_is_stated_as_its_interval_allows(gained, words):
    assert gain_sentence(rung("network", 0.7, gained), LADDER[0]).startswith(words)
