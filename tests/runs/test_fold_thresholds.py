"""Thresholds that the out-of-fold scores set, at which the bundle judges new rows: real trainings."""

import os

import numpy as np
import pytest
from support.card_orders import QUICK, write_card_orders

import seqclf
from seqclf.bundle.scoring import predict_labelled
from seqclf.data.builtin import transactions
from seqclf.evaluation.decisions.choose_decision import margin_of
from seqclf.evaluation.decisions.thresholds import recall_holds
from seqclf.evaluation.scores import read_contenders

SEEDS = int(os.environ.get("SOAK_SEEDS", "20"))
ROWS, NEW_ROWS = {20: 500, 60: 1500, 200: 2000}, 5000  # ROWS: dict positive rows → rows
FIELDS = "gap: {kind: time, column: time}, merchant: category, amount: number, channel: category, country: category"
OF_DATA = {
    "orders": ["data.id=holder"],
    "transactions": ["data.group_by=card", "data.order_by=time", f"data.fields={{{FIELDS}}}"],
}
FOLDS = ["data.split.by=fold", "data.split.folds=5", "data.split.fold=all", "data.positive='yes'", "baseline=false"]


def margins(folder, data, positives, seed):
    """Out-of-fold margins of the rows and margins of the bundle for new rows, each with a mask of positive rows."""
    paths, rows, share = (
        [folder / "train.parquet", folder / "test.parquet"],
        ROWS[positives],
        positives / ROWS[positives],
    )
    if data == "transactions":
        transactions.write(folder, {"train": rows, "test": NEW_ROWS}, 12, share, seed)
    else:
        [write_card_orders(path, count, seed, share) for path, count in zip(paths, (rows, NEW_ROWS), strict=True)]
    settings = [*QUICK, *OF_DATA[data], *FOLDS, f"seed={seed}", f"data.cache_dir={folder / 'cache'}"]
    run = seqclf.fit(str(paths[0]), label="fraud", overrides=settings, folder=folder / "run")
    new = predict_labelled(run.classifier, run.classifier.table_source(str(paths[1])), "fraud", None).outputs
    parts = (read_contenders(folder / "run/scores")[-1].splits["test"], new)
    return [(margin_of(part.logits.astype(float), 1), part.labels == 1) for part in parts]


@pytest.mark.soak
@pytest.mark.parametrize("positives", ROWS)
@pytest.mark.parametrize("data", OF_DATA)
def test_the_bundle_finds_at_least_what_the_ranks_of_the_out_of_fold_scores_say(tmp_path, data, positives):
    recalls, ratios, expected = [], [], []
    for seed in range(SEEDS):
        (tmp_path / str(seed)).mkdir()
        (scores, labels), (new, is_fraud) = margins(tmp_path / str(seed), data, positives, seed)
        ranked, count = -np.sort(-scores[labels]), int(labels.sum())
        average = min(int(np.ceil(0.8 * (count + 1))), count)
        sure = next((rank for rank in range(1, count) if recall_holds(rank, count, 0.8, 0.95)), count)
        recalls.append([(new[is_fraud] >= ranked[rank - 1]).mean() for rank in (average, sure)])
        ratios.append((new >= ranked[average - 1]).mean() / (scores >= ranked[average - 1]).mean())
        expected.append(average / (count + 1))
    found, surely = np.array(recalls).T
    print(f"{data}, {positives}: recall {found.round(3)}, sure {surely.round(3)}, alerts {np.round(ratios, 2)}")
    # The bundle has read more rows than the models of the folds, so it may find more than the rank says, at few alerts.
    assert found.mean() >= np.mean(expected) - max(2 * found.std(ddof=1) / SEEDS**0.5, 0.03)
    assert np.median(ratios) <= 1.3 and (surely < 0.8).sum() <= 0.15 * SEEDS
