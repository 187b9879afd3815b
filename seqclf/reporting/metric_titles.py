"""Names of metrics in tables and figures, so that each word has one meaning.

`recall` without more is the mean over classes in JSON and CSV files. Readers see `macro recall`, or `recall of LABEL`.
"""

from __future__ import annotations

from seqclf.reporting.formatting import shortened

TITLES = {
    "recall": "macro recall",
    "precision": "macro precision",
    "f1": "macro F1",
    "auroc": "AUROC",
    "ece": "calibration error",
}


def metric_title(name: str, label: str | None = None) -> str:
    """Return the name of a metric for readers. `label`: the metric is of this class alone.

    >>> metric_title("recall"), metric_title("recall", "fraud"), metric_title("average_precision", "fraud")
    ('macro recall', 'recall of fraud', 'average precision')
    """
    if label is not None and name in ("recall", "precision", "f1"):
        return f"{name.replace('f1', 'F1')} of {shortened(label, 20)}"
    return TITLES.get(name, name.replace("_", " "))
