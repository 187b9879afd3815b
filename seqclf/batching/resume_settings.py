"""Settings that decide the rows of each step, compared between a checkpoint and the run that resumes it.

The state in a checkpoint is `{"trained": batches of the running epoch that were trained on, "settings": {key: value}}`,
with keys as a user types them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqclf.errors import InputError

PLAN_KEYS = (
    "max_tokens",
    "max_sequences",
    "pool_batches",
    "overhead",
    "multiple_of",
    "edges",
    "balance",
    "largest_first",
)
RANKS = "batching.ranks"
MAX_TOKENS = "batching.max_tokens"


def changed_settings(state: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """Return the settings of the checkpoint that differ in `settings`, as `key=value`."""
    saved = state.get("settings", {})
    return [
        f"{key}={_as_typed(value)}"
        for key, value in saved.items()
        if key in settings and not _is_same(value, settings[key])
    ]


def planned_ranks(state: Mapping[str, Any]) -> int | None:
    """Return the number of ranks that the checkpoint's steps are planned for. None if the checkpoint does not say it.

    Checkpoints up to version 0.3 hold the ranks that trained instead.
    """
    saved = state.get("settings", {})
    if RANKS in saved:
        return saved[RANKS]
    return saved["trainer.devices"] * saved.get("trainer.num_nodes", 1) if "trainer.devices" in saved else None


def check_same_batches(origin: str, state: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """Return the changed settings, which are allowed between epochs only.

    Inside an epoch other batches would read some of its rows twice and others never. The next epoch is planned anew and
    reads every row once under any settings, so there a change is the user's choice, such as a smaller batch on a
    smaller device. Raises InputError if the checkpoint was written inside an epoch. The number of ranks that train may
    change anywhere, because the rows of a step do not depend on it.
    """
    changed = changed_settings(state, settings)
    inside = state.get("trained", 0) > 0
    if inside and RANKS not in state.get("settings", {}) and (planned_ranks(state) or 1) > 1:
        raise InputError(
            origin,
            f"was written inside an epoch of {planned_ranks(state)} ranks by an earlier version, which planned its "
            "steps differently",
            "resume with that version up to the end of the epoch, or choose a checkpoint from the end of an epoch",
        )
    if changed and inside:
        raise InputError(
            origin,
            f"was written inside an epoch, whose rows were batched with {' '.join(changed)}",
            "set the same to resume, or choose a checkpoint from the end of an epoch",
        )
    return changed


def _is_same(one: Any, other: Any) -> bool:
    # True == 1 in Python, but not in a config.
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _as_typed(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else str(value)
