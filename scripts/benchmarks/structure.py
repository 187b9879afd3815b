"""Random changes of the structure of recurrent networks while they train: errors, logits, and memory.

    ONEDNN_PRIMITIVE_CACHE_CAPACITY=0 python scripts/benchmarks/structure.py [CHANGES]        200 by default

Without the variable, oneDNN keeps kernels of up to 1024 shapes, which new sizes of LSTMs fill.

Trains in a plain loop. Every tenth change starts with a new model, since a model only grows. Prints one JSON line:
`errors`; `preserving`, the number of changes that leave the function; `moved`, the largest movement of a logit by one
of them, in float64 (members and heads are added in float32) and float32, where `rounding` is how far the float32 logits
are from those in float64; the growth of memory in MB per 1000 changes with its 95 % interval; and `alive`, the old
networks that are still in memory.
"""

import copy
import gc
import json
import random
import sys
import weakref
from typing import Any

import numpy as np
import torch
from memory_growth import fit_growth

import seqclf
from seqclf.system.resources import resident_mb

PER_MODEL = 10
STEPS = 3  # of training after each change
MODELS = [["model=lstm"], ["model=gru", "model.pooling=attention"], ["model=rnn", "model.members=2"], ["model=auto"]]


def random_change(drawn: random.Random, model: dict[str, Any], frozen: bool) -> dict[str, Any]:
    """Return a random change that is possible for a model."""
    part = "project" if model["_target_"].endswith("HeadsClassifier") else "embedding"
    changes: list[dict[str, Any]] = [
        {"layers": model["layers"] + 1} if model["layers"] < 3 else {"layers": model["layers"] - 1},
        {"unfreeze": part} if frozen else {"freeze": part},
        {"dropout": drawn.random() / 2},
    ]
    wider = drawn.choice([2 * model["hidden_size"], model["hidden_size"] + 8])
    if wider <= 64:
        changes += [{"hidden_size": wider}] * 2
    return {name: value for change in drawn.sample(changes, drawn.randint(1, 2)) for name, value in change.items()}


def logits(network: Any, batch: Any, dtype: torch.dtype) -> torch.Tensor:
    """Return the logits of a batch in evaluation mode, computed in `dtype`."""
    network = copy.deepcopy(network).to(dtype).eval()
    fields = {name: values.to(dtype) if values.is_floating_point() else values for name, values in batch.fields.items()}
    with torch.no_grad():
        return network(fields, batch.lengths, batch.host_lengths).double()


def measure(changes: int, seed: int = 0) -> dict[str, Any]:
    """Make random changes twice, and watch memory the second time, when the allocator has settled."""
    dataset = seqclf.load_data(None, label=None, overrides=["data=japanese_vowels"])
    batches = list(seqclf.SequenceDataModule(dataset.splits).train_dataloader())
    errors, preserving, used_mb, old = [], 0, [], []
    moved = dict.fromkeys(("float64", "float32", "rounding"), 0.0)
    for index in range(2 * changes):
        if index % changes == 0:
            drawn = random.Random(seed)
        if index % PER_MODEL == 0:
            torch.manual_seed(index % changes)
            sizes = ["model.hidden_size=16", "model.embedding_size=8"]
            config = seqclf.load_config([*MODELS[index % changes // PER_MODEL % len(MODELS)], *sizes])
            task = seqclf.SequenceTask(dataset.description(), config["model"])
            task.fit_to(dataset.splits["train"])
            optimizer, _ = task.make_optimizer(steps=changes)
        change = random_change(drawn, task.hparams["model"], bool(task.hparams["frozen"]))
        before = {kind: logits(task.model, batches[0], getattr(torch, kind)) for kind in ("float64", "float32")}
        network = weakref.ref(task.model)
        try:
            made = seqclf.change_structure(task, optimizer, **change)
            if made.preserves:
                preserving += index >= changes
                after = {kind: logits(task.model, batches[0], getattr(torch, kind)) for kind in before}
                pairs = [(kind, after[kind], before[kind]) for kind in before]
                for kind, one, other in [*pairs, ("rounding", before["float32"], before["float64"])]:
                    moved[kind] = max(moved[kind], float((one - other).abs().max()))
            for step in range(STEPS):
                optimizer.zero_grad()
                task.training_step(batches[(index % changes + step) % len(batches)], step).backward()
                optimizer.step()
            if not all(bool(weight.isfinite().all()) for weight in task.parameters()):
                raise ValueError("weights are not finite")
        except Exception as error:
            errors.append(f"{change}: {type(error).__name__}: {error}")
        if not change.keys() <= {"freeze", "unfreeze"}:
            old.append(network)
        if index >= changes:
            used_mb.append(resident_mb())
    gc.collect()
    growth = fit_growth(np.array(used_mb))
    memory = {"mb_per_1000": growth.mb_per_1000_steps, "low": growth.low, "high": growth.high, "leaks": growth.leaks}
    return {
        **{"changes": changes, "errors": errors, "preserving": preserving, "moved": moved, "memory": memory},
        "memory_mb": float(np.mean(used_mb)),
        "alive": sum(network() is not None for network in old),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 200)))
