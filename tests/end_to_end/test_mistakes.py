"""Typical mistakes on the command line: one error line each, whose advice works as typed in bash and zsh."""

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import NamedTuple

import pytest
import torch
from hydra.core.override_parser.overrides_parser import OverridesParser


class Mistake(NamedTuple):
    """What was typed in a shell, the text that the error line must hold, and whether it is an argument to type.

    `typed` is the command line after `seqclf COMMAND`. Where `advice` is given, it takes the place of `wrong` in it,
    and the corrected command must run.
    """

    command: str
    typed: str
    line: str
    wrong: str = ""
    advice: str = ""


FILES = "data=files data.train=train.jsonl data.test=test.parquet data.label=fraud data.id=card"
PREDICT = "bundle=logged/bundle input=test.parquet output=scores.parquet"
EVALUATE = "bundle=logged/bundle data.test=test.parquet data.label=fraud"
WALK = "checkpoint=logged/checkpoints/best.ckpt input=test.parquet"
EXPORT = "checkpoint=logged/checkpoints/best.ckpt bundle=exported"


def swap(command: str, good: str, wrong: str, advice: str, line: str = "") -> Mistake:
    """A mistake beside the good arguments, which the advice of the error corrects."""
    return Mistake(command, f"{good} {wrong}".strip(), line or f"write {advice}", wrong, advice)


# Keys of training: their advice is tried in one run, because each of them changes another setting.
KEYS = [
    swap("train", FILES, "lr=0.01", "optimizer.lr=0.01"),
    swap("train", FILES, "optimizer.learning_rate=0.01", "optimizer.lr=0.01"),
    swap("train", FILES, "--lr=0.01", "optimizer.lr=0.01"),
    swap("train", FILES, "batch_size=16", "batching.max_sequences=16"),
    swap("train", FILES, "epochs=2", "trainer.max_epochs=2"),
    swap("train", FILES, "--epochs 2", "trainer.max_epochs=2"),
    swap("train", FILES, "--seed 3", "seed=3"),
    swap("train", FILES, "hidden_dim=8", "model.hidden_size=8"),
    swap("train", FILES, "model.hiden_size=8", "model.hidden_size=8"),
    swap("train", FILES, "num_layers=1", "model.layers=1"),
    swap("train", FILES, "bidirectional=true", "model.bidirectional=true"),
    swap("train", FILES, "model.bidirectional=yes", "model.bidirectional=true"),
    swap("train", FILES, "model=LSTM", "model=lstm"),
    swap("train", FILES, "optimizer=adam", "optimizer=adamw"),
    swap("train", FILES, "loss.gamma=1", "loss=focal loss.gamma=1"),
    swap("train", FILES, "gpus=1", "trainer.devices=1"),
    swap("train", FILES, "device=cpu", "trainer.accelerator=cpu"),
    swap("train", FILES, "trainer.enable_checkpointin=true", "+trainer.enable_checkpointing=true"),
    swap("train", FILES, "patiense=3", "patience=3"),
]

# Each is corrected in a run of its own.
CORRECTED = [
    swap("train", "", "data=train.jsonl", "data=files data.train=train.jsonl data.label=COLUMN"),
    swap("train", "data.label=fraud", "train=train.jsonl", "data=files data.train=train.jsonl"),
    swap("train", "data.label=fraud", "train.jsonl", "data=files data.train=train.jsonl"),
    swap("train", "data=files data.train=train.jsonl", "label=fraud", "data.label=fraud"),
    swap("predict", "input=test.parquet output=scores.parquet", "bundle=logged", "bundle=logged/bundle"),
    swap("predict", "input=test.parquet output=scores.parquet", "model=logged/bundle", "bundle=logged/bundle"),
    swap("predict", "input=test.parquet output=scores.parquet", "logged/bundle", "bundle=logged/bundle"),
    swap("predict", "bundle=logged/bundle output=scores.parquet", "test.parquet", "input=test.parquet"),
    swap("predict", "bundle=logged/bundle input=test.parquet", "--output scores.csv", "output=scores.csv"),
    swap("evaluate", EVALUATE, "treshold=0.5", "threshold=0.5"),
    swap("export", "bundle=exported", "checkpoint=logged", "checkpoint=logged/checkpoints/best.ckpt"),
    swap("export", "bundle=exported", "ckpt=logged/checkpoints/best.ckpt", "checkpoint=logged/checkpoints/best.ckpt"),
    swap("walkthrough", f"{WALK} output=walk.html", "row=2", "rows=2"),
    swap("describe", "data.label=fraud output=null", "input=train.jsonl", "data=files data.train=train.jsonl"),
    Mistake(
        "describe",
        "data=listops_trees 'data.generator.rows={train: 200, validation: 50, test: 50}' output=null baseline=false "
        "'data.fields.expression={kind: text}'",
        "write data.fields.expression=null before the mapping",
        "'data.fields.expression={kind: text}'",
        "data.fields.expression=null 'data.fields.expression={kind: text}'",
    ),
]

# The error names the remedy, which is no argument.
NAMED = [
    Mistake("train", "data.train=train.jsonl data.label=fraud", "data.train=train.jsonl: is a key of data=files; add"),
    Mistake("train", FILES.replace("train.jsonl", "trian.jsonl"), "no such file; did you mean 'train.jsonl'?"),
    Mistake("train", FILES.replace("=fraud", "=frud"), "no column 'frud' (data.label); did you mean 'fraud'?"),
    Mistake("train", f"{FILES} data.positive=ja", "data.positive=ja: no such label; the labels are no, yes"),
    Mistake(
        "train",
        f"{FILES} model=mamba",
        "model=mamba: must be one of auto, adaptive, conv_lstm, gru, gru_d, lstm, rnn, t_lstm, transformer",
    ),
    Mistake(
        "train",
        f"{FILES} model=tree_lstm",
        "model=tree_lstm: reads trees, and the data has none (fields: shop, amount); set 'data.fields={COLUMN: tree}'",
    ),
    Mistake("bench", f"{FILES} model=tree_lstm", "model=tree_lstm: reads trees, and the data has none"),
    Mistake("train", "data=listops model=tree_lstm", "has none (fields: expression); set data=listops_trees or choose"),
    Mistake("bench", "data=listops model=tree_lstm", "has none (fields: expression); set data=listops_trees or choose"),
    Mistake("export", "bundle=exported", "give it as checkpoint=VALUE (the checkpoint to export, RUN/checkpoints/best"),
    Mistake("train", f"{FILES} +optimizer.eps=inf", "optimizer.eps=inf: must be a finite number"),
    Mistake("train", f"{FILES} data.split=0.2", "data.split=0.2: is a block of keys; set one of them: data.split.by="),
    Mistake("train", f"{FILES} model.hidden_size", "model.hidden_size: is no KEY=VALUE; write model.hidden_size=VALUE"),
    Mistake("train", f"{FILES} model=lstm,gru", "several values are several runs, by -m"),
    Mistake("train", f"{FILES} output=runs/mine", "output: no such key; write hydra.run.dir=runs/mine"),
    Mistake("train", f"{FILES} checkpoint=logged", "is a folder; write checkpoint=logged/checkpoints/best.ckpt"),
    Mistake("train", f"{FILES} data.fields={{shop:", "cannot be read; quote the argument, 'KEY={a: b}'"),
    Mistake("predict", PREDICT.replace("test.parquet", "tets.parquet"), "no such file; did you mean 'test.parquet'?"),
    Mistake("predict", PREDICT.replace("logged/", "loged/"), "bundle=loged/bundle: no such folder"),
    Mistake("predict", "bundle=logged/bundle input=test.parquet", "output: not set; give a .parquet, .csv, .jsonl"),
    Mistake("evaluate", EVALUATE.replace("=fraud", "=frud"), "no column 'frud' (data.label); did you mean 'fraud'?"),
    Mistake("walkthrough", WALK.replace("test.parquet", "tets.parquet"), "no such file; did you mean 'test.parquet'?"),
    Mistake(
        "walkthrough", f"{WALK} model.layers=2", "model.layers: is of a training or its data, and checkpoint=logged/"
    ),
    Mistake("walkthrough", WALK.partition(" ")[0], "name rows to show; add input=FILE or sequence=TEXT_OR_JSON"),
    Mistake("export", EXPORT.replace("best", "bst"), "no such file; did you mean 'logged/checkpoints/best.ckpt'?"),
]
ABSENT = [*([] if torch.cuda.is_available() else ["gpu", "cuda"]), *([] if find_spec("torch_xla") else ["tpu"])]
NAMED += [
    Mistake("train", f"{FILES} trainer.accelerator={name}", "sees no such device; set trainer.accelerator=cpu")
    for name in ABSENT
]

MISTAKES = [*KEYS, *CORRECTED, *NAMED]
SHELLS = [name for name in ("bash", "zsh") if shutil.which(name)]
QUICK = "logger=none trainer.fast_dev_run=true export=false overwrite=true hydra.run.dir=corrected"


def typed_in(shell_name: str, line: str) -> list[str]:
    """Return the words that a shell makes of a line."""
    script = f"printf '%s\\0' {line}"
    done = subprocess.run([shell_name, "-c", script], capture_output=True, text=True, check=True, timeout=20)
    return done.stdout.split("\0")[:-1]


@pytest.fixture(scope="module")
def type_line(shell, trained):
    """A function that runs a command as bash reads it, in a folder with links to the files and the run of `shell`."""
    folder = shell.folder / "mistakes"  # other tests write to the folder of the shell at the same time
    folder.mkdir()
    for name in ("train.jsonl", "test.parquet", "logged"):
        (folder / name).symlink_to(shell.folder / name)

    def run(command, line):
        return shell(command, *typed_in("bash", line), cwd=folder)

    run.folder = folder
    return run


@pytest.fixture(scope="module")
def outcomes(type_line):
    """Run all mistakes, a few at a time. Return each completed command."""
    before = sorted(path.name for path in type_line.folder.iterdir())
    with ThreadPoolExecutor(3) as pool:
        completed = dict(zip(MISTAKES, pool.map(lambda one: type_line(one.command, one.typed), MISTAKES), strict=True))
    assert sorted(path.name for path in type_line.folder.iterdir()) == before, "a refused command left files"
    return completed


@pytest.mark.parametrize("mistake", MISTAKES, ids=[f"{one.command} {one.wrong or one.typed}" for one in MISTAKES])
def test_a_mistake_is_one_line_that_names_the_remedy(outcomes, mistake):
    completed = outcomes[mistake]
    assert completed.exit_code == 2 and completed.stdout == "", completed.stderr
    errors = [line for line in completed.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and "Traceback" not in completed.stderr
    assert mistake.line in errors[0]


@pytest.mark.parametrize("shell_name", SHELLS)
@pytest.mark.parametrize("mistake", [*KEYS, *CORRECTED], ids=lambda mistake: getattr(mistake, "wrong", None))
def test_advice_is_read_by_hydra_as_the_shells_pass_it_on(mistake, shell_name):
    words = typed_in(shell_name, mistake.advice)
    assert words == typed_in("bash", mistake.advice)
    assert all(OverridesParser.create().parse_override(word).key_or_group for word in words)


def test_the_advice_for_keys_of_training_works(type_line):
    advice = ["monitor=loss", *dict.fromkeys(mistake.advice for mistake in KEYS)]  # which patience needs
    assert type_line("train", f"{FILES} {QUICK} {' '.join(advice)}").result["fast_dev_run"]


@pytest.mark.parametrize("mistake", CORRECTED, ids=lambda mistake: f"{mistake.command} {mistake.wrong}")
def test_a_corrected_command_works(type_line, mistake):
    good = mistake.typed.replace(mistake.wrong, "")
    line = f"{good} {mistake.advice.replace('COLUMN', 'fraud')} {QUICK if mistake.command == 'train' else ''}"
    assert type_line(mistake.command, line).result


def test_an_unknown_option_is_one_line(shell):
    completed = shell("train", "--confg=job")
    assert completed.exit_code == 2
    assert re.fullmatch(r"error: --confg=job: .*\n", completed.stderr)
