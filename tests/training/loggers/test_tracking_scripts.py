"""The view and the sweep of Weights & Biases in scripts/tracking. There is no server here: see what each test shows."""

import os
import runpy
import sys
from pathlib import Path

import pytest
import yaml
from support.wandb_records import records, run_of

import seqclf
from seqclf.training.epoch_record import Speed
from seqclf.training.loggers.run_logger import shown_name
from seqclf.training.loggers.wandb_logger import log_result

SCRIPTS = Path(seqclf.__file__).parents[1] / "scripts/tracking"

pytestmark = pytest.mark.skipif(not SCRIPTS.is_dir(), reason="installed without scripts/")


def texts(value):
    """Yield all strings in nested lists and dictionaries."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from texts(key)
            yield from texts(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from texts(entry)


class StubRun:
    """Collects the names that a run logs."""

    def __init__(self):
        self.names, self.summary = set(), {}

    def log(self, values):
        self.names |= values.keys()

    def alert(self, title, text):
        pass


def test_panels_of_the_view_show_names_that_a_run_logs(finished):
    """The view is built and serialised by W&B's library. That the server draws it is not shown."""
    build_workspace = runpy.run_path(str(SCRIPTS / "workspace.py"))["build_workspace"]
    view = build_workspace("team", "project", "yes")._to_model().model_dump(mode="json")
    shown = {
        text for text in texts(view) if text.split("/")[0] in ("train", "validation", "test", "baseline", "system")
    }
    shown = {name for name in shown if " " not in name}  # titles
    run = StubRun()
    log_result(run, finished)
    charts = {f"{name}_table" for name in run.names}  # a chart logs its data under this name
    curves = {
        shown_name(f"{split}/{name}") for split in ("train", "validation") for name in ("loss", "accuracy", "recall")
    }
    steps = {"train/step_loss", "train/gradient_norm", *(f"system/{name}" for name in Speed._fields)}
    assert len(shown) > 20 and shown <= run.names | set(run.summary) | charts | curves | steps
    assert "report" in set(texts(view)) and "report" in run.names


@pytest.mark.soak
def test_agent_trains_with_the_command_line_of_the_sweep(tmp_path, monkeypatch):
    """W&B's agent writes the command line and starts it. Only its conversation with the server is left out."""
    from wandb.wandb_agent import Agent

    sweep = yaml.safe_load((SCRIPTS / "sweep.yaml").read_text())
    values = {
        name: entry["values"][0] if "values" in entry else entry["min"] for name, entry in sweep["parameters"].items()
    }
    values |= {"trainer.max_epochs": 1, "baseline": False, "runtime.threads": 1}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    variables = {
        "WANDB_MODE": "offline",
        "WANDB_SWEEP_ID": "sw33p",
        "WANDB_RUN_ID": "r7n",
        "WANDB_SWEEP_PARAM_PATH": "",
        "WANDB_DIR": str(tmp_path),
        "PATH": path,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    agent = Agent(api=None, queue=None)
    agent._sweep_command = sweep["command"]
    agent._command_run(
        {"run_id": "r7n", "args": {name: {"value": value} for name, value in values.items()}, "program": ""}
    )
    assert agent._run_processes["r7n"].wait() == 0
    (file,) = tmp_path.glob("runs/japanese_vowels/*/wandb/offline-run-*/run-r7n.wandb")
    recorded = list(records(file))
    assert (run_of(recorded).run_id, run_of(recorded).sweep_id) == ("r7n", "sw33p")
    config = yaml.safe_load((file.parents[2] / "config.yaml").read_text())
    assert (config["model"]["hidden_size"], config["model"]["pooling"], config["optimizer"]["lr"]) == (32, "max", 0.001)
    logged = {item.key or "/".join(item.nested_key) for record in recorded for item in record.summary.update}
    assert sweep["metric"]["name"] in logged
