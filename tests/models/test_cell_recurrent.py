"""Any recurrent cell in training, in ONNX and chunk by chunk, against each other and against PyTorch's GRU."""

import copy
import itertools

import numpy as np
import onnxruntime
import pytest
import torch
from support.recurrent_cells import CELLS
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqclf.bundle.step_model import StepModel, read_chunks
from seqclf.errors import InputError
from seqclf.extend import CellRecurrent, RecurrentCell, State
from seqclf.models.adaptive import AdaptiveClassifier
from seqclf.models.ensemble import Ensemble
from seqclf.models.onnx.export import example_inputs, export_onnx, export_step

FIELDS = [{"name": "sigmoid", "kind": "category", "size": 12}, {"name": "linear_2", "kind": "number", "width": 3}]
TOLERANCE = 1e-6
MODULE = "support.recurrent_cells"
PATHS = {name: f"{kind.__module__}.{kind.__qualname__}" for name, kind in CELLS.items()}
WRONG = f"{__name__}."


def of_cell(name):
    """The options of a network whose encoder runs a cell."""
    encoder = {"_target_": "seqclf.extend.CellRecurrent", "cell": {"_target_": PATHS[name]}}
    return {"encoder": encoder, "cell": None, "layout": None}


@pytest.fixture
def cell_net(net):
    """`cell_net("gru", layers=3, …)` returns a classifier in evaluation mode that runs a cell."""

    def make(name, **options):
        from conftest import PLAIN

        raise NotImplementedError(PLAIN, net, copy)

    return make
