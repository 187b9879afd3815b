"""The random kernels as one ONNX function.

The function is one node while PyTorch's exporter works, whose time grows with the nodes: without it, the export of 32
dilations took 2.3 times as long. The call is inlined in the exported graph.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from seqclf.models.heads.views import VIEWS
from seqclf.wide.convolution import reach

DOMAIN, VERSION, OPSET = "seqclf", 1, 18
GROUP_INPUTS = ("kernels", "bias", "first", "skips", "channels")


@dataclass(frozen=True)
class KernelFunction:
    """An ONNX function of all groups of kernels, one group for each dilation.

    Its inputs are the views (B, 3 D, T), the masks (B, R, T, 2) of the positions that count for each of R reaches,
    without and with the ends of a row, what they exclude (B, R, 2, T), 0 there and very low elsewhere, the signs (K, 1)
    of the first outputs, and for each group its weights (3 O, D', 9), biases (3 O,), indices of the first outputs (K,),
    1 for those that skip the ends of a row (K,), and where the group selects channels, their indices (3 D',). Its
    outputs are the sums (B, ΣO, 2) of the outputs clipped to [0, 1], and the largest of each first output (B, ΣK).

    `dilations`: dilation of each group. `places`: index of its reach. `selects`: True where it selects channels.
    """

    dilations: tuple[int, ...]
    places: tuple[int, ...]
    selects: bool

    @property
    def name(self) -> str:
        """Name that differs for different functions."""
        content = repr((self.dilations, self.places, self.selects))
        return f"Kernels{hashlib.sha256(content.encode()).hexdigest()[:12]}"

    def to_function_proto(self) -> Any:
        """Return the function as a message of ONNX."""
        from onnx import helper

        nodes: list[Any] = []

        def add(operator: str, *inputs: str, **attributes: Any) -> str:
            output = f"value{len(nodes)}"
            nodes.append(helper.make_node(operator, inputs, [output], **attributes))
            return output

        low, high = add("Constant", value_float=0.0), add("Constant", value_float=1.0)
        last = add("Constant", value_ints=[-1])
        numbers = {place: add("Constant", value_int=place) for place in sorted(set(self.places))}
        counted = {place: add("Gather", "masks", number, axis=1) for place, number in numbers.items()}
        left_out = {place: add("Gather", "excluded", number, axis=1) for place, number in numbers.items()}
        sums, most = [], []
        inputs = ["views", "masks", "excluded", "signs"]
        for group, (dilation, place) in enumerate(zip(self.dilations, self.places, strict=True)):
            kernels, bias, first, skips, channels = (f"{name}{group}" for name in GROUP_INPUTS)
            inputs += [kernels, bias, first, skips, *([channels] if self.selects else [])]
            views = add("Gather", "views", channels, axis=1) if self.selects else "views"
            pads = [reach(dilation)] * 2
            outputs = add("Conv", views, kernels, bias, dilations=[dilation], group=VIEWS, pads=pads)
            sums.append(add("MatMul", add("Clip", outputs, low, high), counted[place]))
            signed = add("Mul", add("Gather", outputs, first, axis=1), "signs")
            kept = add("Add", signed, add("Gather", left_out[place], skips, axis=1))
            most.append(add("ReduceMax", kept, last, keepdims=0))
        results = [add("Concat", *sums, axis=1), add("Concat", *most, axis=1)]
        return helper.make_function(DOMAIN, self.name, inputs, results, nodes, [helper.make_opsetid("", OPSET)])
