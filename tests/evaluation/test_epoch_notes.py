"""Notes on an epoch in metrics.csv: best so far, overfitting, and alarms."""

import numpy as np

from seqclf.evaluation.alarms import find_alarms
from seqclf.evaluation.metrics import confusion_metrics, epoch_value
from seqclf.training.epoch_record import epoch_note

CLASSES = ["no", "yes"]
HEALTHY = ((90, 10), (10, 90))


def epoch(recall, train_loss=0.5, validation_loss=0.5):
    return {"validation/recall": recall, "train/loss": train_loss, "validation/loss": validation_loss}


def note_on_last(rows, confusion=HEALTHY):
    alarms = find_alarms(confusion_metrics(np.array(confusion), CLASSES), CLASSES, "yes")
    return epoch_note(rows[-1], rows[:-1], alarms[0].text if alarms else None, "recall")


def test_the_note_says_how_long_ago_the_best_epoch_was():
    assert note_on_last([epoch(0.5)]) == "first epoch"
    assert note_on_last([epoch(0.5), epoch(0.6)]) == "best macro recall so far"
    assert note_on_last([epoch(0.6), epoch(0.6)]) == "macro recall no better for 1 epoch"
    assert note_on_last([epoch(0.5), epoch(0.6), epoch(0.4), epoch(0.6)]) == "macro recall no better for 2 epochs"


def test_of_two_equal_epochs_the_exported_one_is_not_said_to_be_no_better():
    """The lower loss chooses among epochs of equal recall, so the later one is exported here."""
    first, second = epoch(0.6, validation_loss=0.5), epoch(0.6, validation_loss=0.4)
    assert epoch_value({"recall": 0.6, "loss": 0.4}, "recall") > epoch_value({"recall": 0.6, "loss": 0.5}, "recall")
    assert note_on_last([epoch(0.5), first, second]) == "as good as the best macro recall, at a lower loss"
    assert note_on_last([epoch(0.5), second, first]) == "macro recall no better for 1 epoch"
    assert note_on_last([epoch(0.5), first, second, first]) == "macro recall no better for 2 epochs"


def test_the_best_epoch_is_chosen_by_the_monitored_metric():
    rows = [
        {**epoch(0.5, validation_loss=loss), "validation/average_precision": average_precision}
        for loss, average_precision in ((0.4, 0.7), (0.3, 0.6))
    ]
    notes = {
        monitor: epoch_note(rows[1], rows[:1], None, monitor) for monitor in ("loss", "average_precision", "recall")
    }
    assert notes["loss"] == "best loss so far"
    assert notes["average_precision"] == "average precision no better for 1 epoch"
    assert notes["recall"] == "as good as the best macro recall, at a lower loss"
    undefined = {key: value for key, value in rows[1].items() if key != "validation/average_precision"}
    assert "not defined" in epoch_note(undefined, rows[:1], None, "average_precision")


def test_overfitting_needs_a_steady_trend_in_both_losses():
    diverging = [epoch(0.9, 0.5 - k / 10, 0.5 + k / 10) for k in range(4)]
    assert "overfitting: validation loss rises" in note_on_last(diverging)
    assert "overfitting" not in note_on_last([*diverging[:2], epoch(0.9, 0.3, 0.4), diverging[3]])
    assert "overfitting" not in note_on_last(diverging[:3])


def test_an_alarm_takes_precedence_over_every_other_note():
    note = note_on_last([epoch(0.5), epoch(0.6)], ((190, 0), (10, 0)))
    assert note == "yes is never predicted: all 10 such rows are missed"


def test_epochs_without_validation_are_noted_as_such_and_ignored_in_comparisons():
    assert epoch_note({"train/loss": 0.5}, [], None, "recall") == "not validated"
    assert note_on_last([{"train/loss": 0.5}, epoch(0.5)]) == "first epoch"
    assert note_on_last([epoch(0.5), {"train/loss": 0.5}, epoch(0.6)]) == "best macro recall so far"
    assert note_on_last([epoch(0.6), {"train/loss": 0.5}, epoch(0.5)]) == "macro recall no better for 2 epochs"


def test_the_note_tells_the_best_mean_from_the_best_value():
    recalls = [0.9, 0.9, 0.9, 0.2, 0.2, 0.95, 0.94, 0.93]
    rows = [epoch(recall) for recall in recalls]
    notes = [epoch_note(rows[k], rows[:k], None, "recall", window=3) for k in range(1, len(rows))]
    assert notes[4] == "best macro recall so far, but not in the mean of 3 validations"
    assert notes[6] == "best macro recall so far in the mean of 3 validations"
    assert notes[5] == "in the mean of 3 validations, macro recall no better for 6 epochs"
