"""Keys of the commands other than `train`."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from seqclf.errors import InputError
from seqclf.settings.base import (
    NOT_SET,
    CommandOptions,
    Count,
    FullText,
    KeysOf,
    Options,
    Seed,
    Share,
    Text,
    Texts,
    elsewhere,
    read_trust,
)
from seqclf.settings.data_settings import DataOptions
from seqclf.settings.decision_settings import DecisionOptions, ThresholdOption
from seqclf.settings.train_settings import (
    BatchingOptions,
    CheckpointFile,
    LoggerOptions,
    ModelKeys,
    OptimizerKeys,
    TrainConfig,
    TrainerOptions,
)

Device = Literal["auto", "cpu", "cuda"]
LOSSES = ("loss", "ece")  # metrics of which a lower value is better
Period = Literal["day", "week", "month", "year"]
TrustedPackages = Annotated[bool | tuple[str, ...], BeforeValidator(read_trust)]
NOT_SEARCHABLE = {"decision.holdout", "decision.provisional"}


def check_space(space: dict[str, Any]) -> dict[str, Any]:
    """Return a search space. Raises InputError unless each key has a list of values or a range."""
    for key, values in space.items():
        setting = f"search.space: {key}={values}"
        if key in NOT_SEARCHABLE:
            problem = "the rows that a guarantee rests on stay the same"
            raise InputError(setting, problem, f"set {key} outside of the space")
        if not (isinstance(values, list) and values) and not _is_range(values):
            form = "a range {low: 1, high: 9} of rising numbers, with step: 2, or above 0 with log: true"
            raise InputError(setting, f"must be a list of values, or {form}")
    return space


def _is_range(values: Any) -> bool:
    if not isinstance(values, Mapping) or not {"low", "high"} <= set(values) <= {"low", "high", "log", "step"}:
        return False
    low, high, step = values["low"], values["high"], values.get("step")
    numbers = (low, high, 1 if step is None else step)
    if any(isinstance(each, bool) or not isinstance(each, (int, float)) or not isfinite(each) for each in numbers):
        return False
    return low < high and numbers[2] > 0 and (not values.get("log") or (low > 0 and step is None))


Space = Annotated[dict[str, Any], AfterValidator(check_space)]
USUAL = {
    "optimizer.lr": {"low": 5.0e-4, "high": 2.0e-2, "log": True},
    "model.hidden_size": [64, 96, 128, 192],
    "model.dropout": {"low": 0.0, "high": 0.5},
    "model.pooling": ["last", "mean", "max", "attention"],
}


class ExportConfig(CommandOptions):
    """Export a checkpoint as a bundle that runs without PyTorch."""

    checkpoint: CheckpointFile | None = None
    """the checkpoint to export, RUN/model.ckpt; null: the bundle exists, for triton"""
    bundle: FullText
    """folder to write; an earlier bundle in it is replaced"""
    triton: FullText | None = None
    """new model folder for the Triton Inference Server, REPOSITORY/MODEL"""
    trust: TrustedPackages = NOT_SET
    """packages other than seqclf whose code the checkpoint may run as its model or loss: trust=mypackage or
    trust=[a, b]; true: any package; null: none"""


class RayOptions(Options):
    """Settings of engine=ray."""

    address: FullText | None = None
    """address of a running cluster: auto, or HOST:PORT; null: start Ray on this machine, and end it"""
    actors: Count | None = None
    """processes that predict, each with `threads` CPUs, with device=cuda one GPU too; null: as many as the
    cluster has CPUs, or GPUs, for"""
    object_store_mb: Annotated[int, Field(ge=100)] = 1000
    """size of the object store of a Ray that is started here; what exceeds it goes to disk"""


class PredictConfig(CommandOptions):
    """Classify new sequences with a bundle, without PyTorch."""

    bundle: FullText
    """folder of the bundle"""
    input: Text | None = None
    """a file, folder, glob or URL with one row per sequence"""
    output: Text | None = None
    """file to write: .parquet, .csv, .jsonl or .arrow; FOLDER/: Parquet files of a million rows each; both may be
    URLs of an object store (s3://BUCKET/KEY)"""
    sequence: Text | None = None
    """instead of input: one sequence, as text or JSON"""
    explain: bool | Literal["tokens"] = False
    """true: write the contribution of each token to the prediction of its row, and of each field of a token where
    there are several; tokens: of whole tokens only, which is faster"""
    embeddings: bool = False
    """true: write the vector that the output layer reads of each row too, the column embedding"""
    running: bool = False
    """true: write a row per event: the prediction from the events so far, of bundles with step.onnx"""
    device: Device = "auto"
    """cpu, cuda, or auto: cuda where there is an NVIDIA device and CUDA starts"""
    threshold: ThresholdOption = None
    """smallest probability that predicts the positive label (0: every row is positive, 1: none); argmax: the most
    probable label; null: the decision of the bundle (everything); null: the fraction that the bundle recommends"""
    max_refused: Share | None = None
    """largest fraction of rejected rows, null: no limit; beyond it or one of the next two, the command writes
    nothing and ends with exit code 3"""
    max_far: Share | None = None
    """largest fraction of tokens with a number that is more than 10 standard deviations from the mean of training
    (far_share of the JSON line)"""
    max_drift: Share | None = None
    """largest distance of a field that drifted since training (drift of the JSON line)"""
    threads: Count | None = None
    """CPU threads; null: all cores, with engine=ray 1 for each actor"""
    engine: Literal["local", "ray"] = "local"
    """local: this process; ray: actors of Ray predict windows of rows, with the same output (extra ray), on CPUs
    unless device=cuda"""
    ray: RayOptions = Field(default_factory=RayOptions)
    """settings of engine=ray"""
    header: bool | None = None
    """true: the first line holds the column names; null: as in training

    Format of a text input; null: as the training files
    """
    encoding: Text | None = None
    """utf-8, latin-1 or utf-16; null: as in training"""
    quote: Text | None = None
    """quote character; '': none; null: as in training"""
    delimiter: Text | None = None
    """column delimiter; null: as in training"""


class TargetKeys(Options):
    """Keys of a target that replaces the one of a run."""

    min_recall: float | None = None
    """minimum fraction of the positive rows that are detected"""
    min_precision: float | None = None
    """minimum fraction of the alerts that are right"""
    max_alerts: float | None = None
    """maximum fraction of all rows that become alerts"""
    cost: float | None = None
    """cost of a missed positive row, in false alarms"""
    confidence: float | None = None
    """probability of a sure statement, such as 0.95; null: that of the run, or for another target on average"""
    ignore: Text | None = None
    """text file of ids, one a line: rows to leave out, such as wrong labels in RUN/threshold.parquet"""
    calibrate: bool | None = None
    """divide logits by a temperature fitted on validation"""


class EvaluateConfig(CommandOptions):
    """Judge a bundle on new rows, a run, or scores of any tool."""

    bundle: FullText | None = None
    """folder of a bundle, which is scored on data.test without PyTorch

    What is judged: one of the three. OUTPUT/report.html, OUTPUT/metrics.json and the exit code say the result.
    """
    run: FullText | None = None
    """folder of a finished run, whose scores are judged anew, without its model"""
    scores: FullText | None = None
    """Parquet file of the scores of a model, made by any tool: split, id, label, and logits or probabilities (a list of
    one number for each class)"""
    against: FullText | None = None
    """another model, on the same rows: a bundle (beside bundle), a file of scores or the folder of a run. The exit code
    is 1 unless the judged model is shown to be better. A file also completes scores, and names its classes"""
    output: FullText = "evaluation"
    """folder for report.html and metrics.json, and of a bundle scores.parquet, which scores reads"""
    split: FullText | None = None
    """of a run or scores: split that judges the model, validation or test; null: the last one"""
    positive: Text | None = None
    """label that matters, for two classes; null: that of the model"""
    threshold: ThresholdOption = None
    """smallest probability that predicts the positive label (0: every row is positive, 1: none); argmax: the most
    probable label; null: the decision of the bundle, or the target below"""
    decision: Annotated[dict[str, Any], KeysOf(TargetKeys)]
    """target of a run or scores; null: that of the run (see seqclf train --help decision)"""
    data: Annotated[dict[str, Any], KeysOf(DataOptions, header=None, encoding=None, quote=None, delimiter=None)]
    """rows of a bundle: data.test=FILE, data.label=COLUMN; null: as in training. seqclf train --help data lists all"""
    by: Period | None = None
    """of a bundle: day, week, month or year: scores over time"""
    time: Text | None = None
    """column of the times for by; null: the first column that sorts the events of a sequence"""
    device: Device = "auto"
    """cpu, cuda, or auto: cuda where there is an NVIDIA device and CUDA starts"""
    threads: Count | None = None
    """CPU threads; null: all cores"""
    trust: TrustedPackages = NOT_SET
    """packages other than seqclf whose code the config.yaml of a run may run to make its data: trust=mypackage or
    trust=[a, b]; true: any package; null: none"""


class DoctorConfig(CommandOptions):
    """Check that a bundle is sound on this machine."""

    bundle: FullText
    """folder of the bundle"""
    device: Device = "auto"
    """cpu, cuda, or auto: cuda where there is an NVIDIA device and CUDA starts"""
    threads: Count | None = None
    """CPU threads; null: all cores"""


class CompareConfig(CommandOptions):
    """Compare finished runs: seeds, and differences on the same rows."""

    runs: Texts
    """folders of finished runs, or patterns of them such as runs/*; runs that differ only in seed are one setting"""
    against: FullText | None = None
    """folder of one of the runs, with whose setting the others are compared; null: the best one"""
    split: FullText | None = None
    """split whose rows are compared: validation or test; null: the one that judges each run"""
    output: Text | None = None
    """.html file for the table"""


class DescribeConfig(CommandOptions):
    """Inspect a dataset before it is trusted."""

    data: DataOptions = Field(default_factory=DataOptions)
    """the data"""
    decision: DecisionOptions = Field(default_factory=DecisionOptions)
    """the decision rule"""
    output: Text | None = None
    """.json file for all figures; null: none"""
    baseline: bool = True
    """fit an order-blind baseline, and look for columns that reveal the label (target leakage)"""
    # Not checked: experiments, which are made for training, set them.
    seed: Any = 0
    """not used; set by experiments"""
    monitor: Any = None
    """not used; set by experiments"""
    patience: Any = None
    """not used; set by experiments"""
    model: Annotated[dict[str, Any], KeysOf(ModelKeys)]
    """not used"""
    batching: Annotated[dict[str, Any], KeysOf(BatchingOptions)]
    """not used"""
    optimizer: Annotated[dict[str, Any], KeysOf(OptimizerKeys)]
    """not used"""
    trainer: Annotated[dict[str, Any], KeysOf(TrainerOptions)]
    """not used"""


class RetrainConfig(CommandOptions):
    """Train the model of a bundle again, and compare old and new."""

    data: Annotated[dict[str, Any], KeysOf(DataOptions)]
    """the new data"""
    trainer: Annotated[dict[str, Any], KeysOf(TrainerOptions)]
    """arguments of Lightning's Trainer"""
    logger: LoggerOptions
    """where curves and scores are logged"""
    bundle: Text
    """folder of the bundle whose training is repeated on other data"""
    run: Text | None = None
    """run of the bundle, whose weights the training starts from, with the bundle's vocabularies and scales; null:
    new weights, vocabularies and scales"""
    checkpoint: Text | None = None
    """the same, of a checkpoint"""
    settings: dict[str, Any] | None = None
    """keys of seqclf train in place of those of the bundle, such as 'settings={optimizer: {lr: 1e-3}}'"""
    trust: TrustedPackages = NOT_SET
    """packages other than seqclf and torch whose code the recipe may run: trust=mypackage or trust=[a, b]; true:
    any package; null: none"""
    seed: int | None = None
    """seed of the training; null: that of the bundle"""


class SearchOptions(Options):
    """Settings of a search."""

    space: Space | None = None
    """key: a list of choices, or a range {low, high} with log: true or step: 2; null: usual, below"""
    usual: Space = USUAL
    """the search space where space is null; keys that the model lacks are left out"""
    trials: Count = 20
    """completed trials to reach, those of an earlier search in the same folder included"""
    metric: Annotated[str, AfterValidator(elsewhere("seqclf.commands.trials.require_metric"))] = "validation.recall"
    """a number of metrics.json by its dotted name; losses and calibration errors are minimized; one of test would
    make the test scores too good"""
    seed: Seed = 0
    """seed of the proposed settings"""

    @property
    def direction(self) -> Literal["minimize", "maximize"]:
        """`minimize` for losses and calibration errors, `maximize` for other metrics."""
        return "minimize" if self.metric.split(".")[1] in LOSSES else "maximize"


class SearchConfig(TrainConfig):
    """Search for hyperparameters. Every trial is a training run."""

    search: SearchOptions = Field(default_factory=SearchOptions)
    """how to search"""

    @model_validator(mode="after")
    def check_scores(self) -> SearchConfig:
        """Raise InputError for a setting with which trials give no metrics."""
        if self.trainer["fast_dev_run"]:
            raise InputError("trainer.fast_dev_run", "leaves no scores to compare", "set trainer.max_epochs=1 instead")
        return self
