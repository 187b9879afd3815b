"""Compare the settings that decide the rows of each step, between a checkpoint and the run that resumes it.

The state in a checkpoint is `{"trained": number of batches of the current epoch that were trained on, "settings": {key:
value}}`. A key of the settings is written as on the command line, such as `batching.max_tokens`.
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
    """Return `key=value` for each setting whose value in the checkpoint differs from its value in `settings`."""
    saved = state.get("settings", {})
    return [
        f"{key}={_as_typed(value)}"
        for key, value in saved.items()
        if key in settings and not _is_same(value, settings[key])
    ]


def planned_ranks(state: Mapping[str, Any]) -> int | None:
    """Return the number of ranks for which a checkpoint's steps are planned, or None if the number is not stored.

    Checkpoints up to version 0.3 store only the number of running ranks, which is then returned.
    """
    saved = state.get("settings", {})
    if RANKS in saved:
        return saved[RANKS]
    return saved["trainer.devices"] * saved.get("trainer.num_nodes", 1) if "trainer.devices" in saved else None


def check_same_batches(origin: str, state: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """Return the settings that differ between a checkpoint and the run that resumes it.

    Raises InputError if the checkpoint was written inside an epoch and a setting differs. Inside an epoch, a changed
    setting would cause some rows to be read twice and other rows to be skipped. Between epochs, a setting may change,
    because the next epoch is planned anew and reads every row once. The number of running ranks may change at any step,
    because it does not change the rows of a step.
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
    # The types are compared too, because True == 1 in Python, but `true` and `1` differ in a config.
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _as_typed(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else str(value)
