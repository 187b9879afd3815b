"""Names of scores: one meaning per word, and each score once."""

import numpy as np
import pytest

from seqclf.evaluation.metrics import MAIN_METRICS, classification_metrics
from seqclf.evaluation.ranking import RANKING_METRICS
from seqclf.evaluation.result import MAX_CLASSES, all_scores
from seqclf.training.loggers.run_logger import shown_name


def test_recall_says_whether_it_is_of_all_classes_or_of_one():
    assert shown_name("train/f1") == "train/macro_f1"
    assert shown_name("validation/recall/a/b") == "validation/recall_of_a/b"
    unchanged = ("validation/loss", "validation/auroc", "train/step_loss", "lr", "epoch", "mine/recall", "recall")
    assert [shown_name(name) for name in unchanged] == list(unchanged)


def test_curves_and_final_scores_have_the_same_names():
    probabilities = np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.7, 0.3]])
    scores = all_scores(classification_metrics(np.array([0, 0, 1, 1]), probabilities, ["no", "yes"], "yes"))
    lightning = [*MAIN_METRICS, *RANKING_METRICS, "recall/no", "recall/yes"]
    assert {shown_name(f"validation/{name}") for name in lightning} <= {f"validation/{name}" for name in scores}
    assert scores["macro_recall"] == pytest.approx((scores["recall_of_no"] + scores["recall_of_yes"]) / 2)
    assert scores["precision_of_yes"] == 0.5 and "precision_of_no" not in scores


def test_undefined_scores_are_left_out():
    one_class = classification_metrics(np.array([0, 0]), np.array([[0.9, 0.1], [0.8, 0.2]]), ["no", "yes"], "yes")
    assert not {"recall_of_yes", "average_precision", "auroc"} & set(all_scores(one_class))


def test_classes_beyond_fifty_have_no_score_each():
    classes = [str(number) for number in range(MAX_CLASSES + 1)]
    probabilities = np.eye(len(classes))
    scores = all_scores(classification_metrics(np.arange(len(classes)), probabilities, classes, None))
    assert scores["average_precision"] == 1 and not [name for name in scores if "_of_" in name]
