"""The module and the DataModule under a plain Lightning Trainer."""

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.config.hydra_config import compose_config
from seqclf.errors import InputError
from seqclf.evaluation.calibration import softmax
from seqclf.evaluation.metrics import classification_metrics
from seqclf.runs.row_outputs import predict_outputs
from seqclf.training.check_targets import resolve_for_data
from seqclf.training.task import SequenceTask, load_task

from .conftest import DATASET, QUIET, SILENT

pytestmark = QUIET

SMALL = {"max_tokens": 40, "max_sequences": 4, "pool_batches": 2}


class RecordRows(pl.Callback):
    """Records the rows of each epoch and the epochs that were validated."""

    def __init__(self):
        self.rows, self.validated = {}, []

    def on_train_batch_start(self, trainer, task, batch, batch_idx):
        self.rows.setdefault(trainer.current_epoch, []).append(batch.ids.tolist())

    def on_validation_end(self, trainer, task):
        if not trainer.sanity_checking:
            self.validated.append(trainer.current_epoch)


@pytest.fixture
def trainer(tmp_path):
    """`trainer(max_epochs=3)` returns a Trainer with defaults, silent for tests."""

    def make(**settings):
        quiet = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu", "logger": False}
        return pl.Trainer(default_root_dir=tmp_path, **{**quiet, **settings})

    return make


@pytest.fixture
def data(splits, data_module, random_split):
    return data_module({**splits, "test": random_split(23, 5)}, **SMALL)


def test_every_epoch_reads_every_row_and_is_validated(task, trainer, data):
    recorded = RecordRows()
    trainer(max_epochs=4, callbacks=[recorded]).fit(task(), datamodule=data)
    assert recorded.validated == [0, 1, 2, 3]
    for batches in recorded.rows.values():
        assert sorted(row for rows in batches for row in rows) == list(range(60))
    assert len({len(batches) for batches in recorded.rows.values()}) > 1, "epochs of unequal numbers of batches"


def test_overfitting_repeats_the_same_batches(task, trainer, data):
    recorded = RecordRows()
    trainer(max_epochs=3, overfit_batches=2, callbacks=[recorded]).fit(task(), datamodule=data)
    assert len(recorded.rows) == 3 and len(recorded.rows[0]) == 2
    assert recorded.rows[0] == recorded.rows[1] == recorded.rows[2] and recorded.validated == [0, 1, 2]


@pytest.mark.parametrize(
    ("settings", "validated", "batches"),
    [
        ({"limit_train_batches": 3, "max_epochs": 2}, [0, 1], 3),
        ({"fast_dev_run": True}, [0], 1),
        ({"val_check_interval": 0.5, "max_epochs": 2}, [0, 0, 1, 1], None),
        ({"check_val_every_n_epoch": 2, "max_epochs": 2}, [1], None),
        ({"limit_val_batches": 0, "max_epochs": 1}, [], None),
    ],
    ids=str,
)
def test_limits_of_the_trainer_are_respected(task, trainer, data, settings, validated, batches):
    recorded = RecordRows()
    trainer(callbacks=[recorded], **settings).fit(task(), datamodule=data)
    assert recorded.validated == validated
    assert batches is None or [len(epoch) for epoch in recorded.rows.values()] == [batches] * len(recorded.rows)


@pytest.mark.parametrize("stage", ["validate", "test"])
def test_a_stage_returns_the_named_scores_of_its_split(task, trainer, data, stage):
    split = {"validate": "validation", "test": "test"}[stage]
    module = task()
    (returned,) = getattr(trainer(), stage)(module, datamodule=data, verbose=False)
    labels, logits = data.splits[split].labels, predict_outputs(module, data.evaluation_loader(split))["logits"]
    expected = classification_metrics(labels, softmax(logits), module.classes, None)
    for name in ("loss", "accuracy", "recall", "precision", "f1", "average_precision", "auroc"):
        assert returned[f"{split}/{name}"] == pytest.approx(getattr(expected, name), rel=1e-5), name
    for label, recall in expected.recall_by_class.items():
        assert returned[f"{split}/recall/{label}"] == pytest.approx(recall, rel=1e-5)


def test_predictions_hold_every_row_once(task, trainer, data):
    module = task()
    predictions = trainer().predict(module, datamodule=data)
    ids = torch.cat([batch.ids for batch in predictions]).numpy()
    assert sorted(ids) == list(range(23)), "the rows of test, the split to predict where none is called so"
    logits = predict_outputs(module, data.evaluation_loader("test"))["logits"]
    np.testing.assert_allclose(torch.cat([batch.logits for batch in predictions]).numpy(), logits[ids], atol=1e-6)
    probabilities = torch.cat([batch.probabilities for batch in predictions]).numpy()
    np.testing.assert_allclose(probabilities, softmax(logits)[ids], atol=1e-6)


def test_the_split_called_predict_is_predicted(task, trainer, data, random_split):
    data.splits = {**data.splits, "predict": random_split(9, 6)}
    predictions = trainer().predict(task(), datamodule=data)
    assert sorted(torch.cat([batch.ids for batch in predictions]).tolist()) == list(range(9))


def test_a_run_without_other_splits_trains_and_names_what_it_misses(task, trainer, splits, data_module):
    recorded, module = RecordRows(), task()
    run, data = trainer(max_epochs=1, callbacks=[recorded]), data_module({"train": splits["train"]})
    run.fit(module, datamodule=data)
    assert recorded.validated == [] and len(recorded.rows) == 1
    with pytest.raises(InputError, match=r"there is no test split, only train; add it"):
        run.test(module, datamodule=data)


@pytest.mark.parametrize("monitor", ["validation/recall/odd", "train/loss"])
def test_callbacks_monitor_scores_by_name(task, trainer, data, tmp_path, monitor):
    keep = ModelCheckpoint(tmp_path, "best", monitor=monitor, mode="max")
    stop = EarlyStopping(monitor, mode="max", patience=2)
    run = trainer(max_epochs=20, callbacks=[stop, keep])
    run.fit(task(optimizer={"lr": 0.0}, model=SILENT), datamodule=data)
    assert keep.best_model_score == pytest.approx(run.callback_metrics[monitor].item(), abs=1e-6)
    assert run.current_epoch < 20


def test_constructors_take_the_defaults_of_conf(splits, tmp_path, trainer):
    default = compose_config("train").plain()
    module = SequenceTask(DATASET)
    data = SequenceDataModule(splits, max_tokens=64)
    model, _ = resolve_for_data(default["model"], DATASET)
    assert all(model[name] == value or value == "auto" for name, value in default["model"].items())
    assert {**module.hparams} == {
        "dataset": DATASET,
        "model": model,
        **{name: default[name] for name in ("loss", "optimizer", "metrics", "monitor", "seed")},
        "frozen": [],
    }
    assert data.batching.max_tokens == 64 and data.seed == default["seed"]
    assert data.batching.model_dump() == {**default["batching"], "max_tokens": 64}
    run = trainer(max_steps=2)
    run.fit(module, datamodule=data)
    run.save_checkpoint(tmp_path / "own.ckpt")
    loaded = load_task(tmp_path / "own.ckpt")
    assert {**loaded.hparams} == {**module.hparams}, "a checkpoint holds values, not the places of defaults"
    assert all(torch.equal(loaded.state_dict()[name], value) for name, value in module.state_dict().items())
