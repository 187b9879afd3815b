"""Keys of the command `train`."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Required, TypeVar, get_args

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Discriminator, Field, model_validator
from typing_extensions import TypedDict

from seqclf.errors import SECRET, InputError, RefusedValueError
from seqclf.settings.base import (
    NOT_SET,
    CommandOptions,
    Count,
    DropoutShare,
    KeysOf,
    Limit,
    NonNegative,
    Options,
    Positive,
    Seed,
    Share,
    Text,
    Texts,
    ZeroOrMore,
    parse_options,
    read_text,
)
from seqclf.settings.data_settings import DataOptions
from seqclf.settings.decision_settings import DecisionOptions
from seqclf.settings.typed_text import argument, must_be_one_of, similar_file

Monitor = Literal["recall", "accuracy", "precision", "f1", "loss", "average_precision", "auroc"]


class BatchingOptions(Options):
    """Batches of similar length under a token budget: max_tokens limits rows * longest sequence, padding included."""

    max_tokens: Count = 16384
    """tokens in a batch, padding included; a longer sequence is a separate batch"""
    max_sequences: Count | None = 32
    """rows in a batch; null: no limit"""
    pool_batches: Count = 50
    """shuffle buffer, in batches: an epoch is shuffled, cut into pools of about this many batches, and sorted by
    length inside each pool"""
    overhead: NonNegative | None = 8.0
    """cost of one more batch, in rows per time step: a batch ends early where the padding this saves costs more.
    Higher values give fewer, larger batches, which suits GPUs; null: never end early"""
    balance: Share = 0.0
    """0: every row once per epoch; 1: equally many draws from each class; in between, a class is drawn in
    proportion to rows ^ (1 - balance)"""
    equal_row_weights: bool = True
    """true: every row has the same weight in the loss; false: every batch has, so that rows of small batches
    (long sequences) weigh more"""
    ranks: Count | None = None
    """ranks that a step is planned for: its rows fill a batch for each of them, and are dealt to the ranks that
    train; null: as many as started the run"""
    evaluation_factor: Count = 4
    """evaluation batches are this many times larger, as they keep no gradients"""
    num_workers: ZeroOrMore = 0
    """loader processes; 0: the training process collates, on a GPU in a thread that works ahead"""


def environment(name: str, default: str) -> Any:
    """Return a default that Hydra takes from an environment variable."""
    return f"${{oc.env:{name},{default}}}"


def split_tags(value: Any) -> Any:
    """Split a comma-separated string into a list of tags. The environment variable WANDB_TAGS has this format."""
    return [tag for part in value.split(",") if (tag := part.strip())] if isinstance(value, str) else value


def refuse_credentials(value: str) -> str:
    """Return the address. Raises RefusedValueError if it holds credentials, which config.yaml would hold too."""
    if re.search(r"https?://[^/@]*@|://[^/@]*:(?!\d+(/|$)).*@", value) or SECRET.search(value):
        raise RefusedValueError("holds credentials", "set it in the environment: MLFLOW_TRACKING_URI")
    return value


Timeout = Annotated[float, Field(ge=1)]  # in seconds
# The W&B server sets the limits of the texts. The limits stand before `read_text`, so that errors count characters.
ServerName = Annotated[str, Field(max_length=128), BeforeValidator(read_text)]
Tag = Annotated[str, Field(min_length=1, max_length=64), BeforeValidator(read_text)]


class PlainLoggerOptions(Options):
    """Loggers without keys of their own: TensorBoard in RUN/tensorboard, and metrics.csv, which every run writes."""

    name: Literal["tensorboard", "csv", "none"]
    """wandb, tensorboard, mlflow, csv or none; choose it by logger=NAME"""


class WandbOptions(Options):
    """Keys of logger=wandb. The environment variables are those of W&B; a key that is typed wins over them."""

    name: Literal["wandb"] = "wandb"
    """wandb, tensorboard, mlflow, csv or none; choose it by logger=NAME"""
    project: Annotated[str, Field(max_length=128, pattern=r"^[^/\\#?%:]*$"), BeforeValidator(read_text)] = (
        "${oc.env:WANDB_PROJECT,seqclf}"
    )
    """project of the run"""
    entity: Text | None = environment("WANDB_ENTITY", "null")
    """team or user; null: the default one of the API key"""
    run_name: ServerName | None = environment("WANDB_NAME", "null")
    """name of the run; null: W&B chooses one"""
    group: ServerName | None = environment("WANDB_RUN_GROUP", "null")
    """group of runs; null: the folder of a multirun, so that its runs are grouped"""
    job_type: Annotated[str, Field(max_length=64), BeforeValidator(read_text)] | None = environment(
        "WANDB_JOB_TYPE", "train"
    )
    """label of the run, to filter by"""
    tags: Annotated[list[Tag] | None, BeforeValidator(split_tags)] = environment("WANDB_TAGS", "null")
    """labels of the run: logger.tags=[baseline,v2], or text with commas"""
    notes: Text | None = environment("WANDB_NOTES", "null")
    """a text about the run"""
    mode: Literal["auto", "online", "offline", "disabled"] = "auto"
    """online, offline or disabled; auto: WANDB_MODE, otherwise online with an API key and offline without. Never
    prompts. offline keeps all of it on this machine"""
    log_bundle: bool = True
    """upload the bundle as an artifact"""
    upload_rows: bool = False
    """upload ids, worst errors and groups of the report too; false: a report without them (RUN/shared)"""
    timeout: Timeout = 10
    """seconds to wait for the server at the start; after that the run is recorded offline"""
    finish_timeout: NonNegative = 60
    """seconds to wait at the end, a quarter of them to log the result and the rest for the last uploads; `wandb
    sync` uploads what is left; 0: no limit"""


class MlflowOptions(Options):
    """Keys of logger=mlflow. The environment variables are those of MLflow; a key that is typed wins over them."""

    name: Literal["mlflow"] = "mlflow"
    """wandb, tensorboard, mlflow, csv or none; choose it by logger=NAME"""
    tracking_uri: Annotated[Text, AfterValidator(refuse_credentials)] | None = None
    """server or database; null: MLFLOW_TRACKING_URI, otherwise MLflow's default, sqlite:///mlflow.db; one with
    credentials is given by the variable alone"""
    experiment_name: Text = environment("MLFLOW_EXPERIMENT_NAME", "seqclf")
    """experiment of the run"""
    run_name: Text | None = None
    """name of the run; null: MLflow chooses one"""
    group: Text | None = None
    """a tag; null: the folder of a multirun, so that its runs are grouped"""
    tags: dict[str, Text] | None = None
    """tags of the run: 'logger.tags={owner: risk, purpose: baseline}'"""
    log_bundle: bool = True
    """upload the bundle as an artifact"""
    upload_rows: bool = False
    """upload ids, worst errors and groups of the report too; false: a report without them (RUN/shared)"""
    timeout: Timeout = 10
    """seconds to wait for the server at the start; after that the run goes on without it"""


LoggerOptions = Annotated[WandbOptions | MlflowOptions | PlainLoggerOptions, Discriminator("name")]


AUTO = "auto"  # newest checkpoint of the run folder, and value of the keys that `training.length` sets
CHECKPOINT_FILES = "RUN/model.ckpt, or RUN/checkpoints/last.ckpt"


def require_checkpoint_file(value: str) -> str:
    """Reject a path that is not a readable file. PyTorch checks the content later."""
    path = Path(value)
    if path.is_dir():
        saved = [*path.glob("model.ckpt"), *path.glob("checkpoints/last.ckpt"), *path.glob("last.ckpt")]
        # If `path` is a bundle, look for checkpoints of its run.
        saved = saved or [*path.parent.glob("model.ckpt")]
        remedy = f"write {argument('checkpoint', str(saved[0]))}" if saved else f"name a file, {CHECKPOINT_FILES}"
        raise InputError(f"checkpoint={value}", "is a folder", remedy)
    try:
        if path.exists() and not path.is_file():  # opening a FIFO would block
            raise InputError(f"checkpoint={value}", "is not a regular file", f"give {CHECKPOINT_FILES}")
        with path.open("rb"):
            pass
    except FileNotFoundError:
        remedy = similar_file(value) or f"give {CHECKPOINT_FILES}"
        raise InputError(f"checkpoint={value}", "no such file", remedy) from None
    except OSError as error:
        raise InputError(f"checkpoint={value}", f"cannot be read ({error.strerror})", "name another file") from None
    if not zipfile.is_zipfile(path):  # torch.save writes a zip archive
        raise InputError(f"checkpoint={value}", "is not a seqclf checkpoint", f"give {CHECKPOINT_FILES}")
    return value


CheckpointFile = Annotated[Text, AfterValidator(require_checkpoint_file)]
ResumedCheckpoint = Annotated[
    Text, AfterValidator(lambda value: value if value == AUTO else require_checkpoint_file(value))
]


class RuntimeOptions(Options):
    """Settings of PyTorch."""

    threads: Count | None = None
    """CPU threads of PyTorch; null: OMP_NUM_THREADS, or as many as the network gains from, often 1, more on idle
    cores, whose number config.yaml keeps for later runs in its folder; evaluation then uses all CPUs that
    affinity and container leave"""
    flush_denormal: bool = True
    """round denormal numbers to 0: gradients through hundreds of tokens fade into them, and CPUs compute with
    them many times slower"""
    rank_timeout: Positive = 120
    """seconds that a rank waits for another one, which may have stopped, before training ends"""
    on_nan: Literal["stop", "skip"] = "stop"
    """a step whose loss or gradient is not finite: stop ends the training and names its rows; skip leaves the
    step out, up to 20 in a row"""


class ScheduleOptions(Options):
    """Schedule of the learning rate."""

    warmup: Share = 0.1
    """fraction of all steps over which it rises"""
    decay: Literal["cosine", "linear", "none"] = "cosine"
    """form of the fall after that: cosine, linear or none"""
    floor: Share = 0.0
    """fraction of the peak that is left at the end"""


Average = Annotated[float, Field(gt=0, lt=1)] | None


class OptimizerKeys(Options):
    """Keys of every optimizer."""

    average: Average = 0.99
    """running mean of the weights, which is validated, saved and exported: fraction that it keeps at each step; null:
    the weights themselves"""
    schedule: ScheduleOptions = Field(default_factory=ScheduleOptions)
    """schedule of the learning rate"""


class LossArguments(TypedDict, total=False):
    """Options of a loss, or of another class. The signature and types of the class in `_target_` decide other keys."""

    __pydantic_config__ = ConfigDict(extra="allow", strict=True)  # type: ignore[misc]

    _target_: Required[str]


class MetricArguments(LossArguments, total=False):
    """Options of a metric of one's own, and its name, by default that of its class."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z]\w{0,40}$")]


OTHER_SCORES = r"monitor|mcc|ece|(macro|recall_of|precision_of|f1_of)_.*"  # that loggers show, beside `Monitor`


def metric_names(blocks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the name of each metric of one's own. Raises InputError for one that is taken."""
    names = [str(block.get("name", block["_target_"].rpartition(".")[2])) for block in blocks]
    for index, name in enumerate(names):
        taken = [each.lower() for each in (*get_args(Monitor), *names[:index])]
        if name.lower() in taken or re.fullmatch(OTHER_SCORES, name.lower()):
            raise InputError(f"metrics[{index}]", f"the name {name} is taken", "give it another: name: my_metric")
    return names


class OptimizerArguments(LossArguments, total=False):
    """Options of an optimizer (conf/optimizer/adamw.yaml)."""

    lr: Required[Positive]
    weight_decay: NonNegative
    fused: bool
    average: Average
    schedule: Required[ScheduleOptions]


class ModelKeys(Options):
    """Keys of every model that no network takes."""

    members: Count = 1
    """ensemble size: networks that are trained side by side, with averaged probabilities. Less variance between seeds,
    at that many times the work"""


class NetworkArguments(LossArguments, total=False):
    """The block `model` of a config: a network's class and arguments, which are checked when the class is imported."""

    members: Count


def with_run_settings(model: Any) -> Any:
    """Add the default value of `members`, which is a setting of the run and not an argument of a network."""
    return {**model, "members": model.get("members", 1)}


ModelArguments = Annotated[NetworkArguments, KeysOf(ModelKeys), AfterValidator(with_run_settings)]


# Lightning's precision names. A test compares the names with the signature of Lightning's Trainer.
Precision = Literal[
    64, 32, 16,
    "transformer-engine", "transformer-engine-float16", "16-true", "16-mixed", "bf16-true", "bf16-mixed",
    "32-true", "64-true", "64", "32", "16", "bf16",
]  # fmt: skip
Batches = ZeroOrMore | Share  # the integer 1 is one batch, the float 1.0 is all batches


class CallbackArguments(TypedDict, total=False):
    """Options of a Lightning callback. The signature of its class decides other keys."""

    __pydantic_config__ = ConfigDict(extra="allow", strict=True)  # type: ignore[misc]

    _target_: str


class LightningOptions(Options, validate_default=False):
    """Arguments of Lightning's Trainer that are added with a plus, +trainer.overfit_batches=2."""

    limit_predict_batches: Batches | None = NOT_SET
    overfit_batches: Batches = NOT_SET
    enable_checkpointing: bool | None = NOT_SET
    use_distributed_sampler: bool = NOT_SET
    barebones: bool = NOT_SET
    sync_batchnorm: bool = NOT_SET
    reload_dataloaders_every_n_epochs: ZeroOrMore = NOT_SET
    enable_autolog_hparams: bool = NOT_SET
    model_registry: str | None = NOT_SET
    callbacks: list[CallbackArguments] | None = NOT_SET


class TrainerOptions(LightningOptions):
    """Arguments of Lightning's Trainer; null leaves a choice to Lightning. Add others with +trainer.KEY=VALUE.

    Callbacks of any package are added with '+trainer.callbacks=[{_target_: mypackage.MyCallback, every: 2}]'.
    `pipeline` builds all other objects, such as the logger.
    """

    accelerator: str = "auto"
    """cpu, gpu, mps, … or auto: a GPU where there is one"""
    strategy: str = "auto"
    """how several devices train together: ddp, … or auto"""
    devices: Annotated[int, Field(ge=-1)] | str | list[int] = "auto"
    """devices to train on: a count, a list or auto"""
    num_nodes: Count = 1
    """machines that train together"""
    precision: Precision | None = None
    """number format: 32-true, bf16-mixed, 16-mixed, …; null: 32-true"""
    fast_dev_run: bool | ZeroOrMore = False
    """true: one batch of each split, to see whether everything runs"""
    max_epochs: Limit | Literal["auto"] | None = "auto"
    """epochs to train; -1: no limit; auto: 12, or as many as have 1,000 batches and no more than 6 million tokens"""
    min_epochs: ZeroOrMore | None = None
    """epochs to train even if patience would stop; null: none"""
    max_steps: Limit = -1
    """optimizer steps to train; -1: no limit"""
    min_steps: ZeroOrMore | None = None
    """optimizer steps to train even if patience would stop; null: none"""
    max_time: str | dict[str, int] | None = None
    """longest time to train, DD:HH:MM:SS; null: no limit"""
    limit_train_batches: Batches | None = None
    """batches of an epoch: a count (1: one batch) or a fraction (1.0: all)"""
    limit_val_batches: Batches | None = None
    """batches of a validation: a count or a fraction. They hold random rows"""
    limit_test_batches: Batches | None = None
    """has no effect: seqclf scores the test on all its rows"""
    val_check_interval: Batches | str | dict[str, int] | None = None
    """batches, or fraction of an epoch, between validations"""
    check_val_every_n_epoch: Count | Literal["auto"] | None = "auto"
    """epochs from one validation to the next; auto: 1, or for a small training set as many as leave 15
    validations of an automatic max_epochs or fewer, or 30 with a monitor"""
    num_sanity_val_steps: Annotated[int, Field(ge=-1)] | None = 0
    """validation batches before training, to find errors early"""
    log_every_n_steps: ZeroOrMore | None = 50
    """steps between logged values of the batch loss, the gradient norm and the learning rate. The first step is
    logged too"""
    enable_progress_bar: bool | None = True
    """a bar in the terminal; never shown in a file or a pipe"""
    accumulate_grad_batches: Count = 1
    """batches whose gradients are averaged for one optimizer step; the last step of an epoch averages those that
    are left"""
    gradient_clip_val: NonNegative | None = 1.0
    """largest norm of all gradients together; larger ones are scaled down to it; null: not limited"""
    gradient_clip_algorithm: Literal["norm", "value"] | None = None
    """clip the norm (of all gradients together) or the value (of each); null: norm"""
    deterministic: bool | Literal["warn"] | None = None
    """true: only deterministic algorithms, on a GPU too, where they are slower; warn: warn of others"""
    benchmark: bool | None = None
    """true: cuDNN times its algorithms and picks the fastest; for inputs of few shapes"""
    inference_mode: bool = True
    """torch.inference_mode in validation instead of torch.no_grad, which is slower"""
    profiler: Literal["simple", "advanced", "pytorch", "xla"] | None = None
    """simple, advanced or pytorch: measure where the time of training goes; null: off"""
    detect_anomaly: bool = False
    """true: stop at the operation whose gradient is NaN, with PyTorch's traceback of it"""


# Dict of Trainer arguments that `pipeline` sets: name of the argument → advice on the config key to set instead.
MADE_BY_PIPELINE = {
    "logger": "choose one by logger=wandb, mlflow, tensorboard, csv or none",
    "plugins": "set trainer.precision, trainer.strategy or trainer.num_nodes",
    "default_root_dir": "set hydra.run.dir=FOLDER",
    "enable_model_summary": "add '+trainer.callbacks=[{_target_: lightning.pytorch.callbacks.ModelSummary}]'",
}


def read_trainer(trainer: Any) -> Any:
    """Return the arguments of Lightning's Trainer. Raises InputError for those that `pipeline` sets itself."""
    if not isinstance(trainer, Mapping):
        return trainer
    if taken := [name for name in MADE_BY_PIPELINE if name in trainer]:
        raise InputError(f"trainer.{taken[0]}", "is made by the training itself", MADE_BY_PIPELINE[taken[0]])
    return parse_options(TrainerOptions, trainer, "trainer").model_dump(exclude_unset=True)


CHANGEABLE = ("layers", "hidden_size", "dropout")  # keys of the model config
CHANGES = f"freeze, unfreeze, or a key of model: {', '.join(CHANGEABLE)}"


class ModelChange(Options, validate_default=False):
    """A change of the model: new values for keys of the model config, where others stay, and modules to (un)freeze."""

    layers: Count = NOT_SET
    hidden_size: Count = NOT_SET
    dropout: DropoutShare = NOT_SET
    freeze: Texts = ()
    unfreeze: Texts = ()

    def of_model(self) -> dict[str, Any]:
        """Return a dict key of the model config → new value."""
        return {name: getattr(self, name) for name in CHANGEABLE if name in self.model_fields_set}


class ScheduleEntry(ModelChange):
    """One entry of the list `structure`: the model changes at the start of `epoch`, counted from 1."""

    epoch: Count


Change = TypeVar("Change", bound=ModelChange)


def read_schedule(entries: Any) -> list[tuple[str, ScheduleEntry]]:
    """Validate the entries of a schedule, and return the changes sorted by epoch, each with its config key.

    >>> [change.epoch for _, change in read_schedule([{"epoch": 5, "hidden_size": 192}, {"epoch": 3, "layers": 2}])]
    [3, 5]
    """
    are_mappings = isinstance(entries, (list, tuple)) and all(isinstance(entry, Mapping) for entry in entries)
    if not are_mappings or not all("epoch" in entry for entry in entries):
        raise InputError("structure", "must be a list of changes with an epoch each, such as [{epoch: 3, layers: 2}]")
    keyed = ((f"structure[{index}]", entry) for index, entry in enumerate(entries))
    changes = [(key, read_change(ScheduleEntry, entry, key)) for key, entry in keyed]
    return sorted(changes, key=lambda change: change[1].epoch)


def read_change(kind: type[Change], values: Mapping[str, Any], key: str) -> Change:
    """Return a change as an instance of `kind`. Raises InputError, with the config `key`, if it is invalid or empty.

    >>> read_change(ModelChange, {"freeze": "embedding"}, "change_structure").freeze
    ('embedding',)
    """
    if unknown := [name for name in values if name not in kind.model_fields]:
        raise InputError(f"{key}.{unknown[0]}", "no such key", f"write {CHANGES}")
    change = parse_options(kind, dict(values), key)
    if not (change.of_model() or change.freeze or change.unfreeze):
        raise InputError(key, "changes nothing", f"add {CHANGES}")
    return change


def check_schedule(entries: Any) -> Any:
    """Return the entries of a schedule unchanged. Raises InputError if an entry is invalid (see `read_schedule`)."""
    read_schedule(entries)
    return entries


Schedule = Annotated[list[dict[str, Any]], BeforeValidator(check_schedule)]


NOT_OF_RECIPE = ("data", "trainer", "logger", "checkpoint", "start", "overwrite", "export", "metrics")
NOT_OF_DATA_RECIPE = (
    *("name", "generator", "train", "validation", "test", "labels", "exclude", "cache_dir", "memory_limit"),
    *("fields", "static", "ignore", "infer", "encoders"),  # the schema has the fields
)
NOT_OF_TRAINER_RECIPE = (
    *("callbacks", "profiler", "model_registry", "accelerator", "devices", "num_nodes", "strategy"),
    *("enable_progress_bar", "fast_dev_run"),
)


def recipe_of(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of the settings of a training that its recipe holds (see `TrainConfig.recipe`)."""
    kept = {key: value for key, value in plain.items() if key not in NOT_OF_RECIPE}
    data = {key: value for key, value in plain["data"].items() if key not in NOT_OF_DATA_RECIPE}
    trainer = {key: value for key, value in plain["trainer"].items() if key not in NOT_OF_TRAINER_RECIPE}
    if kept["monitor"] not in (None, *get_args(Monitor)):  # a recipe names no code of metrics
        kept["monitor"] = "loss"
    return {**kept, "data": data, "trainer": trainer}


class TrainConfig(CommandOptions):
    """Train a classifier of sequences of different lengths, and export it."""

    data: DataOptions = Field(default_factory=DataOptions)
    """the data"""
    model: ModelArguments
    """the network"""
    batching: BatchingOptions = Field(default_factory=BatchingOptions)
    """batches"""
    loss: LossArguments
    """the loss"""
    decision: DecisionOptions = Field(default_factory=DecisionOptions)
    """the decision rule"""
    optimizer: Annotated[OptimizerArguments, KeysOf(OptimizerKeys)]
    """the optimizer"""
    trainer: Annotated[dict[str, Any], KeysOf(TrainerOptions), BeforeValidator(read_trainer)]
    """arguments of Lightning's Trainer"""
    logger: LoggerOptions
    """where curves and scores are logged"""
    structure: Schedule = Field(default_factory=list)
    """changes of the model at the start of epochs, which count from 1: a list of {epoch: N, KEY: VALUE}, where
    KEY is freeze or unfreeze, for modules such as [embedding], or a key of model: layers, hidden_size or dropout
    (lstm, gru, rnn, auto)"""
    seed: Seed = 0
    """seed of everything random in training; a run on a CPU is reproducible to the bit"""
    checkpoint: ResumedCheckpoint | None = None
    """resume from this file, RUN/checkpoints/last.ckpt; inside an epoch only with the same batching; auto: from
    the newest checkpoint of hydra.run.dir, or from the start if that folder holds none, so that the same command
    starts a run and resumes it"""
    start: Text | None = None
    """checkpoint whose weights the training starts from, as RUN/model.ckpt, of a model with the same settings,
    classes and encoders (data.encoders); null: new weights"""
    overwrite: bool = False
    """true: replace the run that hydra.run.dir already holds; false: reject such a folder"""
    checkpoint_every: Count | None = None
    """write last.ckpt every N steps too; null: at the ends of epochs only"""
    metrics: list[MetricArguments] = Field(default_factory=list)
    """metrics of one's own: [{_target_: mypackage.MyMetric, name: mine}], a torchmetrics Metric of probabilities and
    labels each, for every validation and metrics.json"""
    monitor: Text | None = None
    """validation metric that chooses the best epoch: recall, accuracy, precision, f1 or loss; or a metric that
    ignores the threshold: average_precision, auroc; or the name of one of metrics; null: the last step is kept"""
    patience: ZeroOrMore | None = None
    """early stopping: validations without improvement of monitor before training stops; null: never"""
    head_patience: Count | Literal["auto"] | None = "auto"
    """validations in a row without a lower loss of its own after which the training of a head of model=auto ends,
    with its best weights; auto: 3, or null, never, if the data has a positive class or decision a target, as the
    validation rows that end it could not set a threshold"""
    baseline: bool = True
    """score an order-blind baseline too, for metrics.json and the terminal"""
    baseline_limit: ZeroOrMore = 20_000_000
    """tokens of the data beyond which the baseline is left out"""
    export: bool = True
    """write RUN/bundle after training"""
    runtime: RuntimeOptions = Field(default_factory=RuntimeOptions)
    """settings of PyTorch"""

    @model_validator(mode="before")
    @classmethod
    def name_costs(cls, config: Any) -> Any:
        """Let the data have the costs of the rows that the decision names."""
        column = (config.get("decision") or {}).get("cost") if isinstance(config, Mapping) else None
        if not isinstance(column, str):
            return config
        if (named := config["data"].get("cost")) not in (None, column):
            raise InputError(f"data.cost={named}", f"is not decision.cost={column}", "remove one of the two")
        return {**config, "data": {**config["data"], "cost": column}}

    @model_validator(mode="after")
    def check_epochs(self) -> TrainConfig:
        if self.patience is not None and self.monitor is None:
            raise InputError(f"patience={self.patience}", "has no metric to wait for", "set monitor=loss, for example")
        known = [*get_args(Monitor), *metric_names(self.metrics)]
        if self.monitor not in (None, *known):
            raise InputError(f"monitor={self.monitor}", *must_be_one_of(self.monitor, known))
        self.check_changes()
        return self

    def check_changes(self) -> None:
        """Raise InputError for a structure change after the last epoch, if the number of epochs is known."""
        limit = self.trainer["max_epochs"]
        for key, change in read_schedule(self.structure):
            if isinstance(limit, int) and 0 <= limit < change.epoch:
                problem = f"is beyond trainer.max_epochs={limit}"
                raise InputError(f"{key}.epoch={change.epoch}", problem, "raise that, or remove the change")

    def recipe(self) -> dict[str, Any]:
        """Return the settings that train such a model on other data: no paths, no callbacks, nothing of the machine."""
        return recipe_of({**self.model_dump(), "runtime": {**self.runtime.model_dump(), "threads": None}})
