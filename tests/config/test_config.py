"""Every option of every group composes, builds, and has its default in one place."""

import inspect

import lightning.pytorch as pl
import pytest
import torch

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.config.arguments import TypedArguments, compose_plain
from seqclf.config.build import build, locate
from seqclf.config.command_keys import CONF, SETTINGS, Command
from seqclf.config.help_text import EXAMPLES
from seqclf.config.hydra_config import compose_config
from seqclf.models.ensemble import build_classifier
from seqclf.settings.base import parse_options
from seqclf.settings.train_settings import TrainConfig
from seqclf.training.check_targets import resolve_for_data
from seqclf.training.task import SequenceTask

GROUPS = sorted((path.parent.name, path.stem) for path in CONF.glob("*/*.yaml"))
# Choices of model that read a field, which the user must name.
NAMED_FIELDS = {"t_lstm": ["model.encoder.cell.gap=value"], "gru_d": ["model.encoder.cell.field=vitals"]}
VITALS = {"name": "vitals", "kind": "number", "width": 3, "scaled": [True, False, True]}
FIELDS = [{"name": "token", "kind": "category", "size": 9}, {"name": "value", "kind": "number", "width": 2}]


def composed(name, *overrides):
    if not Command(name).uses_hydra:
        return compose_plain(TypedArguments(name, overrides))
    return compose_config(name, overrides).plain()


def options_of(group):
    return [option for owner, option in GROUPS if owner == group]


def built_in_options_of(group):
    return [option for option in options_of(group) if not option.startswith("own")]


@pytest.mark.parametrize("option", options_of("experiment"))
def test_every_experiment_can_be_trained_and_described(option):
    train, describe = (composed(command, f"experiment={option}", "++path=folder") for command in ("train", "describe"))
    assert parse_options(TrainConfig, train).seed == 0
    assert describe["data"] == train["data"] and describe["batching"] == train["batching"]


@pytest.mark.parametrize("command", SETTINGS)
def test_every_command_has_a_module_a_config_and_help(command):
    required = {
        "export": ["checkpoint=x", "bundle=y"],
        "retrain": ["bundle=x"],
        "compare": ["runs=x"],
        "doctor": ["bundle=y"],
        "predict": ["bundle=y"],
    }
    assert composed(command, *required.get(command, []))
    assert f"seqclf {command} " in EXAMPLES[command]
    assert locate(f"seqclf.commands.{command}.main")


@pytest.mark.parametrize("option", built_in_options_of("model"))
def test_every_model_builds_from_its_config(option):
    config = composed("train", f"model={option}", *NAMED_FIELDS.get(option, []))["model"]
    parents = {"name": "parents", "kind": "parents", "node_classes": []}
    # With trees, `auto` is another model.
    fields = [*FIELDS, VITALS, *([] if option == "auto" else [parents])]
    dataset = {"fields": fields, "rows": {"train": 100}, "sequences": {"order": 0.5, "median": 40, "longest": 60}}
    assert list(build_classifier(resolve_for_data(config, dataset)[0], fields, num_classes=3).parameters())


@pytest.mark.parametrize("option", built_in_options_of("loss"))
def test_every_loss_builds_from_its_config(option):
    config = composed("train", f"loss={option}")["loss"]
    loss = build(config, torch.nn.Module, classes=["a", "b"], class_counts=[3, 4])
    assert loss(torch.zeros(2, 2), torch.tensor([0, 1])).ndim == 0


@pytest.mark.parametrize("option", built_in_options_of("optimizer"))
def test_every_optimizer_builds_from_its_config(option):
    config = composed("train", f"optimizer={option}")["optimizer"]
    config.pop("schedule")
    config.pop("average")
    build(config, torch.optim.Optimizer, params=[torch.zeros(2, requires_grad=True)])


@pytest.mark.parametrize("option", options_of("trainer"))
@pytest.mark.filterwarnings("ignore:GPU available but not used")  # advice on machines that have one
def test_every_trainer_builds_from_its_config(option, tmp_path):
    config = composed("train", f"trainer={option}")["trainer"]
    config |= {"accelerator": "cpu", "logger": False, "default_root_dir": tmp_path, "enable_checkpointing": False}
    config |= {"max_epochs": 3, "check_val_every_n_epoch": 1}  # the defaults are numbers once the rows are counted
    assert pl.Trainer(**config).max_epochs == config["max_epochs"]


@pytest.mark.parametrize("option", options_of("batching"))
def test_every_batching_builds_from_its_config(option):
    SequenceDataModule({}, seed=0, **composed("train", f"batching={option}")["batching"])


def test_constructors_hold_no_defaults_of_their_own():
    for constructor in (SequenceDataModule, SequenceTask):
        parameters = inspect.signature(constructor).parameters.values()
        assert all(parameter.default in (parameter.empty, None) for parameter in parameters)


@pytest.fixture
def refused(empty_shell, tmp_path):
    def run(command, *arguments):
        done = empty_shell(command, *arguments, cwd=tmp_path)
        assert done.exit_code == 2, done.stderr
        assert done.stdout == "" and "Traceback" not in done.stderr
        assert not list(tmp_path.iterdir()), "a command that could not start left something behind"
        (line,) = done.stderr.splitlines()
        return line

    return run


@pytest.mark.parametrize(
    ("command", "arguments", "named"),
    [
        ("train", ["model=mamba"], "mamba"),
        ("train", ["data.fields.tokens.kind.x=3", "data=toy"], "data.fields.tokens"),
        ("export", ["checkpoint=x"], "bundle"),
        ("train", ["not-an-assignment"], "not-an-assignment"),
        ("train", ["experiment=trec"], "path"),
        ("train", ["+data@other=toy"], "other: no such key"),
        ("evaluate", ["bundle=x", "+decision.holdout=0.9"], "decision.holdout: no such key"),
    ],
)
def test_an_unknown_key_is_named_in_one_line(refused, command, arguments, named):
    line = refused(command, *arguments)
    assert line.startswith("error: ") and named in line


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("train", ["experiment=imdb", "++path=nowhere"]),
        ("describe", ["data=files", "data.train=nowhere.csv", "data.label=x", "+trainer.any=1", "++seed=1"]),
    ],
)
def test_variables_of_experiments_and_groups_that_nothing_reads_may_be_set(refused, command, arguments):
    assert "nowhere" in refused(command, *arguments)
