"""Step `prepare`: read and encode the data, and check all settings with it, before any file of the run changes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from seqclf.config.build import locate_subclass
from seqclf.data import prepare_data as data
from seqclf.data.encoding.field_encoder import FieldEncoder
from seqclf.data.storage.dataset import Dataset, open_dataset
from seqclf.data.storage.store import DamagedError, Split
from seqclf.documents.formatting import shown_path
from seqclf.documents.terminal import console, show_warnings
from seqclf.errors import InputError
from seqclf.evaluation.choose_decision import has_guaranteed_rule
from seqclf.evaluation.holdout import HEADS, chosen_by_validation, hold_out, resolve_holdout
from seqclf.models.classifier import reads_trees
from seqclf.models.ensemble import networks_of
from seqclf.models.network import SequenceNetwork, cross_fits
from seqclf.runs.overview import show_dataset
from seqclf.runs.process_settings import OWN_THREADS, idle_threads
from seqclf.runs.training_run import Training
from seqclf.settings.base import parse_options
from seqclf.settings.data_settings import ALL_FOLDS
from seqclf.settings.decision_settings import AUTO
from seqclf.settings.train_settings import TrainConfig
from seqclf.survey.survey import survey_dataset
from seqclf.system.atomic_files import write_output
from seqclf.system.json_result import JsonObject
from seqclf.system.run_folder import DATA, is_resumed, remove_outputs, run_outputs
from seqclf.system.state_validation import read_json, read_yaml
from seqclf.training.check_targets import resolve_targets
from seqclf.training.loggers.run_logger import require_installed

HEAD_PATIENCE = 3  # validations, where the config says auto


def prepare(run: Path, config: TrainConfig) -> None:
    """Read and encode the data, and check the training → config.yaml with all that follows from the data, data.json.

    Removes the outputs of another run, once all checks have passed.
    """
    training, whole = set_up(run, config)
    show_dataset(whole)
    warnings = survey_dataset(whole, config.data, baseline=False).warnings
    show_warnings(warnings)
    training.check()
    require_installed(config.logger.name)
    if training.task.model_text:
        console.print(f"model: {training.task.model_text}", soft_wrap=True)
    config = training.config
    stale = [] if is_resumed(run, config.checkpoint) else run_outputs(run)
    if config.start is not None and stale and run.resolve() in Path(config.start).resolve().parents:
        raise InputError(f"start={config.start}", "is in the run folder that is replaced", "copy it to another folder")
    remove_outputs(run, ("quarantine.jsonl", *stale))
    write_config(run, config)
    if (whole.folder / "quarantine.jsonl").is_file():
        shutil.copy(whole.folder / "quarantine.jsonl", run)
    dataset = training.dataset
    facts = {
        "folder": str(dataset.folder),
        "digest": dataset.digest,
        "rows": {name: rows_hash(split) for name, split in dataset.all_splits.items()},
        "report": {name: counts.to_dict() for name, counts in dataset.report.items()},
        "leaks": dataset.leaks.to_dict(),
        "warnings": list(warnings),
    }
    write_json(run / DATA, facts)  # later steps learn from it where the data is, and whether it is the same


def set_up(run: Path, config: TrainConfig) -> tuple[Training, Dataset]:
    """Return the training of a config with what follows from the data, and all its data. Writes nothing."""
    config = resolve_targets(config)
    whole = data.prepare(config.data, partial(check_tree_fields, config.model))
    config = with_holdout(with_head_patience(config, whole.positive))
    return _with_threads(Training.build(config, hold_out(whole, config.decision), run)), whole


def _with_threads(training: Training) -> Training:
    """Return a training with the threads of the run before, on which bits depend, or those that idle cores allow."""
    config, has_ranks = training.config, training.trainer.world_size > 1  # ranks divide the cores
    if config.runtime.threads or OWN_THREADS in os.environ or has_ranks or training.device.type != "cpu":
        return training
    before = Path(config.checkpoint).parent.parent if config.checkpoint else training.folder
    chosen, reason = _threads_of(before, config), f"as in {shown_path(before / 'config.yaml')}"
    if chosen is None:
        chosen = idle_threads(training.task.model, training.batches)
        reason = "the network gains from them, and as many cores are idle"
    threads = chosen or training.threads
    if threads > training.threads:
        console.print(f"runtime.threads={threads}: {reason}", soft_wrap=True)
    runtime = config.runtime.model_copy(update={"threads": chosen})
    return replace(training, config=config.model_copy(update={"runtime": runtime}), threads=threads)


def _threads_of(run: Path, config: TrainConfig) -> int | None:
    """The number of threads of the run in a folder, if it has the network and batches of a config."""
    with suppress(InputError, OSError, ValueError, TypeError):  # no file, or one of another version
        before = read_config(run)
        return before.runtime.threads if (before.model, before.batching) == (config.model, config.batching) else None
    return None


def write_json(path: Path, facts: JsonObject) -> None:
    """Write a JSON file of a run."""
    write_output(path, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def write_config(run: Path, config: TrainConfig) -> None:
    """Write config.yaml."""
    write_output(run / "config.yaml", yaml.safe_dump(config.model_dump(), sort_keys=False, allow_unicode=True))


def read_config(run: Path) -> TrainConfig:
    """Return the config of a run, with all that follows from the data."""
    return parse_options(TrainConfig, dict(read_yaml(run / "config.yaml")))


def open_data(run: Path, config: TrainConfig) -> Dataset:
    """Return the data that `prepare` has encoded, with its held-out rows. Raises InputError if the cache lacks it."""
    folder = Path(read_json(run / DATA)["folder"])
    try:
        return hold_out(open_dataset(folder, config.data.positive, True), config.decision)
    except DamagedError as error:
        raise InputError(folder, f"is not the data of the run any more ({error})", "repeat the command") from None


def check_tree_fields(model: Mapping[str, Any], encoders: Mapping[str, FieldEncoder | type[FieldEncoder]]) -> None:
    """Raise InputError if a model reads trees, but the data has no field of kind tree."""
    if reads_trees(model) and not any(encoder.tags is not None for encoder in encoders.values()):
        key, problem = "model.encoder._target_", f"reads trees, and the data has none (fields: {', '.join(encoders)})"
        remedy = "set 'data.fields={COLUMN: tree}', or choose another model, such as model=lstm"
        raise InputError(f"{key}={model['encoder']['_target_']}", problem, remedy)


def reason_to_hold_out(config: TrainConfig) -> str | None:
    """Return the reason of `chosen_by_validation` for a training, whose network class is imported."""
    network: Any = locate_subclass(config.model["_target_"], SequenceNetwork, "model._target_")
    return chosen_by_validation(config.model_dump(), not cross_fits(network, config.model.get("members", 1)))


def with_holdout(config: TrainConfig) -> TrainConfig:
    """Return the config with a number as `decision.holdout`. The trainings of folds hold out no rows."""
    reason = None if config.data.split.fold == ALL_FOLDS else reason_to_hold_out(config)
    return config.model_copy(update={"decision": resolve_holdout(config.decision, reason)})


def with_head_patience(config: TrainConfig, positive: str | None) -> TrainConfig:
    """Return the config with a number or None as `head_patience`: None where validation rows may set a threshold.

    `positive`: the positive class of the data, None if it has none.
    """
    is_other = config.model["_target_"] != HEADS or bool(config.structure) or config.data.split.fold == ALL_FOLDS
    is_off = positive is not None or has_guaranteed_rule(config.decision) or is_other
    chosen = None if is_off else HEAD_PATIENCE
    return config.model_copy(update={"head_patience": chosen}) if config.head_patience == AUTO else config


def user_recipe(config: TrainConfig) -> dict[str, Any]:
    """Return the recipe of a training, with `decision.holdout=auto` where auto gives the number of the config."""
    automatic = config.model_copy(update={"decision": config.decision.model_copy(update={"holdout": AUTO})})
    return (automatic if with_holdout(automatic).decision == config.decision else config).recipe()


def all_rows_set_thresholds(config: TrainConfig) -> bool:
    """Return True if all validation rows may set a threshold, now or later, by scores in which they chose nothing."""
    is_whole = config.decision.holdout == 0 or not has_guaranteed_rule(config.decision)
    return is_whole and reason_to_hold_out(config) is None


def all_cross_fit(network: SequenceNetwork) -> bool:
    """Return True if all that validation sets in a network can be cross-fitted."""
    parts = networks_of(network)
    return all(cross_fits(type(part), len(parts)) for part in parts)


def rows_hash(split: Split) -> str:
    """Return the hash of what scores hold of rows: labels, ids, groups, lengths. A data set's digest has tokens."""
    columns = {"label": pa.array(split.labels), "id": split.ids, "length": pa.array(split.lengths_before_truncation)}
    if split.groups is not None:
        columns["group"] = pa.array(split.groups)
    if split.group_names is not None:
        columns["group_name"] = split.group_names
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    return hashlib.sha256(batch.serialize()).hexdigest()
