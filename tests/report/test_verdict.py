"""The sentences of the verdict: results out of 100, the comparison with the baseline, promise and next step."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest

from seqclf.evaluation.comparison import MetricComparison
from seqclf.evaluation.decision import Decision, Guarantee
from seqclf.evaluation.metrics import ClassificationMetrics
from seqclf.evaluation.results import BaselineMetrics, SplitOutputs, evaluate_split
from seqclf.evaluation.run_result import RunResult
from seqclf.evaluation.target_results import TargetResult
from seqclf.report.verdict import out_of, verdict_of


def split_metrics(confusion, classes, positive=None):
    """Metrics of a split with a confusion matrix."""
    confusion = np.array(confusion)
    labels, predicted = np.repeat(np.indices(confusion.shape).reshape(2, -1), confusion.ravel(), axis=1)
    outputs = SplitOutputs(np.eye(len(classes))[predicted] * 3.0, labels, np.full(len(labels), 5), labels < 0)
    return evaluate_split(outputs, list(classes), positive, Decision(), with_intervals=True)


FRAUD = split_metrics([[876, 124], [14, 86]], ("no", "fraud"), "fraud")
THREE = split_metrics([[90, 5, 5], [2, 96, 2], [0, 20, 60]], ("calm", "odd", "loud"))


def verdict(metrics, decision=None, **known):
    """Verdict on a model that test judges."""
    return verdict_of(RunResult(splits={"test": metrics}, decision=decision or Decision(), **known))


def entry(metric, model, baseline, half_width):
    difference = model - baseline
    return MetricComparison(
        metric=metric,
        model=model,
        baseline=baseline,
        difference=difference,
        low=difference - half_width,
        high=difference + half_width,
    )


def comparison_sentence(*entries):
    fields = {field.name: getattr(FRAUD, field.name) for field in dataclasses.fields(ClassificationMetrics)}
    baseline = BaselineMetrics(**fields, model="logistic regression", split="test", comparison=list(entries))
    return verdict(FRAUD, baseline=baseline).comparison


def test_a_positive_label_is_counted_out_of_100():
    found = verdict(FRAUD, Decision().with_margin("threshold", ["no", "fraud"], -0.61904, "fraud"))
    assert found.result == (
        "Flags a sequence as fraud from a probability of 0.35. Of 100 sequences labelled fraud it finds 86 (between 78 "
        "and 92); of 100 alerts, 41 (between 34 and 48) are right."
    )
    assert found.counts == "The test split has 1,100 sequences: 100 are labelled fraud, and 210 are alerts."


def test_several_classes_have_accuracy_macro_recall_and_the_weakest_class():
    result = verdict(THREE).result
    assert result.startswith("Of 100 sequences it classifies 88 (between ")
    assert "Its macro recall over 3 classes is 0.870; it is weakest on loud: of 100 it finds 75 (between " in result


def test_a_perfect_score_has_no_weakest_class():
    perfect = split_metrics(np.diag([500, 300, 200]), ("a", "b", "c"))
    assert verdict(perfect).result == (
        "Of 1,000 sequences it classifies 1,000 (between 996 and 1,000) correctly. Its macro recall over 3 classes is "
        "1.000: it finds all sequences of each class."
    )


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0, ("100", "0")),
        (1, ("100", "100")),
        (0.998, ("1,000", "998")),
        (0.0004, ("10,000", "4")),
        (0.5, ("100", "50")),
    ],
)
def test_only_none_and_all_are_counted_as_0_and_as_all(share, expected):
    assert out_of(share) == expected


def test_rows_that_are_too_few_to_show_more_than_chance_say_so_without_an_alarm():
    few = split_metrics([[6, 2], [1, 1]], ("no", "fraud"), "fraud")
    assert few.alarms == [] and few.intervals.positive.auroc[0] < 0.5
    assert "too few to show that it is better than chance" in verdict(few).result
    assert "better than chance" not in verdict(FRAUD).result


@pytest.mark.parametrize(("rows", "scale"), [(20, "100"), (109, "100"), (1500, "1,000"), (20_000, "10,000")])
def test_counts_are_no_finer_than_the_rows_that_were_counted(rows, scale):
    assert out_of(0.9999, (0.9985, 0.99995), rows)[0] == scale
    assert out_of(0.974, (0.88, 0.999), rows)[0] == "100", "as wide as that of few rows"
    assert out_of(0.0001, (0.00001, 0.002), 500) == ("100", "fewer than 1 (between fewer than 1 and fewer than 1)")


def test_a_better_model_beats_the_baseline_by_a_difference_with_its_interval():
    sentence = comparison_sentence(
        entry("average_precision", 0.83, 0.62, 0.06), entry("recall_at_equal_alerts", 0.86, 0.64, 0.1)
    )
    assert sentence == (
        "It beats a model that ignores the order (logistic regression) by 0.210 average precision (0.150 to 0.270). "
        "With as many alerts, that model finds 64.0% of the sequences labelled fraud, this one 86.0%."
    )


def test_a_worse_model_and_one_that_is_not_shown_to_be_better_are_worded_differently():
    worse = comparison_sentence(entry("recall", 0.7, 0.8, 0.05))
    assert (
        "It is worse than a model that ignores the order" in worse and "by 0.100 macro recall (0.050 to 0.150)" in worse
    )
    unclear = comparison_sentence(entry("recall", 0.81, 0.8, 0.05))
    assert "It is not shown to beat a model" in unclear and "differs by +0.010 (-0.040 to 0.060)" in unclear


def test_a_metric_that_contradicts_the_first_is_named():
    sentence = comparison_sentence(entry("recall", 0.8, 0.7, 0.05), entry("accuracy", 0.8, 0.9, 0.05))
    assert sentence.endswith("But its accuracy is lower, by 0.100 (0.050 to 0.150).")
    assert "accuracy" not in comparison_sentence(entry("recall", 0.8, 0.7, 0.05), entry("accuracy", 0.8, 0.8, 0.05))


def test_two_nearly_perfect_models_are_noted():
    note = "Note: the simpler model does as well; test is too small or too easy to tell them apart."
    assert note in comparison_sentence(entry("recall", 0.99, 0.985, 0.03))
    assert note not in comparison_sentence(entry("recall", 0.95, 0.99, 0.03)), "worse"
    assert note not in comparison_sentence(entry("recall", 0.7, 0.7, 0.4)), "unclear, but far from perfect"
    unclear, better = entry("average_precision", 0.99, 0.985, 0.03), entry("recall", 0.99, 0.9, 0.03)
    assert note in comparison_sentence(unclear) and note not in comparison_sentence(unclear, better)


def test_a_metric_that_tells_the_models_apart_where_the_first_does_not_is_named():
    sentence = comparison_sentence(entry("recall", 0.83, 0.8, 0.05), entry("accuracy", 0.83, 0.8, 0.01))
    assert "It is not shown to beat" in sentence and sentence.endswith(
        "But its accuracy is higher, by 0.030 (0.020 to 0.040)."
    )


def test_a_lower_accuracy_of_more_alerts_contradicts_no_average_precision():
    sentence = comparison_sentence(entry("average_precision", 0.8, 0.1, 0.05), entry("accuracy", 0.94, 0.99, 0.01))
    assert "accuracy" not in sentence


def test_a_missing_baseline_is_said_with_its_reason():
    found = verdict(FRAUD, no_baseline="baseline=false")
    assert found.comparison == "It was not compared with a model that ignores the order: baseline=false."


@pytest.mark.parametrize(("backed", "opening"), [(True, "Guarantee: "), (False, "Guarantee NOT backed: ")])
def test_a_promise_says_if_it_is_backed(backed, opening):
    promise = Guarantee(
        rule="min_recall", label="fraud", target=0.8, confidence=0.95, backed=backed, rows=40, needed=60
    )
    decision = Decision(rule="min_recall", positive="fraud", targets=(promise,))
    result = TargetResult(rule="min_recall", label="fraud", target=0.8, units=100, value=0.86, status="met")
    sentence = verdict(replace(FRAUD, targets=[result]), decision).guarantee
    assert sentence.startswith(f"{opening}at least 80.0% of fraud found (") and sentence.endswith("on test 86.0%, met.")
    assert verdict(FRAUD).guarantee is None


@pytest.mark.parametrize("unit", [None, "group", "sequence"])
@pytest.mark.parametrize("rule", ["min_recall", "min_precision", "max_alerts"])
def test_a_target_that_was_missed_is_never_said_to_be_kept(rule, unit):
    promise = Guarantee(
        rule=rule, label="fraud", target=0.8, confidence=0.95, backed=True, rows=40, needed=None, unit=unit
    )
    result = TargetResult(
        rule=rule, label="fraud", target=0.8, units=60, value=0.385, low=0.25, high=0.5, status="broken"
    )
    decision = Decision(rule=rule, positive="fraud", targets=(promise,))
    sentence = verdict(replace(FRAUD, targets=[result]), decision).guarantee
    assert "38.5% (25.0% to 50.0%), BROKEN" in sentence and ("drawn from each" in sentence) == (unit == "group")


def test_the_text_is_all_sentences_in_order():
    found = verdict(FRAUD, no_baseline="baseline=false", next_step="use it.")
    assert found.text == f"{found.use} {found.result} {found.comparison} Next: use it."
