"""Hooks on every module of a network, which are told its name and the modules that it runs in."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle
from torchmetrics import Metric, MetricCollection


class ModuleHooks:
    """Calls `before` and `after` around the forward of every module inside `root`, the modules inside it first.

    `before(name, args, kwargs)` may return other arguments, as `(args, kwargs)`. `after(name, inputs, output)` returns
    nothing; `inputs` are both kinds of arguments. `running` holds the names of the modules whose forward runs, the
    innermost last. `modules`: by name. Metrics are left out.

    >>> import torch
    >>> calls = []
    >>> network = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> hooks = ModuleHooks(network, after=lambda name, inputs, output: calls.append((name, tuple(output.shape))))
    >>> _ = network(torch.zeros(1, 2))
    >>> calls
    [('0', (1, 3)), ('1', (1, 3)), ('', (1, 3))]
    >>> hooks.remove()
    """

    def __init__(
        self,
        root: nn.Module,
        before: Callable[[str, tuple[Any, ...], dict[str, Any]], Any] | None = None,
        after: Callable[[str, Any, Any], None] | None = None,
    ):
        self.before = before
        self.after = after
        self.running: list[str] = []
        metrics = [module for module in root.modules() if isinstance(module, (Metric, MetricCollection))]
        inside_metrics = {inner for metric in metrics for inner in metric.modules()}
        self.modules = {name: module for name, module in root.named_modules() if module not in inside_metrics}
        self.handles: list[RemovableHandle] = []
        for name, module in self.modules.items():
            self.handles.append(module.register_forward_pre_hook(partial(self._enter, name), with_kwargs=True))
            self.handles.append(module.register_forward_hook(partial(self._leave, name), with_kwargs=True))

    def title(self, name: str) -> str:
        """Return the name of a module with its class.

        >>> ModuleHooks(nn.Sequential(nn.Linear(2, 3))).title("0")
        '0 (Linear)'
        """
        class_name = type(self.modules[name]).__name__
        return f"{name} ({class_name})" if name else class_name

    def remove(self) -> None:
        """Remove the hooks from all modules."""
        for handle in self.handles:
            handle.remove()
        self.handles.clear()
        self.running.clear()

    def _enter(self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.running.append(name)
        return self.before(name, args, kwargs) if self.before is not None else None

    def _leave(self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if self.after is not None:
            self.after(name, (args, kwargs), output)
        self.running.pop()
