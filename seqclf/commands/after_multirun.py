"""Callback of Hydra that compares the runs of a multirun, `seqclf train -m`, after the last one."""

from __future__ import annotations

import sys
from glob import escape
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from seqclf.system.run_folder import FAILURE, is_first_rank


class CompareRuns(Callback):
    """Prints the comparison of the runs of a multirun, with the failed ones, for which the command exits with code 2.

    Hydra turns an error in a callback into a warning.
    """

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        for earlier in _failures(config):
            earlier.unlink()

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        from seqclf.documents.formatting import shown_path
        from seqclf.documents.terminal import show_note
        from seqclf.runs.run_comparison import show_runs  # slow to import, and a single run needs none of it

        failures = _failures(config)
        if is_first_rank() and not show_runs(f"{escape(config.hydra.sweep.dir)}/*"):
            for path in failures:
                show_note(f"{shown_path(path.parent)}: {path.read_text(encoding='utf-8')}")
        if failures:
            sys.exit(2)


def _failures(config: DictConfig) -> list[Path]:
    """Return the files of the failed jobs of a multirun, which may have run in other processes."""
    return sorted(Path(config.hydra.sweep.dir).rglob(FAILURE))
