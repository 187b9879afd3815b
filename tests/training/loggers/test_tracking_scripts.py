"""The view and the sweep of Weights & Biases in scripts/tracking. There is no server here: see what each test shows."""

import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

import seqclf
from seqclf.config.hydra_config import compose_config
from seqclf.training.loggers.run_logger import shown_name
from seqclf.training.loggers.wandb_logger import log_result
from seqclf.training.training_log import SPEED

from .conftest import StubRun

SCRIPTS = Path(seqclf.__file__).parents[1] / "scripts/tracking"

pytestmark = pytest.mark.skipif(not SCRIPTS.is_dir(), reason="installed without scripts/")


def texts(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from texts(key)
            yield from texts(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from texts(entry)


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
    charts = {f"{name}_table" for name in run.logged}  # a chart logs its data under this name
    curves = {
        shown_name(f"{split}/{name}") for split in ("train", "validation") for name in ("loss", "accuracy", "recall")
    }
    steps = {"train/step_loss", "train/gradient_norm", *(f"system/{name}" for name in SPEED)}
    assert len(shown) > 20 and shown <= set(run.logged) | set(run.summary) | charts | curves | steps
    assert "report" in set(texts(view)) and "report" in run.logged
    assert yaml.safe_load((SCRIPTS / "sweep.yaml").read_text())["metric"]["name"] in run.summary


def test_the_sweep_writes_a_command_line_that_training_takes():
    sweep = yaml.safe_load((SCRIPTS / "sweep.yaml").read_text())
    fixed = [part for part in sweep["command"] if "=" in part]
    first = {name: entry.get("values", [entry.get("min")])[0] for name, entry in sweep["parameters"].items()}
    config = compose_config("train", [*fixed, *(f"{name}={value}" for name, value in first.items())]).plain()
    assert find_spec(sweep["command"][3]) and config["logger"]["name"] == "wandb"
    assert (config["model"]["hidden_size"], config["model"]["pooling"], config["optimizer"]["lr"]) == (32, "max", 0.001)
