"""A stage of the pipeline from raw rows to labels. This module does not import PyTorch.

In the shapes of this package, B is the number of rows, T the number of tokens after padding, D the number of channels,
and C the number of classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqclf.documents.blocks import Block


@dataclass(frozen=True)
class Stage:
    """One stage of the pipeline.

    `title`: name of the stage for readers. `text`: explanation of the stage for a page. `blocks`: tables and heat maps
    of the stage. `values`: array of the stage, or `None` for lists of rows. `axes`: name of each axis of `values`.
    `module`: dotted path of the network module that computes the stage. `note`: additional sentences about the rows,
    shown on a page and in the terminal.
    """

    title: str
    text: str
    blocks: Sequence[Block | None]
    values: np.ndarray | None = None
    axes: tuple[str, ...] = ()
    module: str = ""
    note: str = ""

    @property
    def shape_text(self) -> str:
        """The shape of `values` with axis names, or "" if there are no values.

        >>> Stage("", "", [], np.zeros((4, 3)), ("rows", "tokens")).shape_text
        '(4, 3) = (rows, tokens)'
        """
        if self.values is None:
            return ""
        return f"({', '.join(f'{size:,}' for size in self.values.shape)}) = ({', '.join(self.axes)})"
