"""A config error is reported before any data is read, as one line that names the key, its value and what is allowed."""

import signal
import sys

import pytest
from hydra._internal.hydra import Hydra
from lightning.pytorch.callbacks import Callback
from support.installed_package import documented_example, install_package
from torch import nn

from seqclf.config.command import run as command_run
from seqclf.errors import InputError
from seqclf.extend import SequenceNetwork
from seqclf.settings.train_settings import require_checkpoint_file
from seqclf.system.signals import SIGNALS

FILES = ["data=files", "data.train=broken.parquet", "data.label=label", "logger=none"]
LSTM = "model=lstm"


class Net(SequenceNetwork):
    def __init__(self, fields, num_classes, *, kernel):
        super().__init__()


class Margin(nn.Module):
    def __init__(self, margin):
        super().__init__()


class Every(Callback):
    def __init__(self, every):
        pass


NET, MARGIN = f"model._target_={__name__}.Net", f"loss._target_={__name__}.Margin"
OWN, NETWORK, LOSS = "model=own_encoder", "model=own_network", "loss=own"
CELLS = "model.encoder._target_=seqclf.extend.CellEncoder"
ENCODER = "model.encoder._target_"
TO_CELL = "+model.encoder.cell._target_"

# command, overrides, the place that the error line names, what the value must be or the remedy
CASES = [
    # values of options
    ("train", ["monitor=recal"], "monitor=recal", "did you mean 'recall'?"),
    ("train", ["decision.min_recall=80"], "decision.min_recall=80", "write 80 % as 0.8"),
    ("train", [LSTM, "model.pooling=mean+maxi"], "model.pooling=mean+maxi", "did you mean 'max'?; several are joined"),
    # keys
    ("train", ["trainer.max_epoch=3"], "trainer.max_epoch", "write trainer.max_epochs=3"),
    ("train", ["logger=none", "+logger.tags=[a]"], "logger.tags", "no such key"),
    ("train", ["+trainer.logger=true"], "trainer.logger", "one by logger=wandb, mlflow, tensorboard, csv or none"),
    # data and files
    (
        "train",
        ["checkpoint=no.ckpt"],
        "checkpoint=no.ckpt",
        "give RUN/model.ckpt, or RUN/checkpoints/last.ckpt",
    ),
    ("train", ["data.fields=events"], "data.fields=events", "write 'data.fields={events: KIND}'"),
    ("train", ["data.split.by=time"], "data.split.by=time", "needs data.split.column=COLUMN"),
    ("train", ["data.generator={_target_: os.system}"], "data.generator._target_=os.system", "that writes a dataset"),
    # classes
    ("train", ["model._target_=torch.optim.SGD"], "model._target_=torch.optim.SGD", "is not a SequenceNetwork; derive"),
    ("train", [NETWORK, NET], "model.kernel", "Net needs it"),
    ("train", [OWN, CELLS], "model.encoder.cell", f"names no class; write {TO_CELL}=CLASS"),
    ("train", [OWN, CELLS, f"{TO_CELL}=torch.nn.GRUCell"], f"{TO_CELL[1:]}=torch.nn.GRUCell", "not a RecurrentCell"),
    ("train", [CELLS, "model=transformer"], "model.heads", "~model.heads removes"),
    ("train", [LOSS, MARGIN], "loss.margin", "Margin needs it"),
    ("train", [LSTM, f"{ENCODER}=mypkg.Conv"], f"{ENCODER}=mypkg.Conv", "holds it to PYTHONPATH"),
    ("train", [f"+trainer.callbacks=[{{_target_: {__name__}.Every, evry: 2}}]"], "trainer.callbacks[0].evry", "every"),
    # models
    ("train", ["model=transformer", "model.heads=5"], "model.heads=5", "set model.hidden_size=100, or other heads"),
    ("train", ["model.expansion=8"], "model.expansion", "write model=transformer model.expansion=8"),
    ("train", [LSTM, "model.residual_layers=1"], "model.residual_layers=1", "the first layer cannot be residual"),
    ("train", ["structure.0.epoch=3"], "structure.0.epoch=3", "structure is one list"),
    ("train", ["loss._target_=torch.nn.CrossEntropyLoss"], "loss.class_weights", "loss=own brings none"),
    ("train", ["structure=[{epoch: 9, layers: 2}]", "trainer.max_epochs=8"], "structure[0].epoch=9", "the change"),
    ("train", ["model=t_lstm"], "model.encoder.cell.gap=null", "must be the name of a field"),
    ("train", ["model=adaptive", "model.members=3"], "model.members=3", "set model.members=1"),
    # other commands
    ("search", ["search.space={model.layers: []}"], "search.space", "model.layers=[]: must be a list of values"),
    ("search", ["trainer.fast_dev_run=true"], "trainer.fast_dev_run", "set trainer.max_epochs=1 instead"),
    ("describe", ["output=survey.html"], "output=survey.html", "end it in .json"),
]


def test_the_bundle_of_a_run_is_no_checkpoint(tmp_path):
    for file in ("run/model.ckpt", "run/bundle/manifest.json"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    with pytest.raises(InputError, match=r"bundle: is a folder; write checkpoint=.*/run/model\.ckpt$"):
        require_checkpoint_file(str(tmp_path / "run" / "bundle"))


@pytest.fixture
def error_line(tmp_path, monkeypatch, capsys):
    """`error_line(command, *overrides)`: the one error line of a command, run in this process."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.parquet").write_text("not parquet at all")
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    # Hydra composes a config twice: first to learn if it is a multirun, which none of these is.
    monkeypatch.setattr(Hydra, "get_mode", lambda *_, **__: None)

    def run(command, *overrides):
        monkeypatch.setattr(sys, "argv", [command, *overrides, "hydra.run.dir=run"])
        with pytest.raises(SystemExit) as caught:
            command_run(command)
        assert caught.value.code == 2
        out, err = capsys.readouterr()
        (line,) = err.splitlines()
        assert out == "" and [path.name for path in tmp_path.iterdir()] == ["broken.parquet"]
        return line

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("command", ["train", "describe"])
def test_the_data_cannot_be_read(error_line, command):
    line = error_line(command, *FILES)
    assert line.startswith("error: broken.parquet: "), "otherwise the tests below show nothing"


@pytest.mark.parametrize(("command", "overrides", "place", "named"), CASES, ids=[" ".join(case[1]) for case in CASES])
def test_a_config_error_comes_before_the_data(error_line, command, overrides, place, named):
    line = error_line(command, *FILES, *overrides)
    assert line.startswith(f"error: {place}: ") and named in line


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], "model.encoder.gate: names no class"),
        (["+model.encoder.gate._target_=torch.nn.GELU"], "model.encoder.gate._target_=torch.nn.GELU: is not a Gate"),
        (
            ["+model.encoder.gate._target_=gatedpackage.encoders.Linear", "+model.encoder.gate.bias=maybe"],
            "model.encoder.gate.bias=maybe: must be true or false",
        ),
    ],
)
def test_a_part_of_a_documented_encoder_is_checked_before_the_data(
    error_line, monkeypatch, tmp_path_factory, overrides, expected
):
    code = documented_example("An encoder", number=3)
    install_package(monkeypatch, tmp_path_factory.mktemp("installed"), "gatedpackage", {"encoders.py": code})
    own = [OWN, "model.encoder._target_=gatedpackage.encoders.GatedTokens"]
    line = error_line("train", *FILES, *own, *overrides)
    assert line.startswith(f"error: {expected}")
