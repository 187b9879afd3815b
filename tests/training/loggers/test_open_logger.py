"""Choice of a logger, packages that are missing, and TensorBoard."""

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from seqclf.errors import InputError
from seqclf.training.loggers import run_logger
from seqclf.training.loggers.run_logger import open_logger


@pytest.mark.parametrize("name", ["csv", "none"])
def test_no_logger_is_opened_for_metrics_csv_alone(name, tmp_path):
    assert open_logger({"name": name}, tmp_path, {}) is None


@pytest.mark.parametrize("name", ["mlflow", "tensorboard"])
def test_a_logger_that_is_not_installed_names_the_extra(name, settings, tmp_path, monkeypatch):
    monkeypatch.setattr(run_logger, "find_spec", lambda module: None)
    with pytest.raises(InputError, match=rf'^logger={name}: not installed; pip install "seqclf\[{name}\]"$'):
        open_logger(settings(f"logger={name}"), tmp_path, {})


def test_tensorboard_holds_curves_and_final_scores(finished):
    logger = open_logger({"name": "tensorboard"}, finished.folder, {})
    logger.curves.log_metrics({"validation/recall": 0.5, "validation/recall/a/b": 0.5, "train/gradient_norm": 2.0}, 7)
    logger.log_result(finished)
    logger.close(failed=False)
    events = EventAccumulator(str(finished.folder / "tensorboard")).Reload()
    (point,) = events.Scalars("validation/macro_recall")
    assert (point.step, point.value) == (7, 0.5) and events.Scalars("validation/recall_of_a/b")
    (final,) = events.Scalars("final/validation/macro_recall")
    assert final.value == pytest.approx(finished.result.splits["validation"].recall)
    assert events.Scalars("train/gradient_norm") and events.Scalars("test/recall_of_yes")
