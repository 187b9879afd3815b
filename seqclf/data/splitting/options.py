"""Validated options of the config block `data.split`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from seqclf.config.options import Options, Share, Text, ZeroOrMore
from seqclf.errors import InputError

ALL_FOLDS = "all"


class SplitOptions(Options):
    """Options of `data.split`, which divide the training source among splits without a file."""

    by: Literal["random", "distinct", "group", "time", "fold"]
    column: Text | None
    validation: Share
    test: Share
    folds: Annotated[int, Field(ge=2)]
    fold: ZeroOrMore | Literal["all"]
    seed: ZeroOrMore
    on_leak: Literal["warn", "error", "drop", "drop_earlier"]

    def shares(self, splits_with_file: set[str]) -> dict[str, float]:
        """Return dict split → fraction of the training source, for validation and test without a file of their own."""
        shares = {"validation": self.validation, "test": self.test}
        return {name: share for name, share in shares.items() if name not in splits_with_file}

    def check(self, group: str | None, splits_with_file: set[str]) -> None:
        """Raise InputError if the options contradict each other, `data.group` or the splits that have a file."""
        shares = self.shares(splits_with_file)
        if self.by == "time" and self.column is None:
            raise InputError("data.split.by=time", "needs data.split.column=COLUMN")
        if self.by != "time" and self.column is not None:
            raise InputError(
                f"data.split.column={self.column}", "holds the times of data.split.by=time", "set data.group"
            )
        if self.by == "group" and group is None:
            raise InputError("data.split.by=group", "needs data.group=COLUMN")
        if sum(shares.values()) >= 1:
            settings = " and ".join(f"data.split.{name}={share}" for name, share in shares.items())
            raise InputError(settings, "nothing is left for train", "their sum must be below 1")
        if self.by == "fold" and isinstance(self.fold, int) and self.fold >= self.folds:
            raise InputError(f"data.split.fold={self.fold}", f"must be all, or a number from 0 to {self.folds - 1}")
        if self.by != "fold" and self.fold == ALL_FOLDS:
            raise InputError("data.split.fold=all", "is for folds", "set data.split.by=fold")
        if self.by == "fold" and "test" in splits_with_file:
            raise InputError("data.split.by=fold", "makes the test of a fold of train", "leave out data.test, or fold")
        if shares.get("validation") == 0:
            raise InputError("data.split.validation=0", "no validation rows", "give data.validation=FILE or a share")
