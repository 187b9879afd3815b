"""A config error is reported before any data is read, as one line that names the key, its value and what is allowed."""

import signal
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any

import pytest
from hydra._internal.hydra import Hydra
from lightning.pytorch.callbacks import Callback
from support.command_modules import command_module
from support.installed_package import documented_example, install_package
from torch import nn

from seqclf.config.argument_types import TargetOf
from seqclf.errors import InputError
from seqclf.extend import SequenceEncoder, SequenceNetwork
from seqclf.system.signals import SIGNALS
from seqclf.training.options import require_checkpoint_file

FILES = ["data=files", "data.train=broken.parquet", "data.label=label", "logger=none"]
WANDB = ["logger=wandb"]
LSTM = "model=lstm"


class Net(SequenceNetwork):
    """A network of another package."""

    def __init__(self, fields, num_classes, *, kernel):
        super().__init__()


class Conv(SequenceEncoder):
    """An encoder of another package."""

    def __init__(self, input_size, *, kernel, hidden_size):
        super().__init__()


class Gated(SequenceEncoder):
    """An encoder of another package, which says what its part is."""

    def __init__(self, input_size, *, gate: Annotated[Mapping[str, Any], TargetOf(nn.Linear)], hidden_size):
        super().__init__()


class Margin(nn.Module):
    """A loss of another package."""

    def __init__(self, margin):
        super().__init__()


class Every(Callback):
    def __init__(self, every):
        pass


NET, CONV, GATED, MARGIN = (
    f"{part}._target_={__name__}.{name}"
    for part, name in (("model", "Net"), ("model.encoder", "Conv"), ("model.encoder", "Gated"), ("loss", "Margin"))
)
OWN, NETWORK, LOSS = "model=own_encoder", "model=own_network", "loss=own"
CELLS = "model.encoder._target_=seqclf.extend.CellEncoder"
TO_CELL = "+model.encoder.cell._target_"
TO_GATE = "+model.encoder.gate._target_"
SIZED = [OWN, GATED, "+model.hidden_size=8"]

# command, overrides, the place that the error line names, what the value must be or the remedy
CASES = [
    ("train", ["monitor=recal"], "monitor=recal", "did you mean 'recall'?"),
    ("train", ["decision.min_recall=80"], "decision.min_recall=80", "write 80 % as 0.8"),
    ("train", ["decision.min_recall={yes: 1.5}"], "decision.min_recall.yes=1.5", "must be a number above 0"),
    ("train", ["decision.holdout=1"], "decision.holdout=1", "must be at most 0.9"),
    ("train", ["decision.confidence=95"], "decision.confidence=95", "must be at most 0.9999"),
    ("train", ["trainer.precision=16bit"], "trainer.precision=16bit", "bf16-mixed, 32-true, 64-true, bf16, or null"),
    ("train", ["trainer.max_epoch=3"], "trainer.max_epoch", "write trainer.max_epochs=3"),
    ("train", ["+trainer.overfit_batch=3"], "trainer.overfit_batch", "did you mean 'trainer.overfit_batches'?"),
    ("train", ["trainer.max_epochs=0"], "trainer.max_epochs=0", "must be at least 1, or -1 for no limit, or null"),
    ("train", ["trainer.max_epochs=many"], "trainer.max_epochs=many", "must be a whole number or auto, or null"),
    ("train", ["trainer.limit_train_batches=most"], "trainer.limit_train_batches=most", "must be a number, or null"),
    ("train", ["checkpoint=no.ckpt"], "checkpoint=no.ckpt", "give RUN/checkpoints/best.ckpt, or last.ckpt to resume"),
    ("train", ["checkpoint=."], "checkpoint=.", "name a file, RUN/checkpoints/best.ckpt, or last.ckpt to resume"),
    ("train", ["checkpoint=broken.parquet"], "checkpoint=broken.parquet", "or last.ckpt to resume"),
    ("train", ["optimizer.schedule.decay=cosin"], "optimizer.schedule.decay=cosin", "did you mean 'cosine'?"),
    ("train", ["optimizer.schedule.warmup=10"], "optimizer.schedule.warmup=10", "must be at most 1"),
    ("train", ["data.split.test=20%"], "data.split.test=20%", "must be a number"),
    ("train", ["decision.min_recall=80%"], "decision.min_recall=80%", "must be a number"),
    ("train", ["data.fields=events"], "data.fields=events", "write 'data.fields={events: KIND}'"),
    ("train", ["batching.max_tokens=0"], "batching.max_tokens=0", "must be at least 1, or auto"),
    ("train", ["batching.overhead=-1"], "batching.overhead=-1", "must be at least 0, or null"),
    ("train", ["batching.balance=2"], "batching.balance=2", "must be at most 1"),
    ("train", [*WANDB, "logger.mode=ofline"], "logger.mode=ofline", "did you mean 'offline'?"),
    ("train", [*WANDB, "logger.timeout=soon"], "logger.timeout=soon", "must be a number"),
    (
        "train",
        [*WANDB, f"logger.tags=[a,{'t' * 65}]"],
        f"logger.tags={'t' * 65}",
        "must have at most 64 characters",
    ),
    ("train", [*WANDB, "logger.tags=['']"], "logger.tags=", "must have at least 1 character"),
    (
        "train",
        [*WANDB, "logger.mode=offline", "logger.project=a/b:c"],
        "logger.project=a/b:c",
        r"must match pattern '^[^/\\#?%:]*$'",
    ),
    (
        "train",
        [*WANDB, f"logger.project={'p' * 129}"],
        f"logger.project={'p' * 129}",
        "must have at most 128 characters",
    ),
    (
        "train",
        [*WANDB, f"logger.run_name={'n' * 129}"],
        f"logger.run_name={'n' * 129}",
        "must have at most 128 characters",
    ),
    ("train", [*WANDB, f"logger.group={'g' * 129}"], f"logger.group={'g' * 129}", "must have at most 128 characters"),
    (
        "train",
        [*WANDB, f"logger.job_type={'j' * 65}"],
        f"logger.job_type={'j' * 65}",
        "must have at most 64 characters, or null",
    ),
    ("train", [*WANDB, "logger.tags=3"], "logger.tags=3", "must be a list, or null"),
    ("train", ["model.cell=lstn"], "model.cell=lstn", "did you mean 'lstm'?"),
    (
        "train",
        [LSTM, "model.pooling=mean+maxi"],
        "model.pooling=mean+maxi",
        "did you mean 'max'?; several are joined by +",
    ),
    ("train", ["model.hidden_size=big"], "model.hidden_size=big", "must be a whole number"),
    ("train", ["seed=-1"], "seed=-1", "must be at least 0"),
    (
        "train",
        ["~baseline_limit"],
        "baseline_limit",
        "do not remove it with ~, and name it in a config file of your own",
    ),
    ("train", ["+patiense=3"], "patiense", "write patience=3"),
    ("train", ["data.split.by=tme"], "data.split.by=tme", "did you mean 'time'?"),
    ("train", ["data.split.by=time"], "data.split.by=time", "needs data.split.column=COLUMN"),
    ("train", ["data.split.validation=0"], "data.split.validation=0", "give data.validation=FILE or a share"),
    ("train", ["data.truncate=keep"], "data.truncate=keep", "did you mean 'keep_last'?"),
    ("train", ["data.generator={_target_: os.system}"], "data.generator._target_=os.system", "that writes a dataset"),
    (
        "train",
        ["model._target_=seqclf.models.classifier.SequenceClasifier"],
        "model._target_=seqclf.models.classifier.SequenceClasifier",
        "did you mean 'SequenceClassifier'?",
    ),
    (
        "train",
        ["model._target_=torch.optim.SGD"],
        "model._target_=torch.optim.SGD",
        "is not a SequenceNetwork; derive it from seqclf.extend",
    ),
    ("train", ["+model.hiden_size=9"], "model.hiden_size", "did you mean 'hidden_size'?"),
    ("train", ["+loss.gama=1"], "loss.gama", "it takes class_weights, effective_beta, label_smoothing"),
    ("train", ["loss.class_weights=equal"], "loss.class_weights=equal", "balanced, effective or {label: weight}"),
    ("train", ["loss=focal", "loss.gamma=-1"], "loss.gamma=-1", "must be at least 0"),
    ("train", ["optimizer._target_=torch.optim.AdamWW"], "optimizer._target_=torch.optim.AdamWW", "you mean 'AdamW'?"),
    ("train", ["+optimizer.learning_rate=1"], "optimizer.learning_rate", "it takes lr, "),
    ("train", ["optimizer.betas=[2, 3]"], "optimizer._target_=torch.optim.AdamW", "beta parameter at index 0: 2"),
    ("train", [NETWORK, NET], "model.kernel", "Net needs it"),
    ("train", [NETWORK, NET, "+model.kernle=5"], "model.kernle", "did you mean 'kernel'?"),
    ("train", [NETWORK, NET, "+model.kernel=5", "+model.layers=2"], "model.layers", "it takes kernel"),
    ("train", [LSTM, NET, "+model.kernel=5"], "model.encoder", "~model.encoder removes"),
    ("train", [OWN, CONV, "+model.hidden_size=8"], "model.kernel", "Conv needs it"),
    ("train", [OWN, CONV, "+model.encoder.kernle=5"], "model.encoder.kernle", "did you mean 'kernel'?"),
    ("train", [OWN, CONV, "+model.kernle=5"], "model.kernle", "did you mean 'kernel'?"),
    (
        "train",
        [OWN, CELLS],
        "model.encoder.cell",
        f"names no class; write {TO_CELL}=CLASS, the dotted path of a Recurr",
    ),
    ("train", [OWN, CELLS, "+model.encoder.cell.keys=3"], "model.encoder.cell", f"write {TO_CELL}=CLASS"),
    (
        "train",
        [OWN, CELLS, f"{TO_CELL}=torch.nn.GRUCell"],
        f"{TO_CELL[1:]}=torch.nn.GRUCell",
        "is not a RecurrentCell",
    ),
    ("train", [CELLS, "model=transformer"], "model.heads", "~model.heads removes"),
    (
        "train",
        SIZED,
        "model.encoder.gate",
        f"names no class; write {TO_GATE}=CLASS, the dotted path of a Linear",
    ),
    (
        "train",
        [OWN, GATED, "+model.hidden_size=8", f"{TO_GATE}=torch.nn.GRU"],
        f"{TO_GATE[1:]}=torch.nn.GRU",
        "is not a Linear",
    ),
    (
        "train",
        [OWN, GATED, "+model.hidden_size=8", f"{TO_GATE}=torch.nn.Linear"],
        "model.encoder.gate.in_features",
        "Linear needs it",
    ),
    (
        "train",
        [LSTM, "model.hidden_size=???"],
        "model.hidden_size",
        "as model.hidden_size=VALUE",
    ),
    ("train", [LSTM, "~model.encoder"], "model.encoder._target_", "name the class of the encoder"),
    (
        "train",
        ["model.encoder._target_=mypkg.Conv"],
        "model.encoder._target_",
        "write model=lstm model.encoder._target_=",
    ),
    (
        "train",
        [LSTM, "model.encoder._target_=mypkg.Conv"],
        "model.encoder._target_=mypkg.Conv",
        "holds it to PYTHONPATH",
    ),
    ("train", ["model._target_=torch.nn.Linear"], "model._target_=torch.nn.Linear", "is not a SequenceNetwork"),
    ("train", [LOSS, MARGIN], "loss.margin", "Margin needs it"),
    ("train", [LOSS, MARGIN, "+loss.margn=1"], "loss.margn", "did you mean 'margin'?"),
    (
        "train",
        [LOSS, MARGIN, "+loss.margin=1", "+loss.class_weights=balanced"],
        "loss.class_weights",
        "it takes margin",
    ),
    (
        "train",
        [f"+trainer.callbacks=[{{_target_: {__name__}.Every, evry: 2}}]"],
        "trainer.callbacks[0].evry",
        "'every'?",
    ),
    (
        "train",
        ["+trainer.callbacks=[{_target_: torch.nn.Linear}]"],
        "trainer.callbacks[0]._target_=torch.nn.Linear",
        "is not a Callback",
    ),
    ("train", ["+trainer.callbacks=[{every: 2}]"], "trainer.callbacks[0]._target_", "name the class of the callback"),
    ("train", ["+trainer.logger=true"], "trainer.logger", "one by logger=wandb, mlflow, tensorboard, csv or none"),
    ("train", ["model=transformer", "model.heads=5"], "model.heads=5", "set model.heads=4 or model.hidden_size=100"),
    ("train", ["model=transformer", "+model.encoder.heads=32"], "model.encoder.heads", "repeats model.heads"),
    ("train", ["model=transformer", "model.feed_forward=swigl"], "model.feed_forward=swigl", "did you mean 'swiglu'?"),
    ("train", ["model=transformer", "model.heads=0"], "model.heads=0", "must be at least 1"),
    ("train", ["model=transformer", "model.expansion=2.5"], "model.expansion=2.5", "must be a whole number"),
    ("train", ["model=transformer", "model.cell=gru"], "model.cell", "no cell, so remove it (model=auto has cell)"),
    ("train", ["experiment=sst", "path=x", "model.layers=2"], "model.layers", "so remove it (model=auto has layers)"),
    ("train", ["model=tree_lstm", "model.pooling=max"], "model.pooling", "so remove it (model=lstm has pooling)"),
    ("train", ["model.expansion=8"], "model.expansion", "write model=transformer model.expansion=8"),
    ("train", [LSTM, "model.residual_layers=1"], "model.residual_layers=1", "the first layer cannot be residual"),
    ("train", ["structure={epoch: 3, layers: 2}"], "structure={epoch: 3, layers: 2}", "does not fit"),
    ("train", ["+structure.epoch=3"], "+structure.epoch=3", "does not fit"),
    ("train", ["structure=[{epoch: 3, layers: 0}]"], "structure[0].layers=0", "must be at least 1"),
    ("train", ["structure=[{epoch: 9, layers: 2}]", "trainer.max_epochs=8"], "structure[0].epoch=9", "the change"),
    ("train", [LSTM, "structure=[{epoch: 3, hidden_size: 64}]"], "structure[0].hidden_size=64", "a model grows only"),
    (
        "train",
        ["structure=[{epoch: 3, hidden_size: 64}, {epoch: 4, hidden_size: 32}]"],
        "structure[1].hidden_size=32",
        "must be above 64",
    ),
    ("train", ["model=t_lstm"], "model.encoder.cell.gap=null", "must be the name of a field"),
    ("train", ["model=gru_d", "model.encoder.cell.size=3"], "model.encoder.cell.size", "no such key"),
    ("train", ["model=adaptive", "model.earliness=-1"], "model.earliness=-1", "must be at least 0"),
    ("train", ["model=adaptive", "model.earliness=inf"], "model.earliness=inf", "must be a finite number"),
    ("train", ["model.number_noise=nan"], "model.number_noise=nan", "must be a finite number"),
    ("train", ["optimizer.lr=inf"], "optimizer.lr=inf", "must be a finite number"),
    ("train", ["data.split=[1]"], "data.split=[1]", "set one of them: data.split.by=VALUE"),
    ("train", ["trainer=[1]"], "trainer=[1]", "--help trainer lists them"),
    ("walkthrough", ["examples=[[1,2]]"], "examples=[[1,2]]", "is a block of keys"),
    ("train", ["model=adaptive", "model.members=3"], "model.members=3", "set model.members=1"),
    ("train", ["model=adaptive", "model.bidirectional=true"], "model.bidirectional=true", "=false"),
    ("train", ["model.earliness=0.2"], "model.earliness", "write model=adaptive model.earliness=0.2"),
    ("search", ["search.direction=up"], "search.direction=up", "must be maximize or minimize, or null"),
    ("search", ["search.space={model.layers: []}"], "search.space", "model.layers=[]: has no choice"),
    ("search", ["search.trials=0"], "search.trials=0", "must be at least 1"),
    ("search", ["debug=shapes"], "debug=shapes", "remove it, or use seqclf train"),
    ("search", ["trainer.fast_dev_run=true"], "trainer.fast_dev_run", "set trainer.max_epochs=1 instead"),
    ("train", ["logger=none", "+logger.tags=[a]"], "logger.tags", "no such key"),
    ("describe", ["output=survey.html"], "output=survey.html", "end it in .json"),
    ("walkthrough", ["rows=0"], "rows=0", "must be at least 1"),
    ("walkthrough", ["rows=51"], "rows=51", "must be at most 50"),
    ("walkthrough", ["sequence=abc", "input=x.csv"], "input=x.csv and sequence=abc", "remove one of them"),
    ("walkthrough", ["split=dev"], "split=dev", "must be train, validation or test, or null"),
    ("walkthrough", ["output=page.pdf"], "output=page.pdf", "end it in .html"),
    ("walkthrough", ["debug=shapes"], "debug=shapes", "remove it, or use seqclf train"),
    ("walkthrough", ["trainer.fast_dev_run=true"], "trainer.fast_dev_run", "set trainer.max_epochs=1 instead"),
    ("bench", ["modes=[dynamic,static,egaer]"], "modes=egaer", "must be one of dynamic, packed, static, compiled"),
    ("bench", ["modes=[dynamic]"], "modes", "must hold dynamic and static, which are compared"),
    ("bench", ["lengths=[]"], "lengths=[]", "must have an entry"),
    ("bench", [NETWORK, NET], NET, "set model=lstm or another model of this package"),
    ("bench", [OWN, CONV], CONV, "set model=lstm or another model of this package"),
    ("bench", ["lengths=[normal]"], "lengths=normal", "must be one of equal, uniform"),
    ("bench", ["precision=16-mixed", "device=cpu"], "precision=16-mixed", "set precision=bf16-mixed"),
    ("bench", ["updates=0"], "updates=0", "must be at least 1"),
    ("bench", ["precision=16"], "precision=16", "must be 32-true, bf16-mixed or 16-mixed"),
]


def test_the_bundle_of_a_run_is_no_checkpoint(tmp_path):
    for file in ("run/checkpoints/best.ckpt", "run/bundle/manifest.json"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    with pytest.raises(InputError, match=r"bundle: is a folder; write checkpoint=.*/run/checkpoints/best\.ckpt$"):
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
            import_module(command_module(command)).main()
        assert caught.value.code == 2
        out, err = capsys.readouterr()
        (line,) = err.splitlines()
        assert out == "" and [path.name for path in tmp_path.iterdir()] == ["broken.parquet"]
        return line

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("command", ["train", "describe", "bench"])
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
