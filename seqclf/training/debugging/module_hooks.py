"""Hooks on every module of a network, which pass the inputs, outputs and gradients of each module to a function."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.hooks import RemovableHandle
from torchmetrics import Metric, MetricCollection

Leaf = Tensor | PackedSequence


class ModuleHooks:
    """Calls `visit(name, role, value, inputs)` for each module inside `root` that runs, except for metrics.

    `role`: `input` before the forward pass of a module, and `output` after the forward pass. If `gradients` is true,
    `visit` is also called in the backward pass: once for each tensor, with the role `output gradient` or `input
    gradient`. `inputs`: tuple of two entries, the positional arguments (a tuple) and the keyword arguments (a dict) of
    the module; None for gradients. `modules`: dict name → module with hooks.

    >>> calls = []
    >>> network = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> hooks = ModuleHooks(network, lambda name, role, value, inputs: calls.append((name, role)))
    >>> _ = network(torch.zeros(1, 2))
    >>> calls
    [('', 'input'), ('0', 'input'), ('0', 'output'), ('1', 'input'), ('1', 'output'), ('', 'output')]
    >>> hooks.remove()
    """

    def __init__(self, root: nn.Module, visit: Callable[[str, str, Any, Any], None], gradients: bool = False):
        self.visit = visit
        self.gradients = gradients
        metrics = [module for module in root.modules() if isinstance(module, (Metric, MetricCollection))]
        inside_metrics = {inner for metric in metrics for inner in metric.modules()}
        self.modules = {name: module for name, module in root.named_modules() if module not in inside_metrics}
        self.handles: list[RemovableHandle] = []
        for name, module in self.modules.items():
            self.handles.append(module.register_forward_pre_hook(partial(self._enter, name), with_kwargs=True))
            self.handles.append(module.register_forward_hook(partial(self._leave, name), with_kwargs=True))

    def remove(self) -> None:
        """Remove the hooks from all modules."""
        for handle in self.handles:
            handle.remove()
        self.handles.clear()

    def _enter(self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inputs = (args, kwargs)
        if self.gradients and torch.is_grad_enabled():
            # The hooks are registered on views of the inputs. Without views, a tensor that several modules take would
            # get the sum of their gradients.
            inputs = tree_map(_view, inputs, is_leaf=_is_packed)
            self._watch(name, "input gradient", inputs)
        self.visit(name, "input", inputs, inputs)
        return inputs

    def _leave(self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if self.gradients and torch.is_grad_enabled():
            self._watch(name, "output gradient", output)
        self.visit(name, "output", output, (args, kwargs))

    def _watch(self, name: str, role: str, value: Any) -> None:
        for leaf in leaves(value):
            if values_of(leaf).requires_grad:
                packed = leaf if isinstance(leaf, PackedSequence) else None
                values_of(leaf).register_hook(partial(self._pass_gradient, name, role, packed))

    def _pass_gradient(self, name: str, role: str, packed: PackedSequence | None, gradient: Tensor) -> None:
        self.visit(name, role, gradient if packed is None else packed._replace(data=gradient), None)


def module_title(name: str, module: nn.Module) -> str:
    """Return the name of a module followed by its class, or the class alone if the name is empty."""
    class_name = type(module).__name__
    return f"{name} ({class_name})" if name else class_name


def _is_packed(value: Any) -> bool:
    return isinstance(value, PackedSequence)


def _view(leaf: Any) -> Any:
    if isinstance(leaf, PackedSequence):
        return leaf._replace(data=_view(leaf.data))
    return leaf.view_as(leaf) if isinstance(leaf, Tensor) and leaf.requires_grad else leaf


def leaves(value: Any) -> list[Leaf]:
    """Return all tensors and packed sequences in nested tuples, lists and dicts, in order.

    >>> [tuple(leaf.shape) for leaf in leaves((torch.zeros(2, 3), {"length": torch.ones(2)}, None))]
    [(2, 3), (2,)]
    """
    return [leaf for leaf in tree_leaves(value, is_leaf=_is_packed) if isinstance(leaf, (Tensor, PackedSequence))]


def values_of(leaf: Leaf) -> Tensor:
    """Return the values of a leaf as one tensor.

    For packed sequences and sparse tensors, these are the stored values.
    """
    tensor = leaf.data if isinstance(leaf, PackedSequence) else leaf
    return tensor._values() if tensor.is_sparse else tensor
