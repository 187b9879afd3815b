"""Structure that changes between steps: cell, depth, directions and pooling of one model, while it trains."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch

from seqclf.benchmark.modes import MODES, Contender, Settings
from seqclf.benchmark.workload import Workload
from seqclf.models.pooling import POOLINGS, Pooling
from seqclf.models.recurrent import CELLS, LAYOUTS, Recurrent


def structure_test(workload: Workload, settings: Settings) -> dict[str, Any]:
    """A step of every structure in turn, on ragged batches; the embedding and the output train through all of them.

    `changes` made, and `errors`: what went wrong, structure by structure.
    """
    contender = Contender(MODES["dynamic"], workload, settings)
    model, errors = contender.model, []
    size = model.recurrent.size
    directions = (False,) if size % 2 else (False, True)
    structures = list(itertools.product(CELLS, (1, 2, 3), directions, POOLINGS, LAYOUTS[1:]))
    for step, (cell, layers, bidirectional, pooling, layout) in enumerate(structures):
        hidden = size // 2 if bidirectional else size
        model.recurrent = Recurrent(cell, model.embedding.size, hidden, layers, bidirectional, 0.0, False, layout)
        model.pooling = Pooling(pooling, size, model.recurrent.backward_size)
        model.to(settings.device)
        contender.mode = MODES["packed" if layout == "packed" else "dynamic"]
        contender.optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr)
        before = model.output.weight.detach().clone()
        try:
            contender.update(workload.updates[step % len(workload.updates)])
        except Exception as error:
            errors.append(f"{cell}, {layers} layers, {pooling}, {layout}: {error}"[:200])
            continue
        gradients = [weight.grad for weight in model.recurrent.parameters()]
        if any(grad is None or not bool(torch.isfinite(grad).all()) for grad in gradients):
            errors.append(f"{cell}, {layers} layers, {pooling}, {layout}: weights without a gradient")
        if np.array_equal(before.cpu().numpy(), model.output.weight.detach().cpu().numpy()):
            errors.append(f"{cell}, {layers} layers, {pooling}, {layout}: nothing was learnt")
    return {"changes": len(structures), "errors": errors}
