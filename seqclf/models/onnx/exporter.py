"""Export of a trained classifier to an ONNX file, for any batch size and any number of tokens.

A module with a method `onnx_form` is first replaced by what this method returns (see `SequenceEncoder`).
"""

from __future__ import annotations

import copy
import hashlib
import io
import logging
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn.utils import parametrize

from seqclf.data.field_spec import FieldSpec, input_axes, kind_of, size_of, static_specs
from seqclf.errors import InputError, first_line
from seqclf.models.network import SequenceNetwork, joined_embedding, recorded_embedding
from seqclf.models.onnx.canonical import make_canonical, sort_carried_values
from seqclf.models.onnx.checks import EMBEDDING, REMEDY, explain_failure, recurrent_obstacle
from seqclf.models.onnx.operators import OPSET
from seqclf.models.streaming import STATE_INPUT, STATE_OUTPUT, ChunkStep

# Sizes of the example inputs. No size is 1, because the exporter treats an axis of size 1 as fixed. EXAMPLE_TIME is
# large enough for encoders that shorten the time axis. Networks that say by how much get as many more tokens.
EXAMPLE_BATCH, EXAMPLE_TIME, EXAMPLE_VALUES = 2, 33, 4
NO_STEP = "return None from streaming, and the bundle has no step"


class _Exported(nn.Module):
    """A network that gets None as `host_lengths`, and returns a tuple: logits, extra outputs and the embedding."""

    def __init__(self, classifier: Any, layers: Mapping[str, nn.Module]):
        super().__init__()
        self.classifier, self.layers = classifier, layers

    def forward(self, fields: dict[str, Tensor], lengths: Tensor) -> Any:
        with recorded_embedding(self.layers) as parts:
            if self.classifier.extra_outputs:
                outputs = self.classifier.outputs(fields, lengths, None)
            else:
                outputs = {"logits": self.classifier(fields, lengths, None)}
        found = [outputs[name] for name in ("logits", *self.classifier.extra_outputs)]
        return (*found, *_embedding(parts, self.layers))


class _ExportedStep(nn.Module):
    """A `ChunkStep` that returns a tuple: the logits, the outputs in `more_outputs`, the embedding, and the states."""

    def __init__(self, step: Any, layers: Mapping[str, nn.Module]):
        super().__init__()
        self.step, self.layers = step, layers

    def forward(self, fields: dict[str, Tensor], lengths: Tensor, states: list[Tensor]) -> Any:
        with recorded_embedding(self.layers) as parts:
            result = self.step(fields, lengths, states)
        found = [result[name] for name in ("logits", *self.step.more_outputs)]
        return (*found, *_embedding(parts, self.layers), *result["states"])


def _embedding(parts: Mapping[str, Tensor], layers: Mapping[str, nn.Module]) -> list[Tensor]:
    return [joined_embedding(parts, layers)] if layers else []


def example_inputs(
    fields: Sequence[FieldSpec], lengths: np.ndarray, time: int, generator: np.random.Generator
) -> dict[str, np.ndarray]:
    """Return random inputs for every field, for a batch with `lengths` (B,) that is padded to `time` tokens.

    The padding is random too, so that a test detects a model whose outputs depend on padding.
    """
    inputs: dict[str, np.ndarray] = {}
    for field in fields:
        sizes = {"batch": len(lengths), "time": time}
        shape = [sizes.get(axis, EXAMPLE_VALUES) if isinstance(axis, str) else axis for axis in input_axes(field)]
        if kind_of(field).is_tree:
            inputs[field["name"]] = _random_parents(lengths, time, generator)
        elif kind_of(field).has_numbers:
            inputs[field["name"]] = generator.standard_normal(shape, np.float32)
        else:
            inputs[field["name"]] = generator.integers(0, size_of(field), shape)
    return {**inputs, "lengths": lengths.astype(np.int64)}


def _random_parents(lengths: np.ndarray, time: int, generator: np.random.Generator) -> np.ndarray:
    """Return the parents (B, T) of the nodes of random trees (see `ParentsSpec`), some deep and some flat."""
    # Padding has random parents, so that a test detects a model whose outputs depend on padding.
    parents = generator.integers(-1, time, (len(lengths), time))
    for row, length in enumerate(lengths.tolist()):
        nodes = np.arange(length - 1)
        reach = (1, 3, length)[row % 3]  # maximum distance from a node to its parent; 1 results in a chain
        parents[row, : length - 1] = np.minimum(nodes + generator.integers(1, reach + 1, length - 1), length - 1)
        parents[row, length - 1] = -1
    return parents


def export_onnx(classifier: SequenceNetwork, fields: Sequence[FieldSpec], path: Path, key: str = "model") -> None:
    """Export a classifier or an ensemble to the ONNX file `path`, in evaluation mode and in float32, as a copy.

    The graph has one input for each field (see `FieldSpec`), an input `lengths` (batch,) int64, the output `logits`
    (batch, classes), the `extra_outputs`, and `embedding` (batch, D) if the network has `embedding_layers`. Raises an
    InputError that begins with `key` and names the module that cannot be exported.
    """
    time = int(EXAMPLE_TIME * classifier.shortening)
    tensors, static = _example_tensors(fields, time), {spec["name"] for spec in static_specs(fields)}
    with _exporting():
        network = _exportable_copy(classifier, key)
        layers = network.embedding_layers()
        names = ["logits", *classifier.extra_outputs, *[EMBEDDING][: len(layers)]]
        exported = _Exported(network, layers).eval()
        try:
            axes = _free_axes(fields)
            program = _converted(exported, _arguments(tensors), list(tensors), names, axes)
        except Exception as error:  # third-party code may raise any exception
            obstacle = explain_failure(exported, error)
            raise InputError(key, f"cannot be exported to ONNX: {obstacle.reason}", obstacle.remedy) from error
    if _has_fixed_axis(program, tensors.keys() - static):
        raise InputError(key, "cannot be exported to ONNX: the network fixes the number of sequences or tokens", REMEDY)
    _finish(program.model, exported)
    program.save(str(path), external_data=False)


def export_step(classifier: SequenceNetwork, fields: Sequence[FieldSpec], path: Path) -> ChunkStep | None:
    """Export the streaming form of a classifier to `path`, and return the exported `ChunkStep`; `None` if it has none.

    The inputs are those of `export_onnx` for the tokens of one chunk, and `state/<name>` (batch, *shape) for each
    state. The outputs are `logits` (batch, classes) after the chunk, the `more_outputs` of the `ChunkStep`, `embedding`
    as that of `export_onnx`, and `next/<name>` for each state.
    """
    tensors = _example_tensors(fields, EXAMPLE_TIME)
    network = _exportable_copy(classifier, "model")
    step, layers = network.streaming(), network.embedding_layers()
    if step is None:
        return None
    states = [torch.full((EXAMPLE_BATCH, *state.shape), state.initial) for state in step.states]
    static = {spec["name"] for spec in static_specs(fields)}
    field_axes, length_axes = _free_axes(fields)
    state_axes = [{0: length_axes[0]} for _ in states]
    with _exporting():
        exported = _ExportedStep(step, layers).eval()
        try:
            inputs = [*tensors, *(STATE_INPUT + state.name for state in step.states)]
            more = [*step.more_outputs, *[EMBEDDING][: len(layers)]]
            outputs = ["logits", *more, *(STATE_OUTPUT + state.name for state in step.states)]
            axes = (field_axes, length_axes, state_axes)
            program = _converted(exported, (*_arguments(tensors), states), inputs, outputs, axes)
        except Exception as error:  # a third-party encoder may raise any exception
            problem = f"its streaming cannot be exported to ONNX ({type(error).__name__}: {first_line(error)})"
            raise InputError("model.encoder", problem, NO_STEP) from error
    if _has_fixed_axis(program, tensors.keys() - static):
        remedy = f"use sizes of its inputs only, or {NO_STEP}"
        raise InputError("model.encoder", "its streaming fixes the number of sequences or tokens", remedy)
    _finish(program.model, exported)
    _name_axes(program.model.graph, set(tensors) - static - {"lengths"})
    program.save(str(path), external_data=False)
    return step


def _example_tensors(fields: Sequence[FieldSpec], time: int) -> dict[str, Tensor]:
    inputs = example_inputs(fields, np.array([time, time - 1]), time, np.random.default_rng(0))
    return {name: torch.from_numpy(values) for name, values in inputs.items()}


def _exportable_copy(classifier: nn.Module, key: str) -> Any:
    """Return a float32 copy in evaluation mode, with plain weights for parametrized ones, or raise InputError."""
    try:
        network: Any = copy.deepcopy(classifier).cpu().float().eval()
    except Exception as error:  # third-party code may raise any exception
        reason = f"the network cannot be copied ({type(error).__name__}: {first_line(error)})"
        remedy = "keep locks, files and computed tensors, as those of torch.nn.utils.weight_norm, out of its attributes"
        raise InputError(key, f"cannot be exported to ONNX: {reason}", remedy) from None
    # ONNX lacks functions of some parametrizations, such as the matrix exponential of an orthogonal weight. In
    # evaluation mode, the weight is constant.
    for module in [part for part in network.modules() if parametrize.is_parametrized(part)]:
        weights = {name: getattr(module, name).detach() for name in module.parametrizations}
        del module.parametrizations
        # `remove_parametrizations` would change the class of the original module too.
        module.__class__ = type(module).__bases__[0]
        for name, weight in weights.items():
            module.register_parameter(name, nn.Parameter(weight, requires_grad=False))
    return network


def replace_modules(network: nn.Module) -> None:
    """Replace the modules inside `network` by modules that PyTorch's exporter can convert, in place."""
    # A module that is used in two places is replaced by one module, so that its weights are stored only once.
    forms: dict[nn.Module, nn.Module] = {}

    def visit(module: nn.Module, path: str, originals: frozenset[nn.Module]) -> None:
        for name, child in list(module.named_children()):
            if child in originals:  # the replacement may contain the original module
                continue
            child_path = f"{path}{name}"
            if child not in forms:
                forms[child] = child.onnx_form() if hasattr(child, "onnx_form") else child  # type: ignore[operator]
                if isinstance(forms[child], nn.RNNBase):
                    raise recurrent_obstacle(child_path, child)
                visit(forms[child], f"{child_path}.", originals | {child})
            setattr(module, name, forms[child])

    visit(network, "", frozenset())


def _free_axes(fields: Sequence[FieldSpec]) -> Any:
    free, axes = dict[str, Any](), dict[str, dict[int, Any]]()
    for spec in fields:
        named = [axis for axis in input_axes(spec) if isinstance(axis, str)]  # a fixed axis comes last
        axes[spec["name"]] = {place: free.setdefault(axis, Dim(axis)) for place, axis in enumerate(named)}
    return axes, {0: free["batch"]}


def _arguments(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
    return {name: values for name, values in tensors.items() if name != "lengths"}, tensors["lengths"]


def _converted(exported: nn.Module, arguments: Any, inputs: list[str], outputs: list[str], axes: Any) -> Any:
    replace_modules(exported)
    names = {"input_names": inputs, "output_names": outputs, "dynamic_shapes": axes}
    return torch.onnx.export(exported, arguments, dynamo=True, **names, opset_version=OPSET, verbose=False)


def _has_fixed_axis(program: Any, fields: Collection[str]) -> bool:
    """The exporter may make an axis constant without an error. The model would then accept one length or batch size."""
    inputs = [value for value in program.model.graph.inputs if value.name in fields]
    return any(isinstance(size, int) for value in inputs for size in list(value.shape)[:2])


@contextmanager
def _exporting() -> Iterator[None]:
    """Suppress the long messages of the exporter."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        # PyTorch cannot export a `scan` with gradients of a cell that multiplies a weight by a symbolic size.
        with torch.no_grad(), warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def _finish(model: Any, exported: nn.Module) -> None:
    _inline_functions(model, exported)
    # All names of a shared weight, of which the exporter keeps only one.
    kinds: Any = (exported.named_parameters, exported.named_buffers)
    tensors = {name: tensor for named in kinds for name, tensor in named(remove_duplicate=False)}
    _name_by_first(model.graph.initializers, tensors)
    make_canonical(model, tensors.keys())


def _name_by_first(initializers: Any, tensors: Mapping[str, Tensor]) -> None:
    """Name an initializer by the first of several equal weights: onnxscript keeps another one in each process."""
    first: dict[Any, str] = {}
    for name, tensor in tensors.items():
        content = tensor.detach().flatten().contiguous().view(torch.uint8).numpy()
        key = (tensor.dtype, tensor.shape, hashlib.sha256(content.tobytes()).digest())
        other = first.setdefault(key, name)
        if other not in initializers and name in initializers:
            value = initializers.pop(name)
            value.name = other
            initializers[other] = value


def _inline_functions(model: Any, exported: nn.Module) -> None:
    """Inline the functions that modules keep in the attribute `onnx_function`."""
    functions: dict[Any, None] = dict.fromkeys(
        module.onnx_function for module in exported.modules() if hasattr(module, "onnx_function")
    )
    if not functions:
        return
    import onnx_ir
    from onnx_ir.passes.common import InlinePass

    identifiers = []
    for function in functions:
        message = function.to_function_proto()
        sort_carried_values(message.node)
        stored: Any = onnx_ir.from_proto(message)
        identifiers.append(stored.identifier())
        model.functions[stored.identifier()] = stored
        model.opset_imports.setdefault(stored.domain, 1)
    InlinePass()(model)
    for identifier in identifiers:
        model.functions.pop(identifier, None)  # InlinePass does not remove a function that no node calls
        model.opset_imports.pop(identifier[0], None)


def _name_axes(graph: Any, fields: Collection[str]) -> None:
    """Name the dynamic axes "batch" and "time" (of `fields`): the exporter numbers those of a list, such as states."""
    for value in (*graph.inputs, *graph.outputs):
        for axis, name in enumerate(["batch", "time"] if value.name in fields else ["batch"]):
            if len(value.shape) > axis:
                value.shape[axis] = name
