"""Sentences about models that decide how many tokens they read."""

from __future__ import annotations

from seqclf.evaluation.tokens_curve import TokensCurve
from seqclf.reporting.formatting import percent, score


def halting_sentence(curve: TokensCurve, split: str) -> str:
    """Return the saving at the operating point on a split, and what it costs."""
    point, everything = curve.point(split), curve.splits[split][-1]
    return (
        f"reads {percent(point.tokens)} of the tokens of {split}: macro recall {score(point.recall)}, "
        f"{score(everything.recall)} reading all"
    )
