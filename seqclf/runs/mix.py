"""Wide paths of a run: fitted on the training rows, mixed with the trained network as validation decides."""

from __future__ import annotations

import contextlib
import copy
import io
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_only
from torch import nn

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.config.override_text import hydra_value
from seqclf.config.targets import is_foreign
from seqclf.data.field_spec import FieldSpec
from seqclf.data.ragged import Ragged
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.store import Split
from seqclf.documents.formatting import enumeration
from seqclf.documents.terminal import console
from seqclf.errors import InputError
from seqclf.evaluation.choose_share import ShareChoice, choose_share
from seqclf.evaluation.design_effect import group_codes
from seqclf.evaluation.terms import Term, joint_terms
from seqclf.models.network import as_network
from seqclf.runs.inference import predict_logits
from seqclf.runs.joint_paths import JointPaths
from seqclf.survey.values import id_texts
from seqclf.system import progress
from seqclf.system.atomic_files import write_bytes
from seqclf.system.durations import duration_text
from seqclf.training.callbacks import write_checkpoint
from seqclf.training.losses import class_weights_of
from seqclf.training.module import SequenceTask
from seqclf.wide.boosted_trees import BoostedTrees
from seqclf.wide.feature_path import padded
from seqclf.wide.kinds import BUILT_IN, locate_kinds
from seqclf.wide.mixture import Mixture, WideModel, build_wide
from seqclf.wide.ngram_terms import terms_of_ngrams
from seqclf.wide.ngrams import Ngrams
from seqclf.wide.path import FittedPath, WidePath
from seqclf.wide.statistic_terms import terms_of_statistics
from seqclf.wide.statistics import Statistics
from seqclf.wide.tree_terms import terms_of_trees

FORMAT = 13  # part of the name of the cache file; raise it when the fit of a path changes
SEED = 0  # seed of the fit, which all runs on one dataset share
CHECKED_ROWS = 16  # rows whose logits are compared alone and in a batch, for a path of another package
MAX_ERROR = 1e-3  # largest difference of these logits, relative to the largest of them or 1
MAX_CLASSES = 1000  # classes up to which a wide path is fitted


class WideFit(NamedTuple):
    """Fitted wide paths.

    `seconds`: time of the fit, 0 if it was read from the cache. `logits`: sum of the logits (N, C) of the paths for the
    training rows, without the prior, where the fit computed them.
    """

    model: WideModel
    seconds: float
    logits: np.ndarray | None = None

    @property
    def paths(self) -> list[WidePath]:
        """The paths of the model."""
        return list(self.model.paths)  # type: ignore[arg-type]


def path_kinds(setting: Any, task: SequenceTask, dataset: Dataset) -> tuple[type[WidePath], ...]:
    """Return the kinds of wide paths of a run, none where there can be no wide path. `setting`: model.wide.

    With `auto`, a network that reads chunk by chunk has only paths that do so too. Raises InputError if the setting
    asks for a path and there can be none.
    """
    if setting is False:
        return ()
    named = locate_kinds(list(BUILT_IN) if isinstance(setting, (bool, str)) else setting)
    fields = dataset.description()["fields"]
    useful = [kind for kind in named if kind.has_use(fields)]
    obstacle = None
    if as_network(task.model).halts:
        obstacle = "an adaptive model stops reading early, and a wide path reads whole sequences"
    elif len(dataset.classes) > MAX_CLASSES:
        obstacle = f"{len(dataset.classes):,} classes are more than a wide path is fitted to ({MAX_CLASSES:,})"
    elif not len(dataset.splits["validation"].labels):
        obstacle = "there are no validation rows to choose its share by"
    elif not useful:
        obstacle = f"{enumeration([kind.title for kind in named])} cannot read these fields"
    if obstacle is not None and setting != "auto":
        raise InputError(f"model.wide={hydra_value(setting)}", obstacle, "set model.wide=auto or false")
    if obstacle is not None:
        if len(dataset.classes) > MAX_CLASSES:
            rank_zero_only(console.print)(f"wide path left out: {obstacle}")
        return ()
    # The paths of a list stay, because only `auto` and `true` leave the choice to the run.
    keeps_chunks = setting == "auto" and as_network(task.model).step_form() is not None
    return tuple(kind for kind in useful if kind.reads_chunks or not keeps_chunks)


def fit_wide(dataset: Dataset, kinds: Sequence[type[WidePath]] = tuple(BUILT_IN.values())) -> WideFit | None:
    """Fit the wide paths to the training rows, or read them from the folder of the dataset.

    Returns None if no kind has a use for the fields. Kinds of other packages are fitted anew each time, because their
    code may have changed.
    """
    fields, classes = dataset.description()["fields"], len(dataset.classes)
    cached = dataset.folder / f"wide-{FORMAT}-{'-'.join(kind.__name__.lower() for kind in kinds)}.pt"
    keeps = not any(is_foreign(kind.__module__) for kind in kinds)
    if keeps:
        with contextlib.suppress(Exception):  # a missing, damaged or older file is written anew
            fit = WideFit(_read(cached, fields, classes), 0.0)
            _show_limits(fit.paths)
            return fit
    start = time.perf_counter()
    train = dataset.splits["train"]
    joint = JointPaths(np.asarray(train.labels), group_codes(train.groups))
    found, idle = [], []
    for kind in kinds:
        if joint.paths and not _looks_useful(kind, joint, train, fields, classes):
            idle.append(kind.title)
        elif (fitted := _fit(kind, train, fields, classes)) is not None:
            found.append(fitted)
            joint.add(fitted)
    if not found:
        return None
    model = joint.model(classes)
    if keeps:
        content = io.BytesIO()
        notes = [list(path.notes) for path in model.paths]  # type: ignore[arg-type]
        torch.save({"paths": model.settings(), "weights": model.state_dict(), "notes": notes}, content)
        with contextlib.suppress(OSError):  # the cache may be read-only
            write_bytes(cached, content.getvalue())
    fit = WideFit(model.eval(), time.perf_counter() - start, _training_logits(model, found))
    titles = enumeration([path.title for path in fit.paths])
    idle = [*(path.title for path, *_ in found if path not in fit.paths), *idle]
    left_out = f"; {enumeration(idle)} left out, as held-out training rows show no gain" if idle else ""
    console.print(f"wide path: {titles}, fitted in {duration_text(fit.seconds)}{left_out}", soft_wrap=True)
    _show_limits(fit.paths)
    return fit


def _show_limits(paths: Iterable[WidePath]) -> None:
    for path in paths:
        for note in path.notes:
            console.print(f"wide path ({path.title}): {note}")


def _looks_useful(kind: type[WidePath], joint: JointPaths, train: Split, fields: list[FieldSpec], classes: int) -> bool:
    """Return False if a quick fit of a path shows no gain beside the paths so far."""
    with progress.stage(f"a first look at the wide path ({kind.title})"):
        look = kind.quick_look(train, fields, classes, SEED)
    return look is None or joint.may_gain(*look)


def _fit(kind: type[WidePath], train: Split, fields: list[FieldSpec], classes: int) -> FittedPath | None:
    """Fit a path, None if it cannot be fitted to the fields or the rows."""
    with progress.stage(f"fitting the wide path ({kind.title})"):
        fitted = kind.fit(train, fields, classes, SEED)
    if fitted is not None and is_foreign(kind.__module__):
        check_padding(fitted.path, train.sequences)
    return fitted


def check_padding(path: WidePath, sequences: Ragged) -> None:
    """Raise InputError if the logits of a row change with the rows of its batch, or are not finite."""
    rows = np.linspace(0, len(sequences) - 1, min(CHECKED_ROWS, len(sequences))).astype(int)
    name = f"model.wide={path.dotted_path()}"
    with torch.inference_mode():
        together = path(*padded(sequences, rows))
        alone = torch.cat([path(*padded(sequences, rows[at : at + 1])) for at in range(len(rows))])
    if not alone.isfinite().all():
        raise InputError(name, "gives logits that are not finite")
    if not torch.allclose(together, alone, rtol=0, atol=MAX_ERROR * max(1.0, float(alone.abs().max()))):
        raise InputError(name, "the logits of a row change with the rows beside it", "mask the tokens after `lengths`")


def _training_logits(model: WideModel, found: list[FittedPath]) -> np.ndarray | None:
    """Return the logits (N, C) of the training rows, None if a path of the model has none."""
    by_path = {fitted.path: fitted.logits for fitted in found}
    parts = [by_path[path] for path in model.paths]  # type: ignore[index]
    scales = model.scales.tolist()
    whole = [part * scale for part, scale in zip(parts, scales, strict=True) if part is not None]
    return sum(whole) if len(whole) == len(parts) else None


def _read(path: Path, fields: list[FieldSpec], classes: int) -> WideModel:
    state = torch.load(path, weights_only=True)
    model = build_wide(state["paths"], fields, classes)
    model.load_state_dict(state["weights"])
    for fitted, notes in zip(model.paths, state["notes"], strict=True):
        fitted.notes = notes
    return model.eval()


@dataclass(frozen=True)
class Mix:
    """A network beside wide paths, as chosen by validation.

    `logits`: dict rung → logits (N, C) of the last split. `mixed`: dict split → logits (N, C) float32 of the mixture.
    """

    choice: ShareChoice
    logits: Mapping[str, np.ndarray]
    mixed: Mapping[str, np.ndarray]


def mix_wide(dataset: Dataset, batches: SequenceDataModule, task: SequenceTask, fit: WideFit) -> Mix:
    """Choose the share of the wide paths by validation, and put the mixture in the place of the network of `task`.

    With a share of 0 the task keeps its network alone.
    """
    network, wide = task.model, fit.model.to(task.device)
    weights = class_weights_of(task.loss, len(dataset.classes))
    wide.prior.copy_(torch.from_numpy(np.log(weights)))
    last = list(dataset.splits)[-1]
    validation = dataset.splits["validation"]
    logits = {
        name: {split: _logits(model, task, batches, split) for split in dict.fromkeys(("validation", last))}
        for name, model in (("network", network), ("wide", Mixture(network, wide, share=1.0)))
    }
    choice = choose_share(
        logits["network"]["validation"],
        logits["wide"]["validation"],
        np.asarray(validation.labels),
        weights,
        group_codes(validation.groups),
    )
    put_mixture(task, wide, choice)
    choice = replace(choice, paths=tuple(path.title for path in fit.paths))
    if fit.logits is not None and len(fit.logits) == len(batches.splits["train"].labels):
        logits["network"]["train"] = _logits(network, task, batches, "train")
        logits["wide"]["train"] = fit.logits + np.log(weights)
    mixed = {
        split: _combined(task.model, network, logits["wide"][split]) for split, network in logits["network"].items()
    }
    return Mix(choice, {name: by_split[last] for name, by_split in logits.items()}, mixed)


def _combined(model: nn.Module, network: np.ndarray, wide: np.ndarray) -> np.ndarray:
    """Return the logits (N, C) float32 of a model from the logits of its network and of its wide paths."""
    if not isinstance(model, Mixture):
        return network.astype(np.float32)
    parts = [torch.from_numpy(logits).float().to(model.scales.device) for logits in (network, wide)]
    return model.combine(*parts).cpu().numpy()


def put_mixture(task: SequenceTask, wide: WideModel, choice: ShareChoice) -> None:
    """Put a mixture in the place of the network of `task`. With a share of 0 the task keeps its network alone."""
    if choice.share:
        mixture = Mixture(task.model, wide, choice.share)
        mixture.scales[0] *= choice.scale
        task.model = mixture.to(task.device).eval()
        task.hparams["wide"] = mixture.settings()


def refit_wide(wide: WideModel, rows: Split, dataset: Dataset, task: SequenceTask) -> WideModel:
    """Fit the same wide paths to other training rows, those of `task`. The paths keep their scales."""
    classes = len(dataset.classes)
    kinds: list[type[WidePath]] = [type(path) for path in wide.paths]  # type: ignore[misc]
    fields = dataset.description()["fields"]
    fitted = [_fit(kind, rows, fields, classes) for kind in kinds]
    model = WideModel([found.path for found in fitted if found is not None], classes)
    model.scales.copy_(wide.scales)
    model.prior.copy_(torch.from_numpy(np.log(class_weights_of(task.loss, classes))))
    return model.to(task.device).eval()


def rung_logits(task: SequenceTask, wide: WideModel, batches: SequenceDataModule, split: str) -> dict[str, np.ndarray]:
    """Return dict rung → logits (N, C) of a split, for the network of `task` and the wide paths beside it."""
    network = task.model.network if isinstance(task.model, Mixture) else task.model
    rungs = {"network": network, "wide": Mixture(network, wide.to(task.device), share=1.0)}
    return {name: _logits(model, task, batches, split) for name, model in rungs.items()}


def decisive_terms(
    task: SequenceTask, dataset: Dataset, batches: SequenceDataModule, mix: Mix | None
) -> dict[str, list[Term]]:
    """Return dict label → features of wide paths that speak for it in the last split, empty without such a path.

    They are judged in the rows that the wide paths together take for the label.
    """
    if mix is None or not isinstance(task.model, Mixture):
        return {}
    predicted = mix.logits["wide"].argmax(axis=1)
    wide = task.model.wide
    sequences = batches.splits[list(dataset.splits)[-1]].sequences
    texts = {
        name: partial(id_texts, encoder, name, np.ndim(sequences.fields[name]))
        for name, encoder in dataset.encoders.items()
    }
    numbers = [field["name"] for field in dataset.description()["fields"] if field["kind"] == "number"]
    names = {name: dataset.encoders[name].input_names() for name in numbers}
    found: list[list[list[Term]]] = []
    for path, factor in zip(wide.paths, wide.scales.tolist(), strict=True):
        scale = task.model.share * factor
        with progress.stage("counting what the simple model goes by"):
            if isinstance(path, Ngrams):
                found.append(terms_of_ngrams(copy.deepcopy(path).cpu(), sequences, predicted, texts, scale))
            elif isinstance(path, Statistics):
                found.append(terms_of_statistics(copy.deepcopy(path).cpu(), sequences, predicted, names, scale))
            elif isinstance(path, BoostedTrees):
                found.append(terms_of_trees(copy.deepcopy(path).cpu(), sequences, predicted, names, texts, scale))
    by_label = {label: joint_terms(chain(*of_paths)) for label, *of_paths in zip(dataset.classes, *found, strict=True)}
    return {label: terms for label, terms in by_label.items() if terms}


def save_mixture(checkpoint: Path, task: SequenceTask) -> None:
    """Put the wide paths of a task into its checkpoint file."""
    state = torch.load(checkpoint, map_location="cpu", weights_only=True)
    state["hyper_parameters"]["wide"] = task.hparams["wide"]
    state["state_dict"] = {name: tensor.cpu() for name, tensor in task.state_dict().items()}
    content = io.BytesIO()
    torch.save(state, content)
    write_checkpoint(checkpoint, content.getbuffer())


def without_mixture(task: SequenceTask) -> SequenceTask:
    """Return a task with its network alone, as it was before its wide paths were mixed in."""
    if isinstance(task.model, Mixture):
        task.model, task.hparams["wide"] = task.model.network, None
    return task


def _logits(network: nn.Module, task: SequenceTask, batches: SequenceDataModule, split: str) -> np.ndarray:
    """Return logits (N, C) of a network in the place of the network of `task`, in the order of the rows of a split."""
    trained, task.model = task.model, network
    try:
        with progress.stage(f"mixing the wide path on {split}", total=len(batches.splits[split].labels), unit="rows"):
            return predict_logits(task, batches.evaluation_loader(split))[1].astype(np.float64)
    finally:
        task.model = trained
