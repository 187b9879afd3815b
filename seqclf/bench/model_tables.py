"""The comparison of models in the terminal, and the cells of its tables."""

from __future__ import annotations

from rich.table import Table

from seqclf.bench.benchmark import speed_text
from seqclf.bench.model_comparison import ModelComparison, ModelFigures
from seqclf.bench.tables import workload_line
from seqclf.documents.terminal import console

TRAINING = ("tokens/s", "against", "step ms", "memory MB")
PREDICTION = ("tokens/s", "against", "weights")


def training_cells(figures: ModelFigures) -> list[str]:
    """Return the cells of a model under `TRAINING`, empty where nothing was measured."""
    training = figures.training
    memory = "" if training.memory_mb is None else f"{training.memory_mb:,.0f}"
    return [f"{training.tokens_per_s:,.0f}", _against(training.time_ratio), f"{training.step_ms:.2f}", memory]


def prediction_cells(figures: ModelFigures) -> list[str]:
    """Return the cells of a model under `PREDICTION`, empty where nothing was measured."""
    prediction = figures.prediction
    return [f"{prediction.tokens_per_s:,.0f}", _against(prediction.time_ratio), f"{figures.weights:,}"]


def _against(time_ratio: float | None) -> str:
    return "" if time_ratio is None else speed_text(time_ratio)


def show_comparison(result: ModelComparison, reference: str) -> None:
    """Print the figures of one workload."""
    console.print(f"\n{workload_line(result)}", soft_wrap=True)
    for title, headings, cells in (
        ("training", TRAINING, training_cells),
        ("prediction", PREDICTION, prediction_cells),
    ):
        table = Table(box=None, padding=(0, 1, 0, 0))
        table.add_column(title, no_wrap=True, min_width=12)
        for heading in headings:
            table.add_column(f"against {reference}" if heading == "against" else heading, justify="right")
        for name, figures in result.models.items():
            table.add_row(name, *cells(figures))
        console.print(table)
    for name, message in result.errors.items():
        console.print(f"  {name} did not run: {message}", style="yellow", soft_wrap=True)
