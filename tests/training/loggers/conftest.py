"""Settings of a logger as the config gives them, and a finished run without a training."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from seqclf.config.hydra_config import compose_config
from seqclf.evaluation.comparison import Comparison
from seqclf.evaluation.decision import Decision
from seqclf.evaluation.result import ModelResult, RunResult
from seqclf.evaluation.scores import ScoredRows
from seqclf.evaluation.split_result import judge_split
from seqclf.settings.train_settings import LoggerOptions
from seqclf.training.loggers.run_logger import LoggedRun

CLASSES = ["no", "yes"]
COMPARISON = [
    Comparison(metric="recall", model=0.8, baseline=0.7, difference=0.1, low=0.02, high=0.18),
    Comparison(metric="accuracy", model=0.9, baseline=0.9, difference=0.0, low=-0.04, high=0.04),
]


class StubRun:
    offline = False
    """Records what `log_result` hands to a run of W&B."""

    def __init__(self) -> None:
        self.logged, self.summary = {}, {}

    def log(self, values: dict[str, Any]) -> None:
        self.logged |= values

    def alert(self, title: str, text: str) -> None:
        pass

    def define_metric(self, name: str, **options: Any) -> None:
        pass

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code


@pytest.fixture
def settings() -> Callable[..., dict[str, Any]]:
    def compose_block(*overrides: str) -> dict[str, Any]:
        block = compose_config("train", overrides).plain()["logger"]
        return TypeAdapter(LoggerOptions).validate_python(block).model_dump()

    return compose_block


@pytest.fixture
def finished(tmp_path) -> LoggedRun:
    generator = np.random.default_rng(0)
    outputs = {}
    for split in ("train", "validation", "test"):
        labels = np.arange(40) % 2
        logits = generator.standard_normal((40, 2)).astype(np.float32)
        logits[np.arange(40), labels] += 1
        outputs[split] = ScoredRows(logits, labels, generator.integers(1, 30, 40), np.zeros(40, bool))
    metrics = {
        split: judge_split(rows, CLASSES, "yes", Decision(), with_intervals=False) for split, rows in outputs.items()
    }
    names = ModelResult.__dataclass_fields__.keys() & vars(metrics["test"]).keys()
    baseline = ModelResult(
        **{name: getattr(metrics["validation"], name) for name in names},
        name="order-blind",
        kind="counts",
        comparisons=COMPARISON,
    )
    result = RunResult(splits=metrics, decision=Decision(), baseline=baseline, trained_steps=12)
    folder = tmp_path / "run"
    (folder / "bundle").mkdir(parents=True)
    for name in ("report.html", "metrics.json", "bundle/model.onnx"):
        (folder / name).write_text(f"content of {name}")
    dataset = SimpleNamespace(classes=CLASSES, digest="d1gest", splits={})
    return LoggedRun(
        name="cards",
        folder=folder,
        epochs=3,
        dataset=dataset,
        result=result,
        rows=outputs,
        report=folder / "report.html",
        bundle=folder / "bundle",
    )
