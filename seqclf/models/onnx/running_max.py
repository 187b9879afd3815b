"""The running maximum, which ONNX lacks, as an ONNX function."""
# mypy: ignore-errors
# onnxscript reads the source of `RunningMaximum` and turns it into a graph. Python never runs it.

from __future__ import annotations

import torch
from onnxscript import graph, script
from onnxscript import opset18 as op
from onnxscript.values import Opset
from torch import Tensor, nn

DOMAIN, VERSION = "seqclf", 1
_opset = Opset(DOMAIN, VERSION)


# fmt: off
@script(_opset, default_opset=op)
def RunningMaximum(values):  # noqa: N802 # pragma: no cover
    @graph()
    def larger(highest, token):
        new = op.Max(highest, token)
        return new, op.Identity(new)

    first = op.Gather(values, op.Constant(value_int=0), axis=1)
    _, highest = op.Scan(first, values, body=larger, num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1])
    return highest
# fmt: on


class OnnxRunningMax(nn.Module):
    """Forward of a `RunningMax` in operations that ONNX has. Runs only inside the exporter."""

    onnx_function = RunningMaximum

    def forward(self, outputs: Tensor) -> Tensor:
        return torch.onnx.ops.symbolic(
            f"{DOMAIN}::{RunningMaximum.name}", (outputs,), dtype=torch.float32, shape=outputs.shape, version=VERSION
        )
