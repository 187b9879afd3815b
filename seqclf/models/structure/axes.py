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

NEW = -1  # marks a new unit that continues no old unit
UNEVENNESS = 0.5  # spread of the parts of a divided weight; each of two copies gets between 1/4 and 3/4


class Axis(NamedTuple):
    """Mapping of new units to old units along one axis of a weight tensor.

    `units`: (N,) int64 index of the old unit that each new unit continues, or `NEW`. `summed`: True if the units are
    inputs of the layer, because the layer sums over its inputs. The weight of an old input is divided among the copies
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
        known = self.units.clamp(min=0)
        return torch.bincount(known[self.units >= 0], minlength=int(known.max()) + 1)[known].clamp(min=1)

    def is_new(self, dimension: int, dimensions: int) -> Tensor:
        """Return a mask that is True for the `NEW` units.

        `dimension`: position of this axis in the weight tensor. The mask has `dimensions` axes, so it broadcasts over
        the weight tensor.
        """
        shape = [1] * dimensions
        shape[dimension] = len(self.units)
        return (self.units == NEW).view(shape)


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
    return torch.cat([offset(units, index * size) for index in range(count)])


def offset(units: Tensor, by: int) -> Tensor:
    """Return `units` with `by` added to each index of an old unit. Entries that are `NEW` stay unchanged."""
    return torch.where(units == NEW, NEW, units + by)


def is_even(units: Tensor) -> bool:
    """Return True if every old unit has the same number of copies, and no unit is `NEW`.

    The mean and the variance over the new units then equal the mean and the variance over the old units.

    >>> is_even(widened(3, 6)), is_even(widened(3, 5))
    (True, False)
    """
    return bool((units != NEW).all()) and len(torch.bincount(units).unique()) == 1


def continued_weight(old: Tensor, initial: Tensor, axes: Axes) -> Tensor:
    """Return the weight of a changed layer.

    `old`: weight of the old layer. `initial`: random initial weight of the changed layer. Units that continue an old
    unit get their weights from `old`. Outputs that are `NEW` get their weights from `initial`. Inputs that are `NEW`
    get the weight 0.

    The weight of an input is divided among its copies at random, with PyTorch's default random generator.

    >>> old = torch.tensor([[2.0, 4.0]])
    >>> axes = (Axis(kept(1)), Axis(widened(2, 4), summed=True))
    >>> weight = continued_weight(old, torch.zeros(1, 4), axes)
    >>> bool(torch.allclose(weight[:, :2] + weight[:, 2:], old))
    True
    """
    weight = _selected(old, axes)
    for dimension, axis in enumerate(axes):
        if axis.summed and bool((axis.copies() > 1).any()):
            weight = _shared(weight, axis, dimension)
    # Set the new outputs last, so that all weights of a new output are initial weights.
    for dimension, axis in sorted(enumerate(axes), key=lambda entry: not entry[1].summed):
        if bool((axis.units == NEW).any()):
            new = axis.is_new(dimension, weight.dim()).to(weight.device)
            weight = torch.where(new, torch.zeros_like(initial) if axis.summed else initial, weight)
    return weight


def _selected(values: Tensor, axes: Axes) -> Tensor:
    for dimension, axis in enumerate(axes):
        values = values.index_select(dimension, axis.units.clamp(min=0).to(values.device))
    return values


def _shared(weight: Tensor, axis: Axis, dimension: int) -> Tensor:
    """Divide the weight of each old unit among the copies of the unit, into random parts.

    Each part of the weight is rounded to a multiple of the last binary digit of the old weight, so that the sum of the
    parts equals the old weight exactly.
    """
    if weight.is_meta:
        return weight
    units = axis.units.clamp(min=0)
    # Compute on the CPU, because not all devices support float64, and because a seed then results in the same weights
    # on every device.
    exact = weight.detach().to("cpu", torch.float64)
    raw = 1 + UNEVENNESS * (2 * torch.rand(weight.shape, dtype=torch.float64) - 1)
    raw = raw.masked_fill(axis.is_new(dimension, weight.dim()), 0.0)
    digit = torch.exp2(torch.frexp(exact).exponent.double()) * (torch.finfo(weight.dtype).eps / 2)
    shares = torch.round(exact * raw / _totals(raw, units, dimension).index_select(dimension, units) / digit) * digit
    shares = torch.where(axis.is_new(dimension, weight.dim()), exact, shares)
    # Add the remainder of the rounding to the part of the last copy.
    positions = torch.arange(len(units)).masked_fill(axis.units == NEW, NEW)
    last = torch.full([int(units.max()) + 1], NEW).scatter_reduce(0, units, positions, "amax")
    known = last[last != NEW]
    rest = exact.index_select(dimension, known) - _totals(
        shares.masked_fill(axis.is_new(dimension, weight.dim()), 0.0), units, dimension
    ).index_select(dimension, (last != NEW).nonzero()[:, 0])
    return shares.index_add(dimension, known, rest).to(weight)


def _totals(values: Tensor, units: Tensor, dimension: int) -> Tensor:
    """Return the sum of `values` over the copies of each old unit."""
    sizes = list(values.shape)
    sizes[dimension] = int(units.max()) + 1
    return values.new_zeros(sizes).index_add(dimension, units, values)


def continued_moment(old: Tensor, axes: Axes, power: int) -> Tensor:
    """Return an optimizer's running mean of the gradients of a changed weight.

    `old`: running mean for the old weight. `power`: 1 for a mean of gradients, 2 for a mean of squared gradients. The
    gradient of an old output is divided among the copies of the output. If `power` is 1, the entries of `NEW` units
    start at 0. If `power` is 2, the entries of `NEW` units start at the mean of `old`, because an optimizer divides by
    the square root of the entries.
    """
    moment = _selected(old, axes)
    for dimension, axis in enumerate(axes):
        if not axis.summed:
            shape = [-1 if other == dimension else 1 for other in range(moment.dim())]
            moment = moment / axis.copies().view(shape).to(moment) ** power
    for dimension, axis in enumerate(axes):
        if bool((axis.units == NEW).any()):
            start = old.mean() if power == 2 else torch.zeros_like(old.mean())
            moment = torch.where(axis.is_new(dimension, moment.dim()).to(moment.device), start, moment)
    return moment
