"""Explanations of a few rows for a page, at a bounded cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from seqclf.bundle.occlusion import log_odds, occlude, with_none
from seqclf.data.storage.ragged import Ragged

if TYPE_CHECKING:
    from seqclf.bundle.runtime import Classifier

MAX_TOKENS = 100_000  # that all explanations together may read: half a second on two cores with the default LSTM


class BriefExplainer:
    """Contributions of the shown tokens of one row after the other, which may read `max_tokens` together.

    ```python
    explain = BriefExplainer(Classifier("runs/fraud/bundle"))
    explain({"shop": np.array([3, 1, 4])}, predicted=1, positions=[0, 1, 2])  # three floats
    ```
    """

    def __init__(self, classifier: Classifier, max_tokens: int = MAX_TOKENS):
        self.classifier = classifier
        self.tokens_left = max_tokens

    def __call__(
        self, fields: Mapping[str, np.ndarray], predicted: int, positions: Sequence[int]
    ) -> list[float | None] | None:
        """Return the contribution of each token at `positions` to class `predicted`. None for a row beyond the budget.

        Tokens that the model did not read have None.

        `fields`: name → (T,) or (T, D) of one encoded row, for trees with the parents of the nodes.
        """
        arrays = {spec["name"]: fields[spec["name"]] for spec in self.classifier.specs}
        length = len(next(iter(arrays.values())))
        cost = length * (1 + len(positions))
        if cost > self.tokens_left:
            return None
        self.tokens_left -= cost
        sequences, decision = Ragged(np.array([0, length]), arrays), self.classifier.decision

        def score(copies: Ragged, rows: np.ndarray) -> np.ndarray:
            return log_odds(decision.scaled(self.classifier.logits(copies)), np.full(len(rows), predicted))

        encoders, tokens = self.classifier.encoders, np.array(positions, np.int64)
        tokens_read = self.classifier.read(sequences)[1] if self.classifier.may_halt else None
        return with_none(
            occlude(encoders, sequences, score, by_field=False, tokens=tokens, tokens_read=tokens_read).tokens
        )
