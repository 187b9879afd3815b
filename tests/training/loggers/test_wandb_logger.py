"""Weights & Biases: its environment variables, what it gets, and servers that hang or refuse."""

import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import wandb
from support.wandb_records import records, run_of

from seqclf.training.loggers import wandb_logger
from seqclf.training.loggers.wandb_logger import WandbRun, log_result

from .conftest import StubRun

SETTINGS = {
    "name": "wandb",
    "project": "seqclf",
    "entity": None,
    "run_name": None,
    "group": None,
    "job_type": "train",
    "tags": None,
    "notes": None,
    "mode": "online",
    "log_bundle": True,
    "upload_rows": False,
    "timeout": 1.0,
    "finish_timeout": 1.0,
}


@contextmanager
def server(kind):
    """Yield the address of a server that `hangs` or `refuses`."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        if kind == "hangs":
            listening.listen()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


class StartedError(Exception):
    """Ends `open` where W&B would start."""


@pytest.mark.parametrize("kind", ["hangs", "refuses"])
def test_a_run_continues_offline_with_one_message(kind, tmp_path, monkeypatch, capsys):
    modes = []

    def init(settings, run, config, mode, seconds):
        modes.append(mode)
        raise StartedError

    monkeypatch.setattr(wandb_logger, "_init", init)
    monkeypatch.setattr(wandb_logger, "_has_key", lambda: True)
    with server(kind) as url:
        monkeypatch.setattr(wandb_logger, "_server", lambda: url)
        with pytest.raises(StartedError):
            WandbRun.open(SETTINGS, tmp_path, {})
    assert modes == ["offline"]
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Weights & Biases")]
    assert line.startswith(f"Weights & Biases: {url} does not answer; the run is recorded offline, `wandb sync ")


def test_a_server_that_answers_but_starts_no_run_is_given_up_in_time(tmp_path, monkeypatch, capsys):
    modes = []

    def init(settings, run, config, mode, seconds):
        modes.append((mode, seconds <= SETTINGS["timeout"]))
        raise TimeoutError("Timed out initializing run") if mode == "online" else StartedError

    monkeypatch.setattr(wandb_logger, "_init", init)
    monkeypatch.setattr(wandb_logger, "_has_key", lambda: True)
    monkeypatch.setattr(wandb_logger, "_server", lambda: "http://server")
    monkeypatch.setattr(wandb_logger, "answers", lambda url, seconds: True)
    with pytest.raises(StartedError):
        WandbRun.open(SETTINGS, tmp_path, {})
    assert modes == [("online", True), ("offline", True)]
    assert capsys.readouterr().err.startswith("Weights & Biases: Timed out initializing run; the run is recorded")


def test_logging_and_uploads_share_the_seconds_of_the_end(finished, monkeypatch, tmp_path):
    """`Run.log` asks the server about each table, for 19 s each."""
    import wandb

    given = {}
    monkeypatch.setattr(wandb, "init", lambda **arguments: given.update(arguments) or StubRun())
    monkeypatch.setattr(StubRun, "log", lambda *arguments: time.sleep(5))
    run = WandbRun.open({**SETTINGS, "mode": "offline"}, tmp_path, {})
    started = time.monotonic()
    with pytest.warns(UserWarning, match=r"Biases: no answer within 0\.25 s; the run goes on without it"):
        run.log_result(finished)
    logging = time.monotonic() - started
    assert given["settings"].finish_timeout == 0.75 and logging < 3


@contextmanager
def hanging_graphql():
    """Yield the address of a server that answers GET alone, and the list of the paths it is asked for."""
    asked, ended = [], threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def do_POST(self):
            asked.append(self.path)
            ended.wait(60)

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        ended.set()
        server.shutdown()
        server.server_close()


SCRIPT = """
import sys
from pathlib import Path
from seqclf.training.loggers.wandb_logger import WandbRun
WandbRun.open(%r, Path(sys.argv[1]), {}).close(False)
"""


def test_a_process_ends_in_time_where_the_server_hangs(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    with hanging_graphql() as (url, asked):
        environment |= {"WANDB_BASE_URL": url, "WANDB_API_KEY": "a" * 40}
        command = [sys.executable, "-c", SCRIPT % SETTINGS, str(tmp_path)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and "the run is recorded offline" in done.stderr
    assert "/graphql" in asked and not [path for path in asked if "otel" in path], "which keeps it for 20 s"


VARIABLES = {
    "WANDB_PROJECT": "env-project",
    "WANDB_ENTITY": "env-team",
    "WANDB_NAME": "007",
    "WANDB_RUN_GROUP": "env-group",
    "WANDB_TAGS": "one, two",
    "WANDB_NOTES": "env notes",
    "WANDB_JOB_TYPE": "env-job",
}
KEYS = ("project", "entity", "run_name", "group", "tags", "notes", "job_type")


def test_environment_variables_are_obeyed_unless_the_key_was_typed(settings, monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    block = settings("logger=wandb")
    assert [block[key] for key in KEYS] == ["seqclf", None, None, None, None, None, "train"]
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    block = settings("logger=wandb")
    assert [block[key] for key in KEYS] == [
        *("env-project", "env-team", "007", "env-group", ["one", "two"], "env notes", "env-job")
    ]
    block = settings("logger=wandb", "logger.project=mine", "logger.tags=[a]", "logger.run_name=null", "logger.group=g")
    assert [block[key] for key in KEYS] == ["mine", "env-team", None, "g", ["a"], "env notes", "env-job"]


def test_summary_of_a_curve_is_the_score_of_the_exported_model(finished):
    run = StubRun()
    log_result(run, finished)
    assert run.summary["validation/macro_recall"] == finished.result.splits["validation"].recall
    assert "validation/macro_recall" not in run.logged, "a point of its own would bend the curve"


@pytest.mark.parametrize("failed", [True, False])
def test_a_run_that_fails_is_marked_as_failed(failed):
    run = StubRun()
    WandbRun(run, SETTINGS).close(failed)
    assert run.exit_code == int(failed)


def test_an_id_belongs_to_a_folder_and_a_branch_names_its_parent(tmp_path, monkeypatch):
    def recorded(name, start=None):
        """Return the id and the parent that a run in the folder `name` has, which goes on from the folder `start`."""
        checkpoint = None if start is None else str(tmp_path / start / "checkpoints/last.ckpt")
        (tmp_path / name).mkdir(exist_ok=True)
        settings = {**SETTINGS, "mode": "offline", "timeout": 30, "finish_timeout": 30}
        WandbRun.open(settings, tmp_path / name, {"checkpoint": checkpoint}).close(failed=False)
        wandb.teardown()  # which ends the process that writes the file
        file = max((tmp_path / name).glob("wandb/*run-*/run-*.wandb"), key=lambda path: path.stat().st_mtime_ns)
        run = run_of(list(records(file)))
        return run.run_id, {item.key: item.value_json for item in run.config.update}.get("parent_run", "").strip('"')

    root, _ = recorded("root")
    assert recorded("root", "root") == (root, "")
    monkeypatch.setenv("WANDB_RUN_ID", root)
    branch, parent = recorded("branch", "root")
    assert branch != root == parent
    monkeypatch.setenv("WANDB_RUN_ID", "given")
    assert recorded("branch", "branch")[0] == branch
    assert [recorded(name)[0] == "given" for name in ("alone", "fold-0")] == [True, False]
