"""The config of `walkthrough`, checked without PyTorch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from seqclf.config.options import Text
from seqclf.config.targets import read_trust
from seqclf.training.options import TrainConfig

MAX_ROWS = 50  # that a page shows readably


class WalkthroughConfig(TrainConfig):
    """The config of a training, and the rows to show. conf/walkthrough.yaml explains each key and holds its default."""

    input: Text | None
    sequence: Text | None
    split: Literal["train", "validation", "test"] | None
    rows: Annotated[int, Field(ge=1, le=MAX_ROWS)]
    examples: dict[str, list[Any]]
    output: Text | None
    trust: Annotated[bool | tuple[str, ...], BeforeValidator(read_trust)]
