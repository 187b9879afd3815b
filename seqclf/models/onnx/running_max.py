"""Running maximum over tokens as an ONNX function. ONNX has no operator for a running maximum."""
# mypy: ignore-errors
# onnxscript converts the source code of `RunningMaximum` to an ONNX graph. Python never runs `RunningMaximum`.

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
    """A `RunningMax` in operations that ONNX has. The method `forward` runs only inside the ONNX exporter."""

    onnx_function = RunningMaximum

    def forward(self, outputs: Tensor) -> Tensor:
        return torch.onnx.ops.symbolic(
            f"{DOMAIN}::{RunningMaximum.name}", (outputs,), dtype=torch.float32, shape=outputs.shape, version=VERSION
        )
