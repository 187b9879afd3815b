"""A Weights & Biases server that hangs or refuses delays a run by seconds at most."""

import socket
import time
from contextlib import contextmanager

import pytest

from seqclf.training import loggers

SETTINGS = {
    "name": "wandb",
    "project": "seqclf",
    "run_name": None,
    "group": None,
    "job_type": "train",
    "tags": [],
    "notes": None,
    "mode": "online",
    "log_bundle": True,
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


@pytest.mark.parametrize("kind", ["hangs", "refuses"])
def test_a_server_that_does_not_answer_is_given_up_in_time(kind):
    with server(kind) as url:
        start = time.monotonic()
        assert not loggers.answers(url, 0.5)
        assert time.monotonic() - start < 3


def test_a_name_lookup_that_hangs_is_given_up_in_time(monkeypatch):
    def slow(*arguments, **options):
        time.sleep(3)
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    start = time.monotonic()
    assert not loggers.answers("http://nowhere.invalid", 0.2)
    assert time.monotonic() - start < 2


class StartedError(Exception):
    """Ends `make_logger` where W&B would start."""


@pytest.mark.parametrize("kind", ["hangs", "refuses"])
def test_a_run_continues_offline_with_one_message(kind, tmp_path, monkeypatch, capsys):
    modes = []

    def init(settings, run, config, mode, seconds):
        modes.append(mode)
        raise StartedError

    monkeypatch.setattr(loggers, "_init", init)
    monkeypatch.setattr(loggers, "_has_key", lambda: True)
    with server(kind) as url:
        monkeypatch.setattr(loggers, "_server", lambda: url)
        with pytest.raises(StartedError):
            loggers._wandb(SETTINGS, tmp_path, {})
    assert modes == ["offline"]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"Weights & Biases: {url} does not answer; the run is recorded offline, `wandb sync ")


def test_a_server_that_answers_but_starts_no_run_is_given_up_in_time(tmp_path, monkeypatch, capsys):
    modes = []

    def init(settings, run, config, mode, seconds):
        modes.append((mode, seconds <= SETTINGS["timeout"]))
        raise TimeoutError("Timed out initializing run") if mode == "online" else StartedError

    monkeypatch.setattr(loggers, "_init", init)
    monkeypatch.setattr(loggers, "_has_key", lambda: True)
    monkeypatch.setattr(loggers, "_server", lambda: "http://server")
    monkeypatch.setattr(loggers, "answers", lambda url, seconds: True)
    with pytest.raises(StartedError):
        loggers._wandb(SETTINGS, tmp_path, {})
    assert modes == [("online", True), ("offline", True)]
    assert capsys.readouterr().err.startswith("Weights & Biases: Timed out initializing run; the run is recorded")
