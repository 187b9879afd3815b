"""The Trainer of Hugging Face transformers."""

from __future__ import annotations

import tempfile
import time
from typing import Any

import torch
import worker
from bare_torch import Classifier
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import Trainer, TrainerCallback, TrainingArguments
from worker import Epoch, EpochTrainer, Workload, serve


class Model(nn.Module):
    """The classifier with the inputs and outputs that the Trainer expects."""

    def __init__(self, packed: bool) -> None:
        super().__init__()
        self.classifier = Classifier(packed)

    def forward(self, input_ids: Tensor, lengths: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.classifier(input_ids, lengths)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Sequences(torch.utils.data.Dataset):
    def __init__(self, workload: Workload):
        self.workload = workload

    def __len__(self) -> int:
        return len(self.workload.labels)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {"input_ids": self.workload.sequences[row], "labels": int(self.workload.labels[row])}


class Clock(TrainerCallback):
    """Notes the start of an epoch and the end of its last step."""

    started = ended = cpu_started = cpu_ended = 0.0

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        self.started, self.cpu_started = time.perf_counter(), time.process_time()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.ended, self.cpu_ended = time.perf_counter(), time.process_time()


def collate(rows: list[dict[str, Any]]) -> dict[str, Tensor]:
    return {
        "input_ids": pad_sequence([torch.from_numpy(row["input_ids"]) for row in rows], batch_first=True),
        "lengths": torch.tensor([len(row["input_ids"]) for row in rows]),
        "labels": torch.tensor([row["labels"] for row in rows]),
    }


def make_trainer(workload: Workload, sampling: str, flush_denormal: bool = False, packed: bool = False) -> EpochTrainer:
    torch.set_flush_denormal(flush_denormal)
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=tempfile.gettempdir(),  # required, although nothing is saved
        per_device_train_batch_size=worker.BATCH,
        learning_rate=worker.LEARNING_RATE,
        weight_decay=worker.WEIGHT_DECAY,
        lr_scheduler_type="constant",
        max_grad_norm=worker.CLIP,
        num_train_epochs=1,
        train_sampling_strategy=sampling,
        use_cpu=True,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    clock = Clock()
    trainer = Trainer(
        Model(packed), arguments, data_collator=collate, train_dataset=Sequences(workload), callbacks=[clock]
    )

    def epoch() -> Epoch:
        arguments.seed += 1  # otherwise every call of train would use the same order
        result = trainer.train()
        return Epoch(clock.ended - clock.started, result.training_loss, clock.cpu_ended - clock.cpu_started)

    return epoch


if __name__ == "__main__":
    serve(
        {
            "random": lambda workload: make_trainer(workload, "random"),
            "grouped": lambda workload: make_trainer(workload, "group_by_length"),
            "grouped_packed": lambda workload: make_trainer(workload, "group_by_length", packed=True),
            "grouped_flushed": lambda workload: make_trainer(workload, "group_by_length", flush_denormal=True),
        }
    )
