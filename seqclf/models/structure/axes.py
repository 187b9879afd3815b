"""Computation of the weights of a widened layer from the weights of the old layer.

A layer is widened by copying its units, as in Net2Net (Chen et al. 2016). The word "continue" is used for copies: a new
unit continues the old unit that it copies. All copies of a unit compute the same value. If the next layer multiplies a
unit by a weight, the weight is divided among the copies of the unit, so that the network computes the same function as
before. The parts of a divided weight are unequal, so that training makes the copies different.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

UNEVENNESS = 0.5  # spread of the parts of a divided weight; each of two copies gets between 1/4 and 3/4


class Axis(NamedTuple):
    """Mapping of new units to old units along one axis of a weight tensor.

    `units`: (N,) int64 index of the old unit that each new unit continues. `summed`: True if the units are inputs of
    the layer, because the layer sums over its inputs. The weight of an old input is divided among the copies
    of the input. `summed` is False if the units are outputs of the layer. All copies of an output have the same
    weights.
    """

    units: Tensor
    summed: bool = False

    def is_kept(self, size: int) -> bool:
        """Return True if the new units are the `size` old units in the same order."""
        return len(self.units) == size and bool((self.units == torch.arange(size)).all())

    def copies(self) -> Tensor:
        """Return, for each new unit (N,), the number of new units that continue the same old unit."""
        return torch.bincount(self.units)[self.units]


Axes = tuple[Axis, ...]


def kept(size: int) -> Tensor:
    """Return the `units` of an unchanged axis (see `Axis`)."""
    return torch.arange(size)


def widened(old: int, new: int) -> Tensor:
    """Return the `units` of an axis that is widened from `old` to `new` units (see `Axis`).

    >>> widened(3, 5).tolist()
    [0, 1, 2, 0, 1]
    """
    return torch.arange(new) % old


def blocks(units: Tensor, size: int, count: int) -> Tensor:
    """Return the `units` of an axis that concatenates several blocks, such as the gates of an LSTM (see `Axis`).

    `units`: old unit that each new unit of one block continues. `size`: number of old units of each block. `count`:
    number of blocks.

    >>> blocks(torch.tensor([0, 1, 0]), size=2, count=2).tolist()
    [0, 1, 0, 2, 3, 2]
    """
    return torch.cat([units + index * size for index in range(count)])


def is_even(units: Tensor) -> bool:
    """Return True if every old unit has the same number of copies.

    The mean and the variance over the new units then equal the mean and the variance over the old units.

    >>> is_even(widened(3, 6)), is_even(widened(3, 5))
    (True, False)
    """
    return len(torch.bincount(units).unique()) == 1


def continued_weight(old: Tensor, axes: Axes) -> Tensor:
    """Return the weight of a changed layer, from the weight `old` of the old layer.

    The weight of an input is divided among its copies at random, with PyTorch's default random generator.

    >>> old = torch.tensor([[2.0, 4.0]])
    >>> axes = (Axis(kept(1)), Axis(widened(2, 4), summed=True))
    >>> weight = continued_weight(old, axes)
    >>> bool(torch.allclose(weight[:, :2] + weight[:, 2:], old))
    True
    """
    weight = _selected(old, axes)
    for dimension, axis in enumerate(axes):
        if axis.summed and bool((axis.copies() > 1).any()):
            weight = _shared(weight, axis, dimension)
    return weight


def _selected(values: Tensor, axes: Axes) -> Tensor:
    for dimension, axis in enumerate(axes):
        values = values.index_select(dimension, axis.units.to(values.device))
    return values


def _shared(weight: Tensor, axis: Axis, dimension: int) -> Tensor:
    """Divide the weight of each old unit among the copies of the unit, into random parts.

    Each part of the weight is rounded to a multiple of the last binary digit of the old weight, so that the sum of the
    parts equals the old weight exactly.
    """
    if weight.is_meta:
        return weight
    units = axis.units
    # Compute on the CPU, because not all devices support float64, and because a seed then results in the same weights
    # on every device.
    exact = weight.detach().to("cpu", torch.float64)
    raw = 1 + UNEVENNESS * (2 * torch.rand(weight.shape, dtype=torch.float64) - 1)
    digit = torch.exp2(torch.frexp(exact).exponent.double()) * (torch.finfo(weight.dtype).eps / 2)
    shares = torch.round(exact * raw / _totals(raw, units, dimension).index_select(dimension, units) / digit) * digit
    # Add the remainder of the rounding to the part of the last copy.
    last = torch.zeros(int(units.max()) + 1, dtype=torch.int64)
    last = last.scatter_reduce(0, units, torch.arange(len(units)), "amax")
    rest = exact.index_select(dimension, last) - _totals(shares, units, dimension)
    return shares.index_add(dimension, last, rest).to(weight)


def _totals(values: Tensor, units: Tensor, dimension: int) -> Tensor:
    """Return the sum of `values` over the copies of each old unit."""
    sizes = list(values.shape)
    sizes[dimension] = int(units.max()) + 1
    return values.new_zeros(sizes).index_add(dimension, units, values)


def continued_moment(old: Tensor, axes: Axes, power: int) -> Tensor:
    """Return an optimizer's running mean of the gradients of a changed weight.

    `old`: running mean for the old weight. `power`: 1 for a mean of gradients, 2 for a mean of squared gradients. The
    gradient of an old output is divided among the copies of the output.
    """
    moment = _selected(old, axes)
    for dimension, axis in enumerate(axes):
        if not axis.summed:
            shape = [-1 if other == dimension else 1 for other in range(moment.dim())]
            moment = moment / axis.copies().view(shape).to(moment) ** power
    return moment
