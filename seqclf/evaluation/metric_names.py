"""Names of metrics in everything that people read. Files keep the short keys: `recall` is the macro mean there."""

from __future__ import annotations

MACRO_METRICS = {"recall": "recall", "precision": "precision", "f1": "F1"}  # means over classes, unless of one label
OTHER_METRICS = {
    "auroc": "AUROC",
    "mcc": "Matthews' correlation",
    "ece": "calibration error",
    "recall_at_equal_alerts": "recall at equal alerts",
}


def metric_title(name: str, label: str | None = None) -> str:
    """Return the name of a metric for people. `label`: the class that it is about, None for a mean over classes.

    >>> metric_title("recall"), metric_title("recall", "fraud"), metric_title("f1"), metric_title("average_precision")
    ('macro recall', 'recall of fraud', 'macro F1', 'average precision')
    """
    if name in MACRO_METRICS:
        return f"macro {MACRO_METRICS[name]}" if label is None else f"{MACRO_METRICS[name]} of {label}"
    return OTHER_METRICS.get(name, name.replace("_", " "))
