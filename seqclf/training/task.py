"""Lightning module of a classifier: network, loss, metrics and optimizer; and its loading from a checkpoint."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn

from seqclf.batching.batches import Batch
from seqclf.config.build import Config, Trust
from seqclf.data.storage.dataset import DatasetDescription
from seqclf.data.storage.store import Split
from seqclf.errors import InputError, first_line
from seqclf.evaluation.metrics import EPOCH_METRICS
from seqclf.evaluation.ranking import RANKING_METRICS
from seqclf.models.change_network import freeze_weights
from seqclf.models.ensemble import build_classifier, networks_of
from seqclf.models.network import Loss, SequenceNetwork, WeighedLoss
from seqclf.system.state_validation import error_context, require
from seqclf.training.check_targets import resolve_task
from seqclf.training.checkpoint import DAMAGED, TENSORS, check_trusted, check_weights, read_checkpoint, write_checkpoint
from seqclf.training.epoch_metrics import EpochMetrics, EpochScores, EvaluationMetrics
from seqclf.training.losses import build_loss
from seqclf.training.optimizer import build_optimizer, elapsed_share
from seqclf.training.own_metrics import OwnMetrics
from seqclf.training.resume import ExactResume, rows_of
from seqclf.training.smoothed_monitor import MONITORED, SmoothedMonitor, window_length
from seqclf.training.training_log import MAX_LOGGED_CLASSES, StepLog, finish_epoch
from seqclf.training.weight_average import TRAINED, AveragedWeights, WeightAverage


class Prediction(NamedTuple):
    """Predictions for one batch: (B,) int64 row indices in the split, and (B, C) float32 logits and probabilities."""

    ids: Tensor
    logits: Tensor
    probabilities: Tensor


def step_seed(seed: int, rank: int, epoch: int, batch: int) -> int:
    """Return the seed of the random numbers of a training step, such as those of dropout.

    A resumed run draws the same numbers as an uninterrupted one. The ranks differ in the lowest 32 bits, because
    PyTorch's generator on a CPU reads no others.

    >>> len({step_seed(0, rank, epoch=3, batch=7) % 2**32 for rank in range(1000)})
    1000
    """
    return ((seed + 1) * 0x9E3779B1 + rank * 0x85EBCA77 + (epoch << 24) + batch) % 2**63


def _mark_as_fitted(task: SequenceTask, keys: Any) -> None:
    task.is_fitted = True


class SequenceTask(pl.LightningModule):
    """Lightning module that trains a sequence classifier.

    `dataset`: description of the dataset (`Dataset.description()`). `model`, `loss`, `optimizer`: `_target_` dicts.
    `monitor`: validation metric that chooses the best epoch, None for the last step. `frozen`: names of the weights
    that are not trained. `metrics`: `_target_` dicts of torchmetrics metrics (see `OwnMetrics`). Omitted arguments get
    the default values from conf/. All are plain values in the checkpoint, which can be loaded with `weights_only=True`,
    without Hydra and without the data. With `optimizer.average`, validations, checkpoints and the fitted model have
    averaged weights. The module works in any Trainer::

        dataset = seqclf.load_data("train.parquet", label="label")
        task = seqclf.SequenceTask(dataset.description(), model=seqclf.load_config(["model=gru"])["model"])
        pl.Trainer(max_epochs=5).fit(task, datamodule=seqclf.SequenceDataModule(dataset.splits))
    """

    def __init__(
        self,
        dataset: DatasetDescription,
        model: Config | None = None,
        loss: Config | None = None,
        optimizer: Config | None = None,
        monitor: str | None = None,
        seed: int | None = None,
        frozen: Sequence[str] | None = None,
        metrics: Sequence[Config] | None = None,
    ):
        super().__init__()
        settings, self.model_text = resolve_task(dataset, model, loss, optimizer, monitor, seed, frozen, metrics)
        self.save_hyperparameters(settings, logger=False)
        self.classes: list[str] = dataset["classes"]
        self.optimizer: Config = settings["optimizer"]
        self.seed: int = settings["seed"]
        self.trained_steps = 0  # number of optimizer steps of the checkpoint that the task was loaded from
        self.scheduled_steps: float | None = None  # steps of the learning rate schedule; None: all steps of the trainer
        self.step_loss, self.batch_shape = torch.tensor(0.0), (0, 0)  # of the last batch: mean loss, rows and tokens
        self.epoch_scores: dict[str, EpochScores] = {}  # dict split → latest scores
        self.is_fitted = False  # True: the network has read the training rows (see `SequenceNetwork.fit_to`), or
        self.register_load_state_dict_post_hook(_mark_as_fitted)  # has the weights of one that has
        self.average: WeightAverage | None = None  # of a fit with `optimizer.average` (see `AveragedWeights`)
        self.model = build_classifier(settings["model"], dataset["fields"], len(self.classes))
        freeze_weights(self.model, settings["frozen"])
        self.loss = build_loss(settings["loss"], self.classes, dataset["class_counts"])
        self.train_metrics = EpochMetrics(len(self.classes))
        positive = None if dataset["positive"] is None else self.classes.index(dataset["positive"])
        ranked = monitor in RANKING_METRICS or len(self.classes) <= MAX_LOGGED_CLASSES
        own = OwnMetrics(settings["metrics"], len(self.classes), positive) if settings["metrics"] else None
        self.evaluation_metrics = EvaluationMetrics(len(self.classes), ranked=ranked, positive=positive, own=own)
        self.monitor = SmoothedMonitor(monitor, lower_is_better=own is not None and own.lower_is_better(monitor))

    def configure_callbacks(self) -> list[Callback]:
        """Return what each fit of this task needs: exact resuming, averaged weights, the log of steps."""
        averages = [] if (decay := self.optimizer.get("average")) is None else [AveragedWeights(decay)]
        return [ExactResume(), *averages, StepLog()]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self.average is not None:  # not by the callback, as a checkpoint of weights alone must hold the means too
            checkpoint[TRAINED] = self.average.separate(checkpoint["state_dict"], "model.")

    def fit_to(self, train: Split) -> None:
        """Let the network read the training rows once (see `SequenceNetwork.fit_to`), unless it has.

        A Trainer with a `SequenceDataModule` calls this method. Call it before the first step of a loop of your own.
        """
        if not self.is_fitted:
            for network in networks_of(self.model):
                network.fit_to(rows_of(self, train))
            self.is_fitted = True

    def forward(self, batch: Batch) -> Tensor:
        """Return logits (B, C)."""
        return self.model(batch.fields, batch.lengths, batch.host_lengths)

    def logits_of(self, batch: Batch) -> Tensor:
        """Return logits (B, C) float32 for evaluation. Raises InputError if the network returns another shape."""
        self.batch_shape = len(batch.host_lengths), int(batch.host_lengths.max())
        logits, shape = self(batch), (len(batch.host_lengths), len(self.classes))
        returned = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        if returned != shape:
            where = f"model._target_={self.hparams['model']['_target_']}"
            problem = f"returns {returned} for {shape[0]} sequences of {shape[1]} classes"
            raise InputError(where, problem, f"return logits {shape}")
        return logits.float()

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        self.batch_shape = len(batch.host_lengths), int(batch.host_lengths.max())
        seed = step_seed(self.seed, self.global_rank, self.current_epoch, batch_idx)
        torch.default_generator.manual_seed(seed)  # torch.manual_seed takes 1 ms without a GPU
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        inputs = (batch.fields, batch.lengths, batch.host_lengths, batch.labels)
        logits, loss, total = self.model.training_loss(*inputs, self._loss_of(batch))
        self.step_loss = loss.detach()
        if batch.weight:  # 0 for a rank without rows at this step
            self.train_metrics.update(logits, batch.labels, loss)
        return total * batch.weight

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        logits = self.logits_of(batch)
        if batch.weight:
            self.evaluation_metrics.update(logits, batch.labels, self._loss_of(batch)(logits, batch.labels))
        if self.evaluation_metrics.own is not None:
            self.evaluation_metrics.own.update(logits, batch)

    test_step = validation_step

    def _loss_of(self, batch: Batch) -> Loss:
        return self.loss if batch.row_weights is None else WeighedLoss(self.loss, batch.row_weights)

    def predict_step(self, batch: Batch, batch_idx: int) -> Prediction:
        logits = self.logits_of(batch)
        return Prediction(torch.from_numpy(batch.ids), logits, logits.softmax(dim=-1))

    def on_train_epoch_end(self) -> None:
        finish_epoch(self, "train", self.train_metrics)

    def on_validation_epoch_end(self) -> None:
        if self.trainer.sanity_checking:
            self.evaluation_metrics.reset()
            return
        finish_epoch(self, "validation", self.evaluation_metrics)
        if self.monitor.metric is not None:
            window = window_length(self.trainer.max_epochs, self.trainer.check_val_every_n_epoch)
            value = self.monitor.add(self.epoch_scores["validation"].scores, self.global_step, window)
            self.log(MONITORED, value, logger=False)

    def on_test_epoch_end(self) -> None:
        finish_epoch(self, "test", self.evaluation_metrics)

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        members = getattr(self.model, "members", ())
        if len(members) < 2 or not gradient_clip_val or gradient_clip_algorithm == "value":
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)
        else:  # a large gradient of one member must not shrink the steps of others
            for member in members:
                nn.utils.clip_grad_norm_(member.parameters(), gradient_clip_val)

    def configure_optimizers(self) -> Any:
        # In mixed precision Lightning does not clip gradients for an optimizer that unscales them, as a fused one may.
        fused = self.trainer.precision not in ("16-mixed", "bf16-mixed")
        steps = self.trainer.estimated_stepping_batches if self.scheduled_steps is None else self.scheduled_steps
        optimizer, scheduler = self.make_optimizer(steps, fused, elapsed_share(self.trainer))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def make_optimizer(self, steps: float, fused: bool = True, elapsed: Callable[[], float] | None = None) -> Any:
        """Return the optimizer and its schedule of learning rates over `steps` (see `build_optimizer`)."""
        return build_optimizer(self.model, self.optimizer, steps, fused, elapsed)


BEFORE = "before_validation"  # key of the buffers that validation rows set, with their values while the model trained


def load_task(path: Any, trust: Trust = ()) -> SequenceTask:
    """Load a task from its checkpoint, on the CPU and in evaluation mode.

    `trust`: names of third-party packages that the model and loss of the checkpoint may use, or True for any package.
    Raises InputError if the file is not a checkpoint, or if its settings and weights do not match.
    """
    state = read_checkpoint(path)
    hyper, weights = {**state["hyper_parameters"], "metrics": []}, state["state_dict"]
    if hyper["monitor"] not in EPOCH_METRICS:  # only a training needs the code of metrics
        hyper["monitor"] = None
    check_trusted(hyper, path, trust)
    with error_context(f"checkpoint={path}", DAMAGED):
        try:
            task = SequenceTask(**hyper)
            check_weights(weights, task.state_dict())
            task.load_state_dict(weights)
        except InputError:
            raise
        except Exception as error:  # settings of another version may fail in any way
            raise InputError(None, f"its model cannot be built ({type(error).__name__}: {first_line(error)})") from None
    task.trained_steps = state["global_step"]
    return task.eval()


def save_model(path: Path, task: SequenceTask, epoch: int, before: Mapping[str, Tensor]) -> None:
    """Save a finished model. `before`: buffers of the network that validation rows set, with their values before."""
    state = {
        "pytorch-lightning_version": pl.__version__,
        "epoch": epoch,
        "global_step": task.trained_steps,
        "state_dict": {name: tensor.cpu() for name, tensor in task.state_dict().items()},
        "hyper_parameters": dict(task.hparams),
        BEFORE: {name: tensor.cpu() for name, tensor in before.items()},
    }
    content = io.BytesIO()
    torch.save(state, content)
    write_checkpoint(path, content.getbuffer())


def lacks_validation(path: Path, task: SequenceTask) -> bool:
    """Return True if a checkpoint is of a training, and validation rows set more in the finished model."""
    own = (type(part).fit_to_validation for part in networks_of(task.model))
    return BEFORE not in read_checkpoint(path) and any(hook is not SequenceNetwork.fit_to_validation for hook in own)


def set_by_validation(path: Path) -> Mapping[str, Tensor]:
    """Return the buffers of a network that validation rows set in a checkpoint, with their values before."""
    found = read_checkpoint(path).get(BEFORE, {})
    with error_context(f"checkpoint={path}", DAMAGED):
        require(found, TENSORS, BEFORE)
    return found
