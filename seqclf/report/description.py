"""The description of a result: one table of parts, of which a page, the terminal and a model card each show some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from seqclf.data.storage.dataset import Dataset
from seqclf.documents.blocks import Document, Section
from seqclf.documents.formatting import number, percent, shortened
from seqclf.documents.html import render_document
from seqclf.documents.markdown import render_markdown
from seqclf.documents.terminal import show_section
from seqclf.evaluation.result import Facts, RunResult
from seqclf.evaluation.scores import ScoredRows
from seqclf.report.breakdowns import classes_section, confusion_section, lengths_section, periods_section, periods_table
from seqclf.report.mistakes import mistakes_section, suspects_section
from seqclf.report.model_card import data_section, limits_section, purpose, use_section
from seqclf.report.reliability import calibration_section
from seqclf.report.reported import Reported, of_run
from seqclf.report.score_tables import (
    against_section,
    card_section,
    headline_section,
    verdict_section,
    weighted_section,
)
from seqclf.report.threshold import first_alerts_section, threshold_section
from seqclf.report.training_record import epochs_section, provenance_section
from seqclf.report.verdict import verdict_of
from seqclf.system import progress
from seqclf.system.atomic_files import write_output

MEDIA = PAGE, CARD, TERMINAL = "page", "card", "terminal"


class Part(NamedTuple):
    """A part of the description. `build`: function to its section, None where it does not apply. `on`: its media."""

    build: Callable[[Reported], Section | None]
    on: tuple[str, ...]


PARTS = (  # in the order of the description
    Part(headline_section, (TERMINAL,)),
    Part(verdict_section, (PAGE,)),
    Part(card_section, (CARD,)),
    Part(weighted_section, MEDIA),
    Part(against_section, (PAGE, TERMINAL)),
    Part(threshold_section, (PAGE,)),
    Part(epochs_section, (PAGE,)),
    Part(confusion_section, (PAGE,)),
    Part(classes_section, (PAGE,)),
    Part(lengths_section, (PAGE, CARD)),
    Part(first_alerts_section, (PAGE,)),
    Part(periods_section, (PAGE,)),
    Part(periods_table, (TERMINAL,)),
    Part(calibration_section, (PAGE,)),
    Part(mistakes_section, (PAGE,)),
    Part(suspects_section, (PAGE,)),
    Part(data_section, (CARD,)),
    Part(limits_section, (CARD,)),
    Part(use_section, (CARD,)),
    Part(provenance_section, (PAGE,)),
)


def describe(reported: Reported, medium: str) -> Document:
    """Return the description of a result for one of `MEDIA`."""
    built = (part.build(reported) for part in PARTS if medium in part.on)
    sections = [section for section in built if section is not None]
    if medium == CARD:
        return Document("Model card", purpose(reported), sections)
    verdict = verdict_of(reported.result)
    return Document(
        shortened(reported.title),
        verdict.result,
        sections,
        lead=verdict.use,
        answers=verdict.answers,
        facts=_facts(reported) if medium == PAGE else {},
        alerts=reported.facts.warnings,
    )


def write_page(path: Path, reported: Reported) -> None:
    """Write report.html, a page that works without other files and without a network."""
    with progress.stage("writing the report"):
        write_output(path, render_document(describe(reported, PAGE)))


def write_run_page(path: Path, run: Path, dataset: Dataset | None, result: RunResult, facts: Facts) -> None:
    """Write the page on a run (see `of_run`)."""
    write_page(path, of_run(run, dataset, result, facts))


def card_text(reported: Reported) -> str:
    """Return MODEL_CARD.md, the description of an exported model for readers who do not have its training run."""
    return render_markdown(describe(reported, CARD))


def show(reported: Reported) -> None:
    """Print the verdict with the main scores, and what else the terminal shows."""
    for section in describe(reported, TERMINAL).sections:
        show_section(section)


def _facts(reported: Reported) -> dict[str, list[str]]:
    """Return dict name → lines: data, row counts, classes, date and version, below the headline of a page."""
    held_out = f" + {number(reported.result.holdout_rows)} for the threshold" if reported.result.holdout_rows else ""
    counts = (
        f"{split} {number(len(rows.labels))}{held_out if split == 'validation' else ''}"
        for split, rows in reported.result.rows.items()
        if split in reported.result.splits
    )
    facts = {
        "Data": _data(reported),
        "Rows": [", ".join(counts)],
        "Classes": [number(len(reported.result.classes))],
        "Outputs": _outputs(reported.rows),
        "Bundle": [reported.bundle],
        "Written": [None if reported.created is None else reported.created.strftime("%Y-%m-%d %H:%M %Z").strip()],
        "seqclf": [reported.versions.get("seqclf")],
    }
    known = {name: [line for line in lines if line] for name, lines in facts.items()}
    return {name: lines for name, lines in known.items() if lines}


def _outputs(rows: ScoredRows) -> list[str | None]:
    """Return a line about each number that the network returns beside its logits: its mean, or the share of tokens."""
    lines: list[str | None] = []
    for name, values in rows.extra.items():
        if name == "tokens_read" and rows.lengths.any():
            lines.append(f"{name}: {percent(values.sum() / rows.lengths.sum())} of the tokens")
        elif values.ndim == 1:
            lines.append(f"{name}: {values.mean():.4g} on average")
    return lines


def _data(reported: Reported) -> Sequence[str | None]:
    """Return one line for each split with the source of its rows, or one for all."""
    sources = reported.sources
    if len(set(sources.values())) == 1:
        return list(sources.values())[:1]
    return [f"{split}: {source}" for split, source in sources.items()]
