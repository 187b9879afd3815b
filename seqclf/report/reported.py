"""Input of the description of a result: the result, and what else is known about its model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqclf.bundle.explanation import explain_shown
from seqclf.bundle.running import FirstAlerts, first_alerts
from seqclf.bundle.runtime import Classifier
from seqclf.bundle.scoring import MAX_MISTAKES
from seqclf.config.build import Trust, require_trusted
from seqclf.data.encoding.token_table import DescribedRow, describe_row
from seqclf.data.prepare_data import prepare
from seqclf.data.ragged import row_inputs
from seqclf.data.splitting.policies import SPLITS
from seqclf.data.storage.dataset import Dataset, data_title
from seqclf.data.storage.store import sample_split
from seqclf.documents.terminal import show_note
from seqclf.errors import InputError
from seqclf.evaluation.holdout import hold_out
from seqclf.evaluation.result import Facts, ModelResult, RunResult
from seqclf.evaluation.scores import ScoredRows
from seqclf.evaluation.slices import Slice
from seqclf.evaluation.split_result import SplitResult
from seqclf.settings.base import parse_options
from seqclf.settings.data_settings import DataOptions
from seqclf.settings.decision_settings import DecisionOptions
from seqclf.system import progress
from seqclf.system.version import package_versions

RUNNING_TOKENS = 200_000  # tokens of the rows that are read again after each token
HOW = {  # value of data.split.by → description of the split
    "random": "at random",
    "distinct": "equal sequences together",
    "group": "groups of {group} together",
    "time": "the latest by {column}",
    "fold": "at random",
}


class Mistake(NamedTuple):
    """A misclassified row.

    `probability`: predicted probability of the true label. `length`: number of tokens before truncation. `row`: the
    texts and tokens of the row.
    """

    label: str
    predicted: str
    probability: float
    length: int
    row: DescribedRow


@dataclass(frozen=True, kw_only=True)
class Reported:
    """Everything that a page, the terminal or a model card may show.

    `result`: with its scored rows for a page. `facts`: epochs, warnings and config of a run. `mistakes`: the worst
    misclassified rows. `first_alerts`: of a bundle with `step.onnx`. `created`: time of the description. `sources`:
    dict split → source of its rows. `bundle`: folder of the evaluated bundle (an exported model). `periods`: slices of
    the split by time. `against`: another model on the same rows. `manifest`: that of the exported model, for its card.
    """

    title: str = ""
    result: RunResult
    facts: Facts = field(default_factory=Facts)
    mistakes: Sequence[Mistake] = ()
    first_alerts: FirstAlerts | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    created: datetime | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    bundle: str | None = None
    periods: Sequence[Slice] = ()
    against: ModelResult | None = None
    manifest: Mapping[str, Any] = field(default_factory=dict)

    @property
    def split(self) -> str:
        """Name of the split whose metrics decide the verdict."""
        return self.result.split

    @property
    def metrics(self) -> SplitResult:
        """Metrics on the split that decides the verdict."""
        return self.result.metrics

    @property
    def rows(self) -> ScoredRows:
        """Rows of the split that decides the verdict."""
        return self.result.judged

    @property
    def probabilities(self) -> np.ndarray:
        """Probabilities (N, C) of these rows."""
        return self.rows.probabilities(self.result.decision)


def worst_mistakes(result: RunResult, described: Callable[[int], DescribedRow]) -> list[Mistake]:
    """Return at most `MAX_MISTAKES` misclassified rows of the last split.

    The row whose true label has the lowest predicted probability comes first. `described`: function that describes the
    row with a given number, which is called only for the returned rows.
    """
    rows, classes = result.judged, result.classes
    labels, predicted = rows.labels, rows.predicted(result.decision)
    wrong = np.flatnonzero(labels != predicted)
    of_label = rows.probabilities(result.decision)[wrong, labels[wrong]]
    order = np.argsort(of_label, kind="stable")[:MAX_MISTAKES]
    return [
        Mistake(classes[labels[row]], classes[predicted[row]], probability, int(rows.lengths[row]), described(row))
        for row, probability in zip(wrong[order].tolist(), of_label[order].tolist(), strict=True)
    ]


def of_run(run: Path, dataset: Dataset | None, result: RunResult, facts: Facts) -> Reported:
    """Return what is known about a run. `dataset`: None if its data is gone: the page then shows no rows.

    The worst errors show the contributions of their tokens if the run has a bundle.
    """
    data, mistakes, alerts = facts.settings["data"], list[Mistake](), None
    if dataset is not None and not _is_data_of(dataset, result):
        show_note("the report shows no rows: the data is not that of the run any more")
    elif dataset is not None:
        with progress.stage("explaining the worst errors"):
            mistakes, alerts = _read_again(dataset, result, run / "bundle" if (run / "bundle").is_dir() else None)
    return Reported(
        title=data_title(data["name"], data.get("train")),
        result=result,
        facts=facts,
        mistakes=mistakes,
        first_alerts=alerts,
        versions=package_versions(),
        created=datetime.now().astimezone(),
        sources=split_sources(data),
    )


def _is_data_of(dataset: Dataset, result: RunResult) -> bool:
    """True if the rows of the last split are those that were scored."""
    rows, scored = dataset.splits.get(result.split), result.judged
    if rows is None or scored.ids is None or not rows.ids.equals(scored.ids):
        return False
    return bool((rows.labels == scored.labels).all())


def _read_again(dataset: Dataset, result: RunResult, bundle: Path | None) -> tuple[list[Mistake], FirstAlerts | None]:
    try:
        classifier = None if bundle is None else Classifier(bundle, device="cpu")
    except InputError as error:  # such as a bundle of another version, of which the scores are known
        show_note(f"the worst errors are not explained: {error}")
        classifier = None
    alerts = None
    if classifier is not None:
        classifier.decision = result.decision  # `evaluate run=` may choose another
        some = sample_split(dataset.splits[result.split], RUNNING_TOKENS, 0)
        alerts = first_alerts(classifier, some.sequences, some.labels)
    split, predicted = dataset.splits[result.split], result.judged.predicted(result.decision)

    def described(row: int) -> DescribedRow:
        tokens = row_inputs(split.sequences, row)
        texts = {} if split.texts is None else split.texts.of_row(row)
        found = describe_row(dataset.encoders, str(split.ids[row]), tokens, texts)
        return found if classifier is None else explain_shown(classifier, found, tokens, int(predicted[row]))

    return worst_mistakes(result, described), alerts


def split_sources(data: Mapping[str, Any]) -> dict[str, str]:
    """Return dict split → description of the source of its rows, and the paths of `labels` and `exclude`.

    >>> options = {"train": "cards.parquet", "validation": None, "test": "new.parquet"}
    >>> split_sources({**options, "split": {"by": "random", "validation": 0.2, "test": 0}})
    {'train': 'cards.parquet', 'validation': '20% of train, at random', 'test': 'new.parquet'}
    """
    if data.get("generator"):
        return dict.fromkeys(SPLITS, f"generated by {data['generator']['_target_']}")
    sources = {split: data[split] for split in SPLITS if data[split] is not None}
    split = data["split"]
    how = HOW[split["by"]].format(column=split.get("column"), group=data.get("group") or split.get("column"))
    for name in SPLITS[1:]:
        if name in sources:
            continue
        if name == "test" and split["by"] == "fold":
            sources[name] = f"fold {split['fold']} of {split['folds']} of train"
        elif split[name]:
            sources[name] = f"{100 * split[name]:g}% of train, {how}"
    others = {name: data[name] for name in ("labels", "exclude") if data.get(name)}
    return {name: sources[name] for name in SPLITS if name in sources} | others


def run_data(settings: Mapping[str, Any], trust: Trust) -> DataOptions:
    """Return the data options in the config.yaml of a run, which may come from somebody else.

    `trust`: packages other than seqclf whose code the options may run. Raises InputError for code of another package.
    """
    require_trusted(settings["data"], "config.yaml: data", ("seqclf",), trust)
    return DataOptions.build(**settings["data"])


def run_dataset(settings: Mapping[str, Any], trust: Trust) -> Dataset | None:
    """Return the data of a run, None with a note if its files are gone or its code is not trusted."""
    try:
        data = run_data(settings, trust)
        return hold_out(prepare(data), parse_options(DecisionOptions, settings["decision"], "decision"))
    except InputError as error:
        show_note(f"the report shows no rows: {error}")
        return None
