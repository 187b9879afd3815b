"""Modules with a known fault, to be put in the place of one of a network."""

import pytest
from torch import nn


class Faulty(nn.Module):
    """Wraps a module and changes its first output by `change(values, inputs)`."""

    def __init__(self, inner, change):
        super().__init__()
        self.inner = inner
        self.change = change

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)

    def forward(self, *inputs):
        output = self.inner(*inputs)
        if isinstance(output, tuple):
            return self.change(output[0], inputs), *output[1:]
        return self.change(output, inputs)


@pytest.fixture
def faulty():
    """`faulty(module, change)` returns the module with `change(output, inputs)` in place of its output."""
    return Faulty
