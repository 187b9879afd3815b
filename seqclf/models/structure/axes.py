"""Axes of weights by the old units that the new ones continue, and the new weights that follow from them.

A network is widened by copies of its units, as in Net2Net (Chen et al. 2016). Copies compute the same value, and the
weights that read them share the old weight between them. So the network computes the same function, and since the
shares are unequal the copies do not stay the same.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

NEW = -1  # a unit that continues none
UNEVENNESS = 0.5  # shares of two copies are between 1/4 and 3/4


class Axis(NamedTuple):
    """An axis of a weight. `units`: (N,) int64 old unit that each unit continues, or `NEW`.

    `summed`: the layer sums over this axis, so that the weights of copies share the weight of their unit. The units of
    other axes are outputs of the layer, and those of copies are equal.
    """

    units: Tensor
    summed: bool = False

    def is_kept(self, size: int) -> bool:
        """Return True if all `size` old units are left as they were."""
        return len(self.units) == size and bool((self.units == torch.arange(size)).all())

    def copies(self) -> Tensor:
        """Return the number of copies (N,) of the old unit of each unit."""
        known = self.units.clamp(min=0)
        return torch.bincount(known[self.units >= 0], minlength=int(known.max()) + 1)[known].clamp(min=1)

    def is_new(self, dimension: int, dimensions: int) -> Tensor:
        """Return a mask of the new units that broadcasts over a weight with this axis as its `dimension`."""
        shape = [1] * dimensions
        shape[dimension] = len(self.units)
        return (self.units == NEW).view(shape)


Axes = tuple[Axis, ...]


def kept(size: int) -> Tensor:
    """Return the units of an axis that stays as it is."""
    return torch.arange(size)


def widened(old: int, new: int) -> Tensor:
    """Return the units of an axis that grows from `old` to `new` units by copies.

    >>> widened(3, 5).tolist()
    [0, 1, 2, 0, 1]
    """
    return torch.arange(new) % old


def blocks(units: Tensor, size: int, count: int) -> Tensor:
    """Return the units of an axis of `count` blocks, such as gates, of which each had `size` units.

    >>> blocks(torch.tensor([0, 1, 0]), size=2, count=2).tolist()
    [0, 1, 0, 2, 3, 2]
    """
    return torch.cat([offset(units, index * size) for index in range(count)])


def offset(units: Tensor, by: int) -> Tensor:
    """Return units whose numbers begin at `by`, those that are new left out."""
    return torch.where(units == NEW, NEW, units + by)


def is_even(units: Tensor) -> bool:
    """Return True if all units have the same number of copies, which leaves their mean and variance as they were.

    >>> is_even(widened(3, 6)), is_even(widened(3, 5))
    (True, False)
    """
    return bool((units != NEW).all()) and len(torch.bincount(units).unique()) == 1


def continued_weight(old: Tensor, initial: Tensor, axes: Axes) -> Tensor:
    """Return a weight that continues `old`. New outputs are those of `initial`. New inputs have the weight 0.

    The shares of copies are drawn from the default generator.

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
    # Outputs last: a new one keeps all of its initial weights.
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
    """Return a weight with its copies along an axis divided into random shares, whose sum is exactly the weight.

    A share is rounded to a multiple of the last digit of its weight, so that no sum of shares is rounded.
    """
    if weight.is_meta:
        return weight
    units = axis.units.clamp(min=0)
    # Drawn and computed on the CPU: a seed gives the same weights on every device, and not all have float64.
    exact = weight.detach().to("cpu", torch.float64)
    raw = 1 + UNEVENNESS * (2 * torch.rand(weight.shape, dtype=torch.float64) - 1)
    raw = raw.masked_fill(axis.is_new(dimension, weight.dim()), 0.0)
    digit = torch.exp2(torch.frexp(exact).exponent.double()) * (torch.finfo(weight.dtype).eps / 2)
    shares = torch.round(exact * raw / _totals(raw, units, dimension).index_select(dimension, units) / digit) * digit
    shares = torch.where(axis.is_new(dimension, weight.dim()), exact, shares)
    # What rounding left over goes to the last copy.
    positions = torch.arange(len(units)).masked_fill(axis.units == NEW, NEW)
    last = torch.full([int(units.max()) + 1], NEW).scatter_reduce(0, units, positions, "amax")
    known = last[last != NEW]
    rest = exact.index_select(dimension, known) - _totals(
        shares.masked_fill(axis.is_new(dimension, weight.dim()), 0.0), units, dimension
    ).index_select(dimension, (last != NEW).nonzero()[:, 0])
    return shares.index_add(dimension, known, rest).to(weight)


def _totals(values: Tensor, units: Tensor, dimension: int) -> Tensor:
    """Return the sums of the values of the copies of each unit."""
    sizes = list(values.shape)
    sizes[dimension] = int(units.max()) + 1
    return values.new_zeros(sizes).index_add(dimension, units, values)


def continued_moment(old: Tensor, axes: Axes, power: int) -> Tensor:
    """Return a running mean of gradients (`power` 1) or of their squares (2) of a weight with these axes.

    The gradient of a unit is shared by its copies. New entries start at 0, or at the mean square of the others, since
    an optimizer divides by its root.
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
