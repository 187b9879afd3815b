"""The verdict on a model in sentences, which the terminal, the report and the model card share.

The first sentence advises whether to use the model. The others report the main scores, the guarantee of the decision,
and the comparison with the order-blind baseline.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from seqclf.documents.formatting import probability_text, score, shortened
from seqclf.evaluation.alarms import CHANCE
from seqclf.evaluation.decision import BY_HAND, CHOSEN, FOLDS, Decision, Guarantee
from seqclf.evaluation.intervals import SIGNED, Interval, LabelIntervals, interval_text
from seqclf.evaluation.result import ModelResult, RunResult
from seqclf.evaluation.slices import Groups
from seqclf.evaluation.split_result import SplitResult
from seqclf.evaluation.targets import BROKEN, MET, RULED_OUT, WITHIN_CHANCE, Target
from seqclf.evaluation.thresholds import ROWS, SURE

# Sentences about the targets of a decision, and the statements of their thresholds.

TARGETS = {
    "min_recall": "at least {target:.1%} of {label} found",
    "min_precision": "at least {target:.1%} of the alerts for {label} right",
    "max_alerts": "at most {target:.1%} of all rows given {label}",
    "cost": "the lowest cost, a missed {label} costing {cost} false alarms",
}
STATUS = {
    MET: "met",
    RULED_OUT: "the target is missed",
    WITHIN_CHANCE: "the target is missed, which chance explains",
    BROKEN: "BROKEN, which chance does not explain",
    None: "unknown",
}
CROSS_VALIDATED = "no guarantee: the bundle is another model than those that gave the scores"


def guarantees(decision: Decision, metrics: SplitResult, split: str) -> str | None:
    """Return one sentence with a clause for each target: statement, rows and achieved value, or `None`."""
    clauses, results = [], {(entry.rule, entry.label): entry for entry in metrics.targets or ()}
    for guarantee in decision.targets:
        label = f"the weight of {guarantee.label}" if guarantee.weighted else guarantee.label
        cost = f"{guarantee.target:g}" if guarantee.column is None else f"its {guarantee.column} in"
        target = TARGETS[guarantee.rule].format(label=label, target=guarantee.target, cost=cost)
        if guarantee.rule == "cost":
            clauses.append(f"Its threshold has {target}, on {guarantee.rows:,} validation rows")
            continue
        evidence = "; ".join(_evidence(guarantee, len(decision.targets)))
        achieved = _achieved(results.get((guarantee.rule, guarantee.label)))
        clauses.append(f"{statement_text(guarantee)}: {target} ({evidence}), on {split} {achieved}")
    return f"{'. '.join(clauses)}." if clauses else None


def statement_text(guarantee: Guarantee) -> str:
    """Return the statement of a threshold in a few words, such as "On average"."""
    if not guarantee.rows or guarantee.statement == ROWS or guarantee.basis in (CHOSEN, BY_HAND) or guarantee.conflict:
        return "No statement about new rows"
    sure, on_average = f"{guarantee.confidence or 0.0:.0%} sure", "On average"
    if guarantee.basis == FOLDS:
        sure, on_average = f"Estimated at the rank that is {sure}", "Estimated on average"
    elif guarantee.approximate:
        sure, on_average = f"About {sure}", "On average, approximately"
    return sure if guarantee.statement == SURE else on_average


def _evidence(guarantee: Guarantee, labels: int) -> Iterator[str]:
    """Yield the reasons why a target has its statement, and why not a stronger one. `labels`: number of targets."""
    few = f"{guarantee.rows:,} {guarantee.counted}"
    if not guarantee.rows:
        yield f"no {guarantee.counted} to set the threshold; the most probable label is predicted"
    elif guarantee.takes is not None:
        found = f"the given one finds {guarantee.reached or 0.0:.1%} of these rows"
        yield f"it takes a budget of {guarantee.takes:.1%} alerts; {found}"
    elif guarantee.basis == BY_HAND:
        yield f"{few}, of which some were left out by hand"
    elif guarantee.conflict:
        yield "it cannot hold together with the others"
    elif guarantee.basis == CHOSEN:
        yield f"{few} set its threshold, and also chose the model"
    elif guarantee.statement == SURE:
        together = ", together with the others" if labels > 1 else ""
        yield f"on {few} or more{', one row of each' if guarantee.unit is not None else ''}{together}"
    else:
        yield f"by {few}"
    if guarantee.weighted is False and guarantee.rule != "max_alerts":
        yield "rows count here, not their weights"
    if guarantee.basis == FOLDS:
        yield CROSS_VALIDATED
    if guarantee.needed and guarantee.rows and guarantee.takes is None:
        asked = "on average" if guarantee.confidence is None else f"{guarantee.confidence:.0%} sure"
        enough = guarantee.needed > guarantee.rows
        takes = f"takes about {guarantee.needed:,}" if enough else "takes a model that separates better"
        yield f"not {asked}, which {takes}"
    if guarantee.beyond_lowest is not None:
        beyond = f"from {guarantee.beyond_lowest:,} on it does not"
        yield f"the lowest score of all {guarantee.rows:,} sets the threshold, {beyond}"


def _achieved(result: Target | None) -> str:
    """Return the achieved value, and if it meets the target."""
    if result is None or result.value is None:
        return STATUS[None]
    if result.status == MET:
        return f"{result.value:.1%}, met"
    limits = None if result.low is None or result.high is None else (result.low, result.high)
    return f"{result.value:.1%} ({interval_text(limits, '{:.1%}'.format)}), {STATUS[result.status]}"


IGNORES_ORDER = "a model that ignores the order"
MAX_LABEL_CHARACTERS = 40


class Verdict(NamedTuple):
    """Sentences of a verdict, `None` where they do not apply.

    `use`: advice to use the model or not, with reasons. `result`: main scores. `comparison`: with the order-blind
    baseline. `guarantee`: evidence for the targets of the decision. `next_step`: the advised action.
    """

    use: str
    result: str
    comparison: str | None
    guarantee: str | None
    next_step: str | None

    @property
    def headline(self) -> list[str]:
        """The sentences that the terminal prints, at most three. A guarantee is more urgent than the comparison."""
        return [sentence for sentence in (self.use, self.result, self.guarantee or self.comparison) if sentence]

    @property
    def answers(self) -> dict[str, str]:
        """Dict question → sentence that answers it, without `use` and `result`."""
        answers = {
            "Does it beat the baseline?": self.comparison,
            "Is the target met?": self.guarantee,
            "What to do next?": None if self.next_step is None else capitalized(self.next_step),
        }
        return {question: answer for question, answer in answers.items() if answer is not None}


def verdict_of(result: RunResult) -> Verdict:
    """Return the verdict on a model from its metrics on the last split."""
    metrics, split, decision = result.metrics, result.split, result.decision
    is_of_classes = metrics.positive is None
    of_model = class_result(metrics, result.baseline) if is_of_classes else positive_result(metrics, split, decision)
    if unknown := result.unknown_labels:
        rows = metrics.rows + unknown
        with_unknown = score(metrics.accuracy * metrics.rows / rows)
        of_model += (
            f" The figures are those of known labels: with {unknown:,} of {rows:,} rows of other labels counted as "
            f"wrong, the accuracy is {with_unknown} and not {score(metrics.accuracy)}."
        )
    return Verdict(
        use=_use(result.not_yet, result.baseline is None and result.no_baseline is not None),
        result=of_model,
        comparison=comparison_result(result),
        guarantee=guarantees(decision, metrics, split),
        next_step=result.next_step,
    )


def _use(not_yet: Sequence[str], uncompared: bool) -> str:
    if not_yet:
        return f"Use it: not yet, because {'; '.join(not_yet)}."
    if uncompared:
        return f"Use it: yes, though it was not compared with {IGNORES_ORDER}."
    return "Use it: yes."


def capitalized(sentence: str) -> str:
    """Return the sentence with an upper-case first letter."""
    return sentence[:1].upper() + sentence[1:]


def positive_result(metrics: SplitResult, split: str, decision: Decision) -> str:
    """Return recall and precision of a positive label, such as "86 of 100", and threshold in one sentence."""
    positive = metrics.positive
    assert positive is not None
    label = shortened(positive.label, MAX_LABEL_CHARACTERS)
    if not positive.rows:
        return f"{split} has no row of {label} among {metrics.rows:,}, so its recall is unknown."
    threshold = probability_text(decision.threshold_of(list(metrics.support_by_class).index(positive.label)))
    threshold = (
        f"thresholds that other rows set; {threshold} ships" if metrics.by_folds else f"the threshold {threshold}"
    )
    intervals = None if metrics.intervals is None else metrics.intervals.positive
    hits = out_of_100(positive.recall or 0.0, None if intervals is None else intervals.recall)
    recall = f"Of 100 sequences labelled {label} it finds {hits}"
    if not positive.alerts:
        return f"{recall}, as it never predicts {label} at {threshold}{_doubt(metrics, intervals)}."
    right = out_of_100(positive.precision or 0.0, None if intervals is None else intervals.precision)
    alerts = f"of 100 alerts {right} are right, at {threshold}"
    return f"{recall}; {alerts}{_doubt(metrics, intervals)}."


def _doubt(metrics: SplitResult, intervals: LabelIntervals | None) -> str:
    """Return a clause, or "", if rows are too few to show that the AUROC beats chance and no alarm says so."""
    if intervals is None or intervals.auroc is None or intervals.auroc[0] > 0.5:
        return ""
    if any(alarm.kind == CHANCE for alarm in metrics.alarms):
        return ""
    return f"; these rows are too few to show that it is better than chance (AUROC {interval_text(intervals.auroc)})"


def class_result(metrics: SplitResult, baseline: ModelResult | None = None) -> str:
    """Return accuracy, macro recall and lowest recall of several classes, such as "86 of 100", in one sentence."""
    recalls = {label: value for label, value in metrics.recall_by_class.items() if value is not None}
    worst = min(recalls, key=lambda label: recalls[label])
    intervals = metrics.intervals
    right = out_of_100(metrics.accuracy, None if intervals is None else intervals.accuracy)
    result = (
        f"Of 100 sequences it classifies {right} correctly; its macro recall over {len(recalls)} classes is "
        f"{metrics.recall:.3f}"
    )
    if baseline is not None and baseline.recall > metrics.recall:
        result += f", below the {baseline.recall:.3f} of {IGNORES_ORDER}"
    if recalls[worst] == 1:
        return f"{result}, as it finds all sequences of each class."
    of_worst = None if intervals is None else intervals.recall_by_class[worst]
    hits = out_of_100(recalls[worst], of_worst)
    return f"{result}, and it is weakest on {shortened(worst, MAX_LABEL_CHARACTERS)}: of 100 it finds {hits}."


def row_counts(metrics: SplitResult, split: str) -> str:
    """Return the number of evaluated rows, positive rows and alerts, and of their groups, in one or two sentences."""
    rows = f"The {split} split has {metrics.rows:,} sequences"
    if metrics.positive is None:
        of_labels = f" of {sum(count > 0 for count in metrics.support_by_class.values())} classes."
    else:
        label = shortened(metrics.positive.label, MAX_LABEL_CHARACTERS)
        of_labels = f": {metrics.positive.rows:,} are labelled {label}, and {metrics.positive.alerts:,} are alerts."
    of_groups = "" if metrics.groups is None else f" {group_sentence(metrics.groups)}"
    return rows + of_labels + of_groups


def group_sentence(groups: Groups) -> str:
    """Return a sentence with the number of groups and a remark if the groups are too few for useful intervals."""
    if groups.unit == "sequence":
        return f"Equal sequences count as one: {groups.count:,} are different."
    few = "; so few that the intervals say little" if groups.are_few else ""
    equal = "" if groups.effective > 0.9 * groups.count else f", as many as {groups.effective:,.1f} of equal size"
    return f"The rows come in {groups.count:,} groups (data.group){equal}{few}."


def out_of_100(share: float, interval: Interval = None) -> str:
    """Write a fraction as a count out of 100, with its interval.

    >>> out_of_100(0.862, (0.79, 0.91)), out_of_100(0.9971), out_of_100(0.00003)
    ('86 (between 79 and 91)', 'more than 99', 'fewer than 1')
    """
    count, *limits = (_count(value) for value in (share, *(interval or ())))
    return count + (" (between {} and {})".format(*limits) if limits else "")


def _count(share: float) -> str:
    """0 or 100 only for a fraction of exactly 0 or 1."""
    if share in (0, 1) or 0 < round(share * 100) < 100:
        return f"{round(share * 100)}"
    return "more than 99" if share > 0.5 else "fewer than 1"


def comparison_result(result: RunResult) -> str | None:
    """Return a sentence that compares the model with the order-blind baseline, or why there is none."""
    if (baseline := result.baseline) is None:
        reason = result.no_baseline
        return None if reason is None else f"It was not compared with {IGNORES_ORDER}: {reason}."
    if not baseline.comparisons:
        return None
    first, *others = baseline.comparisons
    other = f"{IGNORES_ORDER} ({baseline.kind})"
    metric = first.title
    if first.too_few_groups:
        return (
            f"It is not judged against {other}: a class lies in one group, or nearly so ({metric} {first.model:.3f} "
            f"against {first.baseline:.3f})."
        )
    limits = interval_text((first.low, first.high))
    if first.is_better:
        return f"It beats {other} by {first.difference:.3f} {metric} ({limits})."
    if first.is_worse:
        limits = interval_text((-first.high, -first.low))
        return f"It is worse than {other}, by {-first.difference:.3f} {metric} ({limits})."
    unclear = f"It is not shown to beat {other}: its {metric} differs by {SIGNED(first.difference)} ({limits})"
    if first.is_too_easy and not any(entry.is_better for entry in others):
        return f"{unclear}, as {result.split} is too small or too easy to tell them apart."
    return f"{unclear}."
