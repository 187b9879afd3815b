"""Thresholds that the out-of-fold scores set, at which the bundle judges new rows: real trainings."""

import os

import numpy as np
import pytest
from support.card_orders import QUICK, write_card_orders

import seqclf
from seqclf.bundle.scoring import predict_labelled
from seqclf.data.builtin import transactions
from seqclf.evaluation.choose_decision import margin_of
from seqclf.evaluation.score_files import read_run_scores
from seqclf.evaluation.thresholds import AVERAGE, SURE, rank_of

SEEDS = int(os.environ.get("SOAK_SEEDS", "20"))
ROWS, NEW_ROWS = {20: 500, 60: 1500, 200: 2000}, 5000  # ROWS: dict positive rows → rows
FIELDS = "gap: {kind: time, column: time}, merchant: category, amount: number, channel: category, country: category"
CARDS = ["data.group_by=card", "data.order_by=time", f"data.fields={{{FIELDS}}}"]
FOLDS = ["data.split.by=fold", "data.split.folds=5", "data.split.fold=all", "data.positive='yes'", "baseline=false"]


@pytest.mark.soak
@pytest.mark.parametrize("positives", ROWS)
@pytest.mark.parametrize("data", ["orders", "transactions"])
def test_the_bundle_finds_at_least_what_the_ranks_of_the_out_of_fold_scores_say(tmp_path, data, positives):
    found, share, rows = [], positives / ROWS[positives], {"train": ROWS[positives], "test": NEW_ROWS}
    for seed in range(SEEDS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        if data == "transactions":
            transactions.write(folder, rows, 12, share, seed)
        else:
            [write_card_orders(folder / f"{split}.parquet", rows[split], seed, share) for split in rows]
        own = CARDS if data == "transactions" else ["data.id=holder"]
        settings = [*QUICK, *FOLDS, *own, f"data.cache_dir={folder / 'cache'}", f"seed={seed}"]
        run = seqclf.fit(str(folder / "train.parquet"), label="fraud", overrides=settings, folder=folder / "run")
        source = run.classifier.table_source(str(folder / "test.parquet"))
        parts = [predict_labelled(run.classifier, source, "fraud", None).outputs]
        parts += [read_run_scores(folder / "run/scores")[-1].splits["test"]]
        (new, is_fraud), (scores, labels) = ((margin_of(part.logits, 1), part.labels == 1) for part in parts)
        ranked, count = -np.sort(-scores[labels]), int(labels.sum())
        average, sure = (rank_of("min_recall", each, 0.8, count, 0.95) or count for each in (AVERAGE, SURE))
        recalls = [(new[is_fraud] >= ranked[rank - 1]).mean() for rank in (average, sure)]
        alerts = [(part >= ranked[average - 1]).mean() for part in (new, scores)]
        found.append([*recalls, alerts[0] / alerts[1], average / (count + 1)])
    print(f"{data}, {positives}: recall, recall of sure, alerts, expected recall\n{np.round(found, 3)}")
    recall, surely, ratio, expected = np.array(found).T
    # The bundle has read more rows than the models of the folds, so it may find more than the rank says, at few alerts.
    assert recall.mean() >= expected.mean() - max(2 * recall.std(ddof=1) / SEEDS**0.5, 0.03)
    assert np.median(ratio) <= 1.3 and (surely < 0.8).sum() <= max(1, 0.15 * SEEDS)
