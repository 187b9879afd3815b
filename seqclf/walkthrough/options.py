"""The config of the command `walkthrough`. This module does not import PyTorch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from seqclf.config.options import Text
from seqclf.config.targets import read_trust
from seqclf.training.options import TrainConfig

MAX_ROWS = 50  # more rows make the page hard to read


class WalkthroughConfig(TrainConfig):
    """The training config with additional keys about the rows to show.

    conf/walkthrough.yaml has the description and the default of each key.
    """

    input: Text | None
    sequence: Text | None
    split: Literal["train", "validation", "test"] | None
    rows: Annotated[int, Field(ge=1, le=MAX_ROWS)]
    output: Text | None
    trust: Annotated[bool | tuple[str, ...], BeforeValidator(read_trust)]
