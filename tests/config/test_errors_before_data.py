"""A config error is reported before any data is read, as one line that names the key, its value and what is allowed."""

import signal
import sys
from importlib import import_module

import pytest
from hydra._internal.hydra import Hydra
from lightning.pytorch.callbacks import Callback
from support.command_modules import command_module
from torch import nn

from seqclf.errors import InputError
from seqclf.system.signals import SIGNALS
from seqclf.training.options import CHECKPOINT_FILES, require_checkpoint_file

FILES = ["data=files", "data.train=broken.parquet", "data.label=label", "logger=none"]
WANDB = ["logger=wandb"]


class Net(nn.Module):
    """A network of another package."""

    def __init__(self, fields, num_classes, *, kernel):
        super().__init__()


class Conv(nn.Module):
    """An encoder of another package."""

    def __init__(self, input_size, *, kernel, hidden_size):
        super().__init__()


class Margin(nn.Module):
    """A loss of another package."""

    def __init__(self, margin):
        super().__init__()


class Every(Callback):
    def __init__(self, every):
        pass


NET, CONV, MARGIN = (
    f"{part}._target_={__name__}.{name}"
    for part, name in (("model", "Net"), ("model.encoder", "Conv"), ("loss", "Margin"))
)

# command, overrides, the whole error line
CASES = [
    (
        "train",
        ["monitor=recal"],
        "monitor=recal: must be one of loss, accuracy, recall, precision, f1, "
        "average_precision, auroc; did you mean 'recall'?",
    ),
    (
        "train",
        ["decision.min_recall=80"],
        "decision.min_recall=80: must be a number above 0 and below 1, or null; write 80 % as 0.8",
    ),
    (
        "train",
        ["decision.min_recall={yes: 1.5}"],
        "decision.min_recall.yes=1.5: must be a number above 0 and below 1; write 1.5 % as 0.015",
    ),
    ("train", ["decision.holdout=1"], "decision.holdout=1: must be at most 0.9"),
    ("train", ["decision.confidence=95"], "decision.confidence=95: must be at most 0.9999; write 95 % as 0.95"),
    (
        "train",
        ["trainer.precision=16bit"],
        "trainer.precision=16bit: must be one of 64, 32, 16, transformer-engine, "
        "transformer-engine-float16, 16-true, 16-mixed, bf16-true, bf16-mixed, 32-true, 64-true, bf16, or null",
    ),
    (
        "train",
        ["trainer.max_epoch=3"],
        "trainer.max_epoch: no such key; write trainer.max_epochs=3",
    ),
    (
        "train",
        ["+trainer.overfit_batch=3"],
        "trainer.overfit_batch: no such key; did you mean 'trainer.overfit_batches'?",
    ),
    ("train", ["trainer.max_epochs=0"], "trainer.max_epochs=0: must be at least 1, or -1 for no limit, or null"),
    ("train", ["trainer.max_epochs=many"], "trainer.max_epochs=many: must be a whole number, or null"),
    ("train", ["trainer.limit_train_batches=most"], "trainer.limit_train_batches=most: must be a number, or null"),
    ("train", ["checkpoint=no.ckpt"], f"checkpoint=no.ckpt: no such file; give {CHECKPOINT_FILES}"),
    ("train", ["checkpoint=."], f"checkpoint=.: is a folder; name a file, {CHECKPOINT_FILES}"),
    (
        "train",
        ["checkpoint=broken.parquet"],
        f"checkpoint=broken.parquet: is not a seqclf checkpoint; give {CHECKPOINT_FILES}",
    ),
    (
        "train",
        ["optimizer.schedule.decay=cosin"],
        "optimizer.schedule.decay=cosin: must be cosine, linear or none; did you mean 'cosine'?",
    ),
    (
        "train",
        ["optimizer.schedule.warmup=10"],
        "optimizer.schedule.warmup=10: must be at most 1; write 10 % as 0.1",
    ),
    ("train", ["data.split.test=20%"], "data.split.test=20%: must be a number; write 20 % as 0.2"),
    (
        "train",
        ["decision.min_recall=80%"],
        "decision.min_recall=80%: must be a number or a mapping, or null; write 80 % as 0.8",
    ),
    (
        "train",
        ["data.fields=events"],
        "data.fields=events: must be a mapping, or null; write 'data.fields={events: KIND}'",
    ),
    ("train", ["batching.max_tokens=0"], "batching.max_tokens=0: must be at least 1, or auto"),
    ("train", ["batching.overhead=-1"], "batching.overhead=-1: must be at least 0, or null"),
    ("train", ["batching.balance=2"], "batching.balance=2: must be at most 1"),
    (
        "train",
        [*WANDB, "logger.mode=ofline"],
        "logger.mode=ofline: must be one of auto, online, offline, disabled; did you mean 'offline'?",
    ),
    ("train", [*WANDB, "logger.timeout=soon"], "logger.timeout=soon: must be a number"),
    ("train", [*WANDB, "logger.tags=3"], "logger.tags=3: must be a list, or null"),
    ("train", ["model.cell=lstn"], "model.cell=lstn: must be lstm, gru or rnn; did you mean 'lstm'?"),
    (
        "train",
        ["model.pooling=mean+maxi"],
        "model.pooling=mean+maxi: must be one of last, mean, max, attention; did "
        "you mean 'max'?; several are joined by +",
    ),
    ("train", ["model.hidden_size=big"], "model.hidden_size=big: must be a whole number"),
    ("train", ["seed=-1"], "seed=-1: must be at least 0"),
    ("train", ["~patience"], "patience: missing; do not remove it with ~, and name it in a config file of your own"),
    ("train", ["+patiense=3"], "patiense: no such key; write patience=3"),
    (
        "train",
        ["data.split.by=tme"],
        "data.split.by=tme: must be one of random, distinct, group, time, fold; did you mean 'time'?",
    ),
    ("train", ["data.split.by=time"], "data.split.by=time: needs data.split.column=COLUMN"),
    (
        "train",
        ["data.split.validation=0"],
        "data.split.validation=0: no validation rows; give data.validation=FILE or a share",
    ),
    (
        "train",
        ["data.truncate=keep"],
        "data.truncate=keep: must be error, keep_first or keep_last; did you mean 'keep_last'?",
    ),
    (
        "train",
        ["data.generator={_target_: os.system}"],
        "data.generator._target_=os.system: is of Python itself; name a function that writes a dataset",
    ),
    (
        "train",
        ["model._target_=seqclf.models.classifier.SequenceClasifier"],
        "model._target_=seqclf.models.classifier."
        "SequenceClasifier: cannot be imported (module 'seqclf.models.classifier' has no attribute "
        "'SequenceClasifier'); did you mean 'SequenceClassifier'?",
    ),
    ("train", ["model._target_=torch.optim.SGD"], "model._target_=torch.optim.SGD: is not a Module"),
    (
        "train",
        ["+model.hiden_size=9"],
        "model.hiden_size: no such argument of SequenceClassifier or Recurrent; did you mean 'hidden_size'?",
    ),
    (
        "train",
        ["+loss.gama=1"],
        "loss.gama: no such argument of CrossEntropy; it takes class_weights, effective_beta, label_smoothing",
    ),
    (
        "train",
        ["loss.class_weights=equal"],
        "loss.class_weights=equal: must be null, balanced, effective or {label: weight}",
    ),
    ("train", ["loss=focal", "loss.gamma=-1"], "loss.gamma=-1: must be at least 0"),
    (
        "train",
        ["optimizer._target_=torch.optim.AdamWW"],
        "optimizer._target_=torch.optim.AdamWW: cannot be imported "
        "(module 'torch.optim' has no attribute 'AdamWW'); did you mean 'AdamW'?",
    ),
    (
        "train",
        ["+optimizer.learning_rate=1"],
        "optimizer.learning_rate: no such argument of AdamW; did you mean 'lr'?",
    ),
    ("train", ["optimizer.betas=[2, 3]"], "optimizer._target_=torch.optim.AdamW: Invalid beta parameter at index 0: 2"),
    ("train", [NET], "model.kernel: missing; Net needs it"),
    ("train", [NET, "+model.kernle=5"], "model.kernle: no such argument of Net; did you mean 'kernel'?"),
    ("train", [NET, "+model.kernel=5", "model.layers=2"], "model.layers: no such argument of Net; it takes kernel"),
    (
        "train",
        [NET, "model.encoder._target_=mypkg.Conv", "+model.kernel=5"],
        "model.encoder: no such argument of Net; it takes kernel",
    ),
    ("train", [CONV], "model.kernel: missing; Conv needs it"),
    (
        "train",
        [CONV, "+model.encoder.kernle=5"],
        "model.encoder.kernle: no such argument of Conv; did you mean 'kernel'?",
    ),
    (
        "train",
        [CONV, "+model.kernle=5"],
        "model.kernle: no such argument of SequenceClassifier or Conv; did you mean 'kernel'?",
    ),
    (
        "train",
        ["model.hidden_size=???"],
        "model.hidden_size: not set; give it as model.hidden_size=VALUE (units of each direction)",
    ),
    ("train", ["~model.encoder"], "model.encoder._target_: missing; name the class of the encoder"),
    (
        "train",
        ["model.encoder._target_=mypkg.Conv"],
        "model.encoder._target_=mypkg.Conv: cannot be imported (No module named 'mypkg'); install the package mypkg, "
        "or add the folder that holds it to PYTHONPATH",
    ),
    (
        "train",
        ["model._target_=torch.nn.Linear"],
        "model._target_=torch.nn.Linear: must take the argument fields",
    ),
    ("train", [MARGIN], "loss.margin: missing; Margin needs it"),
    ("train", [MARGIN, "+loss.margn=1"], "loss.margn: no such argument of Margin; did you mean 'margin'?"),
    (
        "train",
        [MARGIN, "+loss.margin=1", "loss.class_weights=balanced"],
        "loss.class_weights: no such argument of Margin; it takes margin",
    ),
    (
        "train",
        [f"+trainer.callbacks=[{{_target_: {__name__}.Every, evry: 2}}]"],
        "trainer.callbacks[0].evry: no such argument of Every; did you mean 'every'?",
    ),
    (
        "train",
        ["+trainer.callbacks=[{_target_: torch.nn.Linear}]"],
        "trainer.callbacks[0]._target_=torch.nn.Linear: is not a Callback",
    ),
    (
        "train",
        ["+trainer.callbacks=[{every: 2}]"],
        "trainer.callbacks[0]._target_: missing; name the class of the callback",
    ),
    (
        "train",
        ["+trainer.logger=true"],
        "trainer.logger: is made by the training itself; choose one by logger=wandb, mlflow, tensorboard, csv or none",
    ),
    (
        "train",
        ["model=transformer", "model.heads=5"],
        "model.heads=5: does not divide model.hidden_size=96; set model.heads=4 or model.hidden_size=100",
    ),
    (
        "train",
        ["model=transformer", "+model.encoder.heads=32"],
        "model.heads=32: gives heads of 3 of the 96 channels of model.hidden_size, which must be even; "
        "set model.heads=24 or model.hidden_size=128",
    ),
    (
        "train",
        ["model=transformer", "model.feed_forward=swigl"],
        "model.feed_forward=swigl: must be gelu or swiglu; did you mean 'swiglu'?",
    ),
    ("train", ["model=transformer", "model.heads=0"], "model.heads=0: must be at least 1"),
    ("train", ["model=transformer", "model.expansion=2.5"], "model.expansion=2.5: must be a whole number"),
    (
        "train",
        ["model=transformer", "model.cell=gru"],
        "model.cell: no such key; model=transformer has no cell, so remove it (model=lstm has cell)",
    ),
    (
        "train",
        ["experiment=sst", "path=x", "model.layers=2"],
        "model.layers: no such key; model=tree_lstm has no layers, so remove it (model=lstm has layers)",
    ),
    (
        "train",
        ["model=tree_lstm", "model.pooling=max"],
        "model.pooling: no such key; model=tree_lstm has no pooling, so remove it (model=lstm has pooling)",
    ),
    (
        "train",
        ["data.list_separator= "],
        "data.list_separator= : has a value of spaces without quotes; write \"data.list_separator=' '\"",
    ),
    (
        "train",
        ["data.list_separator", "=", " "],
        "data.list_separator =  : has spaces around the =; write \"data.list_separator=' '\"",
    ),
    ("train", ["model.heads=8"], "model.heads: no such key; write model=transformer model.heads=8"),
    (
        "train",
        ["model.residual_layers=1"],
        "model.residual_layers=1: must be at least 0 and less than model.layers=1; the first layer cannot be residual",
    ),
    ("train", ["structure={epoch: 3, layers: 2}"], "structure: is a list; write 'structure=[{epoch: 3, layers: 2}]'"),
    ("train", ["+structure.epoch=3"], "structure.epoch: structure is a list; write 'structure=[{epoch: 3}]'"),
    (
        "train",
        ["structure=[{epoch: 3, layers: 2, layers: 3}]"],
        "structure=[{epoch: 3, layers: 2, layers: 3}]: has the key layers twice in one mapping; remove one of them",
    ),
    ("train", ["structure=[{epoch: 3, layers: 0}]"], "structure[0].layers=0: must be at least 1"),
    (
        "train",
        ["structure=[{epoch: 9, layers: 2}]", "trainer.max_epochs=8"],
        "structure[0].epoch=9: is beyond trainer.max_epochs=8; raise that, or remove the change",
    ),
    (
        "train",
        ["structure=[{epoch: 3, hidden_size: 64}]"],
        "structure[0].hidden_size=64: must be above 96, its value; a model grows only",
    ),
    ("train", ["model=adaptive", "model.earliness=-1"], "model.earliness=-1: must be at least 0"),
    ("train", ["model=adaptive", "model.earliness=inf"], "model.earliness=inf: must be a finite number"),
    ("train", ["model.number_noise=nan"], "model.number_noise=nan: must be a finite number"),
    ("train", ["optimizer.lr=inf"], "optimizer.lr=inf: must be a finite number"),
    (
        "train",
        ["data.split=[1]"],
        "data.split=[1]: is a block of keys; set one of them: data.split.by=VALUE (--help data.split)",
    ),
    ("train", ["trainer=[1]"], "trainer=[1]: a group takes the name of a choice; --help lists groups and keys"),
    (
        "walkthrough",
        ["examples=[[1,2]]"],
        "examples=[[1,2]]: must be a mapping, such as {toy: [[1, 2, 3], [4, 5], [6, 7, 8, 9], [10]]}",
    ),
    (
        "train",
        ["model=adaptive", "model.members=3"],
        "model.members=3: an adaptive model is one network, as members would halt at different tokens; set "
        "model.members=1",
    ),
    (
        "train",
        ["model=adaptive", "model.bidirectional=true"],
        "model.bidirectional=true: an adaptive model reads each sequence once, from its start; set "
        "model.bidirectional=false",
    ),
    ("train", ["model.earliness=0.2"], "model.earliness: no such key; write model=adaptive model.earliness=0.2"),
    ("search", ["search.direction=up"], "search.direction=up: must be maximize or minimize, or null"),
    ("search", ["search.space={model.layers: []}"], "search.space: model.layers=[]: has no choice"),
    ("search", ["search.trials=0"], "search.trials=0: must be at least 1"),
    (
        "search",
        ["debug=overfit_one_batch"],
        "debug=overfit_one_batch: leaves no scores to compare; remove it, or use seqclf train",
    ),
    (
        "search",
        ["trainer.fast_dev_run=true"],
        "trainer.fast_dev_run: leaves no scores to compare; set trainer.max_epochs=1 instead",
    ),
    (
        "train",
        ["+debug.steps=5"],
        "debug.steps: is a key of debug=overfit_one_batch; set that too, or remove debug.steps",
    ),
    (
        "train",
        ["logger=none", "+logger.tags=[a]"],
        "logger.tags: is a key of logger=wandb or logger=mlflow; set that too, or remove logger.tags",
    ),
    ("describe", ["batching.max_tokens=0"], "batching.max_tokens=0: must be at least 1, or auto"),
    ("walkthrough", ["rows=0"], "rows=0: must be at least 1"),
    ("walkthrough", ["rows=51"], "rows=51: must be at most 50"),
    (
        "walkthrough",
        ["sequence=abc", "input=x.csv"],
        "input=x.csv and sequence=abc: both say what to show; remove one of them",
    ),
    ("walkthrough", ["split=dev"], "split=dev: must be train, validation or test, or null"),
    ("walkthrough", ["output=page.pdf"], "output=page.pdf: is no page; end it in .html"),
    ("walkthrough", ["debug=shapes"], "debug=shapes: leaves no model to show; remove it, or use seqclf train"),
    (
        "walkthrough",
        ["trainer.fast_dev_run=true"],
        "trainer.fast_dev_run: leaves no model to show; set trainer.max_epochs=1 instead",
    ),
    ("bench", ["modes=[dynamic,static,egaer]"], "modes=egaer: must be one of dynamic, packed, static, compiled"),
    ("bench", ["modes=[dynamic]"], "modes: must hold dynamic and static, which are compared"),
    ("bench", ["lengths=[]"], "lengths=[]: must have an entry"),
    ("bench", [NET], f"{NET}: cannot be timed; set model=lstm or another model of this package"),
    ("bench", [CONV], f"{CONV}: cannot be timed; set model=lstm or another model of this package"),
    ("bench", ["precision=16"], "precision=16: must be 32-true, bf16-mixed or 16-mixed"),
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


@pytest.mark.parametrize(("command", "overrides", "line"), CASES, ids=[" ".join(case[1]) for case in CASES])
def test_a_config_error_comes_before_the_data(error_line, command, overrides, line):
    assert error_line(command, *FILES, *overrides) == f"error: {line}"
