"""Callback of Hydra that compares the runs of a multirun, `seqclf train -m`, after the last one."""

from __future__ import annotations

from glob import escape
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from seqclf.system.run_folder import is_first_rank


class CompareRuns(Callback):
    """Prints the comparison of the runs of a multirun. Hydra turns an error in a callback into a warning."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        from seqclf.report.run_comparison import show_runs  # slow to import, and a single run needs none of it

        if is_first_rank():
            show_runs(f"{escape(config.hydra.sweep.dir)}/*")
