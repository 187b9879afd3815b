"""The command `walkthrough`: show rows at every stage of a model, in the terminal and on a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seqclf.config.command import command
from seqclf.config.override_text import key_of
from seqclf.errors import InputError
from seqclf.system.json_result import JsonResult

if TYPE_CHECKING:
    from seqclf.command_options import WalkthroughConfig
    from seqclf.walkthrough.shown_rows import RowReader, ShownRows

PAGE = "walkthrough.html"
# Config keys about the shown rows and the page. All other keys configure training, so they are invalid with a
# checkpoint.
OF_THE_PAGE = ("checkpoint", "trust", "input", "sequence", "rows", "output", "hydra")


@dataclass(frozen=True, kw_only=True)
class WalkthroughResult(JsonResult):
    """Result that `walkthrough` prints as one JSON line.

    `page`: path of the page. `rows`: number of rows on the page. `refused`: number of rejected rows.
    """

    page: str
    checkpoint: str
    rows: int
    refused: int


@command("walkthrough", "seqclf.command_options.WalkthroughConfig")
def main(config: WalkthroughConfig) -> WalkthroughResult | None:
    """Show some rows at every stage of a model. If no `checkpoint` is given, train the model first."""
    from seqclf.config.hydra_command import run_folder, typed_overrides
    from seqclf.system.run_folder import remove_empty_folder

    _check(config, typed_overrides())
    page = Path(config.output) if config.output else run_folder() / PAGE
    if config.checkpoint is not None:
        result = _show(config, Path(config.checkpoint), page)
        remove_empty_folder(run_folder())  # nothing is written to the run folder if `output` is outside it
        return result
    checkpoint = _train(config, run_folder())
    return None if checkpoint is None else _show(config, checkpoint, page)


def _check(config: WalkthroughConfig, overrides: Sequence[str]) -> None:
    """Reject contradictory settings before training starts. `overrides`: the arguments of the command."""
    from seqclf.bundle.row_writers import check_output_path
    from seqclf.data.reading.sources import Source, fetched, readable_files

    named = [f"{name}={getattr(config, name)}" for name in ("input", "sequence", "split") if getattr(config, name)]
    if len(named) > 1:
        raise InputError(f"{named[0]} and {named[1]}", "both say what to show", "remove one of them")
    if config.output is not None:
        if Path(config.output).suffix.lower() not in (".html", ".htm"):
            raise InputError(f"output={config.output}", "is no page", "end it in .html")
        check_output_path(Path(config.output))
    if config.input is not None:
        readable_files(fetched(Source(config.input, "input")))
    if config.checkpoint is None:
        if config.trainer["fast_dev_run"]:
            raise InputError("trainer.fast_dev_run", "leaves no model to show", "remove it, or use seqclf train")
        return
    of_training = [key for key in map(key_of, overrides) if key.partition(".")[0] not in OF_THE_PAGE]
    if of_training:
        problem = f"is of a training or its data, and checkpoint={config.checkpoint} is trained"
        raise InputError(of_training[0], problem, "remove one of the two")
    if not named:
        where = f"checkpoint={config.checkpoint}"
        raise InputError(where, "name rows to show", "add input=FILE or sequence=TEXT_OR_JSON")


def _train(config: WalkthroughConfig, run: Path) -> Path | None:
    """Train a model as `seqclf train` does, and return its checkpoint. Ranks other than 0 return `None`."""
    from seqclf.runs.steps import run_training

    if run_training(config, run, prints_verdict=False) is None:
        return None
    folder = run / "checkpoints"
    return next(path for path in (folder / "best.ckpt", folder / "last.ckpt") if path.is_file())


def _show(config: WalkthroughConfig, checkpoint: Path, page: Path) -> WalkthroughResult:
    from seqclf.documents.html import render_document
    from seqclf.documents.terminal import console, show_document
    from seqclf.evaluation.decisions.decision import Decision
    from seqclf.system import progress
    from seqclf.system.atomic_files import write_output
    from seqclf.training.module import load_task
    from seqclf.walkthrough.inspect_rows import inspect_rows
    from seqclf.walkthrough.run_files import result_of
    from seqclf.walkthrough.shown_rows import RowReader
    from seqclf.walkthrough.stages import walkthrough_document

    with progress.stage("loading the model"):
        # A model that this command has just trained uses only packages from the user's own config, so it is trusted.
        task = load_task(checkpoint, config.trust if config.checkpoint is not None else True)
        reader = RowReader(task.hparams["dataset"])
    rows = _rows(config, reader)
    run = result_of(checkpoint, task.trained_steps)
    if run is not None and run.halting is not None:
        task.model.threshold = run.halting.threshold_of(None)
    stages = inspect_rows(task, rows, Decision() if run is None else run.decision)
    weights = sum(weight.numel() for weight in task.model.parameters())
    facts = {"model": f"{type(task.model).__name__}, {weights:,} weights", "checkpoint": str(checkpoint)}
    document = walkthrough_document(stages, rows.refused, facts)
    show_document(document)
    with progress.stage("writing the page"):
        write_output(page, render_document(document))
    console.print(f"page: {page}", soft_wrap=True)
    return WalkthroughResult(page=str(page), checkpoint=str(checkpoint), rows=len(rows), refused=len(rows.refused))


def _rows(config: WalkthroughConfig, reader: RowReader) -> ShownRows:
    from seqclf.data.prepare import prepare

    if config.sequence is not None:
        return reader.of_text(config.sequence)
    if config.input is not None:
        return reader.of_file(config.input, config.rows)
    dataset = prepare(config.data)  # usually read from the cache that training wrote
    split = config.split or list(dataset.splits)[-1]
    if split not in dataset.splits:
        raise InputError(f"split={split}", "the data has none", f"choose {' or '.join(dataset.splits)}")
    return reader.of_split(dataset.splits[split], dataset.classes, config.rows)


if __name__ == "__main__":
    main()
