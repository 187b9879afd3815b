"""Save a view of a Weights & Biases project that leads with the verdict: scores beside the baseline, curves, report.

    pip install wandb-workspaces
    python scripts/tracking/workspace.py TEAM PROJECT [POSITIVE_LABEL]

It needs an API key, and prints the address of the view.
"""

from __future__ import annotations

import argparse

import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws


def build_workspace(entity: str, project: str, positive: str | None = None) -> ws.Workspace:
    """Return the view. `positive`: the label that matters, for its recall and its curves."""
    return ws.Workspace(
        entity=entity,
        project=project,
        name="seqclf",
        sections=[
            ws.Section(name="Verdict", panels=_verdict(positive), is_open=True),
            ws.Section(name="Report", panels=[wr.MediaBrowser(media_keys=["report"], num_columns=1)], is_open=True),
            ws.Section(name="Training", panels=_training(positive), is_open=True),
            ws.Section(name="Test rows", panels=_test_rows(positive)),
            ws.Section(name="Speed", panels=[_curve(f"system/{name}") for name in ("tokens_per_s", "memory_mb")]),
        ],
    )


def _verdict(positive: str | None) -> list[wr.Panel]:
    scores = ["macro_recall", "accuracy", *_of_positive(positive)]
    names = [name for score in scores for name in (f"test/{score}", f"baseline/{score}")]
    return [
        wr.BarPlot(title=f"{left} and the order-blind baseline", metrics=[left, right], orientation="h")
        for left, right in zip(names[::2], names[1::2], strict=True)
    ]


def _of_positive(positive: str | None) -> list[str]:
    return [] if positive is None else [f"recall_of_{positive}", "average_precision"]


def _training(positive: str | None) -> list[wr.Panel]:
    scores = ["loss", "macro_recall", "accuracy"]
    by_epoch = [wr.LinePlot(title=name, x="epoch", y=[f"train/{name}", f"validation/{name}"]) for name in scores]
    by_epoch += [_curve(f"validation/{name}") for name in _of_positive(positive)]
    by_step = ("train/step_loss", "train/gradient_norm", "lr")
    return [*by_epoch, *(wr.LinePlot(title=name, x="trainer/global_step", y=[name]) for name in by_step)]


def _curve(name: str) -> wr.LinePlot:
    return wr.LinePlot(title=name, x="epoch", y=[name])


def _test_rows(positive: str | None) -> list[wr.Panel]:
    if positive is None:
        return []
    recall = f"recall of {positive}"
    return [
        _line("test/precision_recall_table", recall, "precision"),
        _line("test/roc_table", "false alert rate", recall),
    ]


def _line(table: str, x: str, y: str) -> wr.CustomChart:
    query = {"summaryTable": {"tableKey": table}}
    return wr.CustomChart(query=query, chart_name="wandb/line/v0", chart_fields={"x": x, "y": y})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("entity")
    parser.add_argument("project")
    parser.add_argument("positive", nargs="?")
    arguments = parser.parse_args()
    print(build_workspace(arguments.entity, arguments.project, arguments.positive).save().url)


if __name__ == "__main__":
    main()
