"""Compare the settings that decide the rows of each step, between a checkpoint and the run that resumes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from seqclf.errors import InputError
from seqclf.system.state_validation import COUNT, Each, Where

PLAN_KEYS = ("max_tokens", "max_sequences", "pool_batches", "overhead", "balance")
RANKS = "batching.ranks"
# State: the batches of the epoch that were trained, and keys as on the command line; RANKS: those that are planned for.
POSITION = {
    "settings": Where(
        Each((int, float, str, bool, None)), lambda settings: RANKS in settings, f"settings with {RANKS}"
    ),
    "trained": COUNT,
}


def check_same_batches(origin: str, state: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """Return `key=value` for each setting of a checkpoint that differs in the run that resumes it.

    Raises InputError inside an epoch, where a changed setting would read some rows twice and skip others.
    """
    changed = [
        f"{key}={_text(value)}"
        for key, value in state["settings"].items()
        if key in settings and _text(value) != _text(settings[key])
    ]
    if changed and state["trained"] > 0:
        raise InputError(
            origin,
            f"was written inside an epoch, whose rows were batched with {' '.join(changed)}",
            "set the same to resume, or choose a checkpoint from the end of an epoch",
        )
    return changed


def _text(value: Any) -> str:
    """Return a value as in a config. Texts are compared, because True == 1, but `true` and `1` differ in a config."""
    return json.dumps(value).strip('"')
