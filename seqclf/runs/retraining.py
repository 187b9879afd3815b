"""Retraining: the recipe of a bundle on other data, and the comparison of the new model with the old one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from omegaconf import OmegaConf

from seqclf.bundle.runtime import Classifier
from seqclf.bundle.scoring import labelled_sources, predict_labelled
from seqclf.config.build import require_trusted
from seqclf.data.encoding.declaration import declared_fields
from seqclf.data.prepare_data import prepare
from seqclf.data.reading.sources import source_of
from seqclf.documents.terminal import console, show_note
from seqclf.errors import InputError
from seqclf.evaluation.comparison import Comparison, deciding_metric
from seqclf.evaluation.judge import compare_rows
from seqclf.runs.run_comparison import ComparedRun, matched, read_runs
from seqclf.runs.run_training import run_training
from seqclf.runs.training_run import what_differs
from seqclf.settings.base import parse_options
from seqclf.settings.command_settings import RetrainConfig
from seqclf.settings.train_settings import TrainConfig, recipe_of
from seqclf.system.json_result import JsonResult
from seqclf.system.run_folder import MODEL, run_outputs
from seqclf.training.task import load_task

NO_RUNTIME = {"checkpoint": None, "start": None, "overwrite": False, "export": True}


@dataclass(frozen=True, kw_only=True)
class RetrainResult(JsonResult):
    """Result of `retrain`, printed as a JSON line. The exit code is 1 unless the new model should be promoted.

    `promote`: True if the new model may be used, and is shown to be better than the old one. `reasons`: what speaks
    against it. `rows`: number of rows on which both were compared, of `split`. `difference`: new minus old.
    """

    run: str
    bundle: str
    promote: bool
    reasons: list[str]
    split: str
    rows: int
    difference: Comparison | None

    @property
    def exit_code(self) -> int:
        """Exit code of the command."""
        return 0 if self.promote else 1


def retrain(config: RetrainConfig, run: Path, typed: Sequence[str]) -> RetrainResult:
    """Train the recipe of a bundle on other data in the folder `run`, and compare both models on the held-out rows.

    `typed`: overrides that the user typed; other keys of `data` and `trainer` have the values of the bundle. Raises
    InputError for a bundle without a recipe, and for data that cannot be used.
    """
    if run_outputs(run):
        raise InputError(f"hydra.run.dir={run}", "holds a run already", "name another folder")
    old = Classifier(config.bundle, device="cpu")
    training = _with_weights(config, _train_config(config, old, typed))
    run_training(training, run, prints_verdict=False)
    (new,), _ = read_runs([str(run)])
    reasons, rows, difference = list(new.result.not_yet), 0, None
    try:
        rows, difference = _compared(old, new, training)
        if not difference.is_better:
            shown = "shown to be worse than" if difference.is_worse else "not shown to be better than"
            reasons.append(f"it is {shown} the old model")
    except InputError as error:
        reasons.append(f"it cannot be compared with the old model: {error}")
    if difference is not None:
        line = f"new {difference.model:.3f}, old {difference.baseline:.3f} {difference.title} on {rows:,} rows of "
        line += f"{new.split}: {difference.difference:+.3f} ({difference.low:+.3f} to {difference.high:+.3f})"
        console.print(line, soft_wrap=True)
    verdict = f"not yet, because {'; '.join(reasons)}" if reasons else "yes"
    console.print(f"promote: {verdict}", soft_wrap=True)
    return RetrainResult(
        run=str(run),
        bundle=str(run / "bundle"),
        promote=not reasons,
        reasons=reasons,
        split=new.split,
        rows=rows,
        difference=difference,
    )


def _train_config(config: RetrainConfig, old: Classifier, typed: Sequence[str]) -> TrainConfig:
    """Return the config of the training: the recipe, which `settings` and typed keys of data and trainer replace."""
    recipe = old.manifest.get("recipe")
    if recipe is None:
        raise InputError(f"bundle={config.bundle}", "holds no recipe", "export it by seqclf train of this version")
    require_trusted(recipe, f"bundle={config.bundle}: recipe", ("seqclf", "torch"), config.trust)
    recipe = recipe_of(recipe)  # a bundle of others may name files and callbacks
    given = {"data": config.data, "trainer": config.trainer}
    blocks: dict[str, Any] = {key: {**given[key], **recipe[key]} for key in given}
    blocks["data"] |= declared_fields(old.schema)
    for declared in blocks["data"]["fields"].values():
        declared.pop("vectors", None)  # the recipe does not hold their file
    merged = OmegaConf.merge(OmegaConf.create({"metrics": [], **recipe, **blocks}), config.settings or {})
    for text in typed:
        path = text.lstrip("+").partition("=")[0]
        if path.partition(".")[0] in given:
            OmegaConf.update(merged, path, OmegaConf.select(OmegaConf.create(given), path), force_add=True)
    plain: Any = OmegaConf.to_container(merged)
    seed = recipe["seed"] if config.seed is None else config.seed
    values = {**plain, "logger": config.logger.model_dump(), "seed": seed, **NO_RUNTIME}
    if missing := next((name for name in TrainConfig.model_fields if name not in values), None):
        problem = f"holds the recipe of another version, without {missing}"
        raise InputError(f"bundle={config.bundle}", problem, "train and export it anew")
    return parse_options(TrainConfig, values)


def _with_weights(config: RetrainConfig, training: TrainConfig) -> TrainConfig:
    """Return the config with the weights to start from, and print where they come from."""
    named = config.checkpoint or (None if config.run is None else str(Path(config.run) / MODEL))
    if named is None:
        console.print("starts from new weights: no run or checkpoint is given")
        return training
    encoders = {"encoders": str(Path(config.bundle) / "encoders")}
    started = training.model_copy(update={"start": named, "data": training.data.model_copy(update=encoders)})
    task = load_task(Path(named), config.trust)
    dataset = prepare(started.data).description()
    if differs := what_differs(task.hparams, {"model": training.model, "dataset": dataset}):
        console.print(f"starts from new weights: {named} has other {differs}", soft_wrap=True)
        return training
    console.print(f"starts from the weights of {named}, with the vocabularies and scales of the bundle", soft_wrap=True)
    return started


def _compared(old: Classifier, new: ComparedRun, training: TrainConfig) -> tuple[int, Comparison]:
    """Return the number of held-out rows, and the comparison of the new model with the old one on them."""
    split = new.split if source_of(training.data, new.split) is not None else "train"
    if split == "train":
        show_note("the held-out rows are of data.train: where the old model was trained on them, it looks too good")
    source, labels = labelled_sources(old, training.data, split)
    rows = predict_labelled(old, source, training.data.label, labels, group=training.data.group).outputs
    places = matched(new.outputs, rows)
    if new.scores.classes != old.classes:
        raise InputError(None, "the classes differ")
    if (places < 0).any():
        raise InputError(None, "some rows are refused by it")
    ids, others = new.outputs.ids, rows.ids
    assert ids is not None and others is not None, "rows of a file"
    if not ids.equals(others) and pc.count_distinct(others).as_py() < len(others):
        raise InputError(None, "ids repeat")
    judged, metric = (new.outputs, new.result.decision), deciding_metric(new.facts.monitor)
    return len(places), compare_rows(*judged, rows.take(places), old.decision, new.scores, metric)[0]
