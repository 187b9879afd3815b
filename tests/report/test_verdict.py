"""The sentences of the verdict: results out of 100, the comparison with the baseline, promise and next step."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest

from seqclf.evaluation.comparison import Comparison
from seqclf.evaluation.decision import Decision, Guarantee
from seqclf.evaluation.metrics import Metrics
from seqclf.evaluation.result import ModelResult, RunResult
from seqclf.evaluation.scores import ScoredRows
from seqclf.evaluation.split_result import judge_split
from seqclf.evaluation.targets import Target
from seqclf.report.verdict import out_of_100, row_counts, verdict_of


def split_metrics(confusion, classes, positive=None):
    """Metrics of a split with a confusion matrix."""
    confusion = np.array(confusion)
    labels, predicted = np.repeat(np.indices(confusion.shape).reshape(2, -1), confusion.ravel(), axis=1)
    outputs = ScoredRows(np.eye(len(classes))[predicted] * 3.0, labels, np.full(len(labels), 5), labels < 0)
    return judge_split(outputs, list(classes), positive, Decision(), with_intervals=True)


FRAUD = split_metrics([[876, 124], [14, 86]], ("no", "fraud"), "fraud")
THREE = split_metrics([[90, 5, 5], [2, 96, 2], [0, 20, 60]], ("calm", "odd", "loud"))


def verdict(metrics, decision=None, **known):
    """Verdict on a model that test judges."""
    return verdict_of(RunResult(splits={"test": metrics}, decision=decision or Decision(), **known))


def entry(metric, model, baseline, half_width):
    difference = model - baseline
    return Comparison(
        metric=metric,
        model=model,
        baseline=baseline,
        difference=difference,
        low=difference - half_width,
        high=difference + half_width,
    )


def comparison_sentence(*entries):
    fields = {field.name: getattr(FRAUD, field.name) for field in dataclasses.fields(Metrics)}
    baseline = ModelResult(**fields, name="order-blind", kind="logistic regression", comparisons=list(entries))
    return verdict(FRAUD, baseline=baseline).comparison


def test_a_positive_label_is_counted_out_of_100():
    found = verdict(FRAUD, Decision().with_margin("threshold", ["no", "fraud"], -0.61904, "fraud"))
    assert found.result == (
        "Of 100 sequences labelled fraud it finds 86 (between 78 and 92); of 100 alerts 41 (between 34 and 48) are "
        "right, at the threshold 0.35."
    )
    assert (
        row_counts(FRAUD, "test") == "The test split has 1,100 sequences: 100 are labelled fraud, and 210 are alerts."
    )


def test_several_classes_have_accuracy_macro_recall_and_the_weakest_class():
    result = verdict(THREE).result
    assert result.startswith("Of 100 sequences it classifies 88 (between ")
    assert "its macro recall over 3 classes is 0.870, and it is weakest on loud: of 100 it finds 75 (between " in result


@pytest.mark.parametrize(
    ("share", "expected"), [(0, "0"), (1, "100"), (0.998, "more than 99"), (0.0004, "fewer than 1"), (0.5, "50")]
)
def test_only_none_and_all_are_counted_as_0_and_as_all(share, expected):
    assert out_of_100(share) == expected


def test_rows_that_are_too_few_to_show_more_than_chance_say_so_without_an_alarm():
    few = split_metrics([[6, 2], [1, 1]], ("no", "fraud"), "fraud")
    assert few.alarms == [] and few.intervals.positive.auroc[0] < 0.5
    assert "too few to show that it is better than chance" in verdict(few).result
    assert "better than chance" not in verdict(FRAUD).result


def test_a_worse_model_and_one_that_is_not_shown_to_be_better_are_worded_differently():
    worse = comparison_sentence(entry("recall", 0.7, 0.8, 0.05))
    assert (
        "It is worse than a model that ignores the order" in worse and "by 0.100 macro recall (0.050 to 0.150)" in worse
    )
    unclear = comparison_sentence(entry("recall", 0.81, 0.8, 0.05))
    assert "It is not shown to beat a model" in unclear and "differs by +0.010 (-0.040 to 0.060)" in unclear


def test_two_nearly_perfect_models_are_noted():
    note = ", as test is too small or too easy to tell them apart."
    assert note in comparison_sentence(entry("recall", 0.99, 0.985, 0.03))
    assert note not in comparison_sentence(entry("recall", 0.95, 0.99, 0.03)), "worse"
    assert note not in comparison_sentence(entry("recall", 0.7, 0.7, 0.4)), "unclear, but far from perfect"
    unclear, better = entry("average_precision", 0.99, 0.985, 0.03), entry("recall", 0.99, 0.9, 0.03)
    assert note in comparison_sentence(unclear) and note not in comparison_sentence(unclear, better)


@pytest.mark.parametrize(
    ("statement", "rows", "known", "opening", "parts"),
    [
        ("sure", 40, {}, "95% sure: ", ["on 40 rows of fraud or more"]),
        ("sure", 40, {"basis": "folds"}, "Estimated at the rank that is 95% sure: ", ["no guarantee: the bundle"]),
        ("average", 40, {"confidence": None}, "On average: ", ["by 40 rows of fraud)"]),
        ("average", 7, {"needed": 20, "beyond_lowest": 9}, "On average: ", ["takes about 20", "from 9 on it does not"]),
        ("rows", 3, {"confidence": None, "needed": 4}, "No statement", ["not on average, which takes about 4"]),
        ("average", 40, {"conflict": True}, "No statement", ["cannot hold together with the others"]),
    ],
)
def test_a_target_names_its_statement_and_what_a_stronger_one_takes(statement, rows, known, opening, parts):
    settings = {"rule": "min_recall", "label": "fraud", "target": 0.8, "confidence": 0.95, "needed": None, **known}
    target = Guarantee(statement=statement, backed=not known.get("needed"), rows=rows, **settings)
    decision = Decision(rule="min_recall", positive="fraud", targets=(target,))
    everything = np.ones(100, bool)
    observed = {"units": 100, "value": 0.86, "status": "met"}
    result = Target.of(target, decision, everything, everything, 1, asked=True, **observed)
    sentence = verdict(replace(FRAUD, targets=[result]), decision).guarantee
    assert sentence.startswith(opening) and all(part in sentence for part in parts)
    assert ": at least 80.0% of fraud found (" in sentence and sentence.endswith("on test 86.0%, met.")
    assert verdict(FRAUD).guarantee is None


@pytest.mark.parametrize("unit", [None, "group", "sequence"])
@pytest.mark.parametrize("rule", ["min_recall", "min_precision", "max_alerts"])
def test_a_target_that_was_missed_is_never_said_to_be_kept(rule, unit):
    promise = Guarantee(
        rule=rule,
        label="fraud",
        target=0.8,
        confidence=0.95,
        statement="sure",
        backed=True,
        rows=40,
        needed=None,
        unit=unit,
    )
    decision = Decision(rule=rule, positive="fraud", targets=(promise,))
    observed = {"units": 60, "value": 0.385, "low": 0.25, "high": 0.5, "status": "broken"}
    result = Target.of(promise, decision, np.ones(60, bool), np.ones(60, bool), 1, asked=True, **observed)
    sentence = verdict(replace(FRAUD, targets=[result]), decision).guarantee
    assert "38.5% (25.0% to 50.0%), BROKEN" in sentence and ("one row of each" in sentence) == (unit is not None)


def test_the_terminal_prints_at_most_three_sentences_with_the_guarantee_before_the_comparison():
    compared = verdict(FRAUD, no_baseline="baseline=false", next_step="use it.")
    assert compared.headline == [compared.use, compared.result, compared.comparison]
    promises = tuple(
        Guarantee(
            rule="min_recall",
            label=label,
            target=0.8,
            confidence=0.95,
            statement="sure",
            backed=True,
            rows=40,
            needed=None,
        )
        for label in ("no", "fraud")
    )
    guaranteed = verdict(FRAUD, Decision(rule="min_recall", targets=promises), no_baseline="baseline=false")
    assert guaranteed.headline == [guaranteed.use, guaranteed.result, guaranteed.guarantee]
    assert guaranteed.guarantee.count("95% sure: ") == 2 and guaranteed.answers.keys() == {
        "Does it beat the baseline?",
        "Is the target met?",
    }
