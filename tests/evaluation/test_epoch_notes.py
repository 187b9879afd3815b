"""What is said of an epoch."""

import numpy as np

from seqclf.evaluation.epoch_notes import epoch_note
from seqclf.evaluation.metrics import confusion_metrics

CLASSES = ["no", "yes"]


def epoch(recall, train=0.5, validation=0.5):
    return {"validation/recall": recall, "train/loss": train, "validation/loss": validation}


def said(rows, confusion=((90, 10), (10, 90))):
    """Of the last of these epochs."""
    counts = np.array(confusion)
    found = confusion_metrics(counts, CLASSES)
    return epoch_note(rows[-1], rows[:-1], found, CLASSES, "yes", "recall")


def test_the_best_so_far_and_how_long_ago_it_was():
    assert said([epoch(0.5)]) == "first epoch"
    assert said([epoch(0.5), epoch(0.6)]) == "best recall so far"
    assert said([epoch(0.6), epoch(0.6)]) == "recall no better for 1 epoch"
    assert said([epoch(0.5), epoch(0.6), epoch(0.4), epoch(0.6)]) == "recall no better for 2 epochs"


def test_what_is_monitored_is_what_is_said_to_be_best():
    found = confusion_metrics(np.array(((90, 10), (10, 90))), CLASSES)
    rows = [
        {**epoch(0.5, validation=loss), "validation/average_precision": rank} for loss, rank in ((0.4, 0.7), (0.3, 0.6))
    ]
    told = {
        name: epoch_note(rows[1], rows[:1], found, CLASSES, "yes", name)
        for name in ("loss", "average_precision", "recall")
    }
    assert told["loss"] == "best loss so far"
    assert told["average_precision"] == "average precision no better for 1 epoch"
    assert told["recall"] == "recall no better for 1 epoch"
    without = {key: value for key, value in rows[1].items() if key != "validation/average_precision"}
    assert "not defined" in epoch_note(without, rows[:1], found, CLASSES, "yes", "average_precision")


def test_learning_by_heart_is_told_from_noise():
    rising = [epoch(0.9, 0.5 - k / 10, 0.5 + k / 10) for k in range(4)]
    assert "overfitting: validation loss rises" in said(rising)
    assert "overfitting" not in said([*rising[:2], epoch(0.9, 0.3, 0.4), rising[3]])
    assert "overfitting" not in said(rising[:3])


def test_an_alarm_is_said_before_anything_else():
    assert said([epoch(0.5), epoch(0.6)], ((190, 0), (10, 0))) == "yes is never predicted: all 10 such rows are missed"


def test_an_epoch_without_validation_says_so():
    assert epoch_note({"train/loss": 0.5}, [], None, CLASSES, "yes", "recall") == "not validated"


def test_epochs_that_were_not_validated_are_no_past():
    assert said([{"train/loss": 0.5}, epoch(0.5)]) == "first epoch"
    assert said([epoch(0.5), {"train/loss": 0.5}, epoch(0.6)]) == "best recall so far"
