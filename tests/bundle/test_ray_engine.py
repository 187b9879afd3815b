"""Prediction on Ray: the table is that of one process, whatever happens to actors."""

import signal
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seqclf.bundle import explanation, model
from seqclf.bundle import ray_engine as engine
from seqclf.bundle.explanation import explain_source
from seqclf.bundle.ray_engine import RayEngine, Worker, bundle_files, ray_engine
from seqclf.bundle.windows import run_windows
from seqclf.commands.predict import _check_engine, write_results
from seqclf.data.reading.sources import Source
from seqclf.errors import InputError

if find_spec("ray") is None:  # Ray reads its environment when it is imported, so a test must not import it first
    pytest.skip("needs Ray", allow_module_level=True)
ROWS, WINDOW = 200, 10
SETTINGS = {"threads": 1, "device": "cpu"}
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray leaves sockets and files open


@pytest.fixture
def source(exported, tmp_path, monkeypatch):
    """Source of `ROWS` rows of the bundle "events" in windows of `WINDOW` rows, some of them refused."""
    monkeypatch.setattr(model, "WINDOW_ROWS", WINDOW)
    monkeypatch.setattr(explanation, "WINDOW_ROWS", 50)
    rows = [[], None, list(range(21)), *exported("events").sequences] * 5
    pq.write_table(pa.table({"events": pa.array(rows[:ROWS], pa.list_(pa.int64()))}), tmp_path / "new.parquet")
    return Source(str(tmp_path / "new.parquet"), "input")


def written(results, source, path):
    """The bytes that the results give, and their counts."""
    counts, _ = write_results(results, str(path), pa.Schema)
    return path.read_bytes(), counts


def on(actors):
    """The argument `run` of a prediction on actors."""
    return lambda windows, _: run_windows(windows, actors.results)


def slow_worker():
    """A worker that takes 50 ms for a window."""

    class Slow(Worker):  # defined here, so that Ray sends the class itself
        def run(self, columns, first_row):
            time.sleep(0.05)
            return super().run(columns, first_row)

    return Slow


def kill_an_actor(killed):
    """Kill the process of an actor, once one works, as the kernel does that runs out of memory."""
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline and not killed:
        for process in psutil.Process().children(recursive=True):
            if "Slow.run" in process.name():
                process.kill()
                killed.append(process.pid)
                return
        time.sleep(0.02)


@pytest.mark.slow
def test_a_killed_actor_changes_nothing(classifier, source, tmp_path):
    loaded, killed = classifier("events"), []
    expected = written(loaded.predict_windows(source), source, tmp_path / "local.parquet")
    killer = threading.Thread(target=kill_an_actor, args=[killed])
    with ray_engine(loaded, SETTINGS, None, actors=2, object_store_mb=100, worker=slow_worker()) as actors:
        killer.start()
        table = written(loaded.predict_windows(source, None, on(actors)), source, tmp_path / "ray.parquet")
        killer.join()
        assert table == expected and killed
        # The same actors take another source.
        again = written(loaded.predict_windows(source, None, on(actors)), source, tmp_path / "again.parquet")
        assert again == expected
    assert not [child for child in psutil.Process().children(recursive=True) if "ray" in child.name()]


@pytest.mark.slow
def test_errors_of_data_and_code_are_one_line_and_explanations_are_those_of_one_process(
    classifier, source, tmp_path, monkeypatch
):
    class Wrong(Worker):
        def run(self, columns, first_row):
            raise (InputError if first_row == 1 else RuntimeError)("row 1", "is wrong")

    loaded = classifier("events")
    expected = written(explain_source(loaded, source, by_field=True), source, tmp_path / "local.parquet")
    with ray_engine(loaded, SETTINGS, True, actors=1, object_store_mb=100) as actors:
        results = explain_source(loaded, source, by_field=True, run=on(actors))
        assert written(results, source, tmp_path / "ray.parquet") == expected
        ray, files = actors.ray, bundle_files(loaded)
        actor = ray.remote(Wrong).options(num_cpus=0)

        def results(windows):
            return list(
                RayEngine(ray, [actor.remote(files, loaded.folder, SETTINGS, None)], "engine=ray").results(windows)
            )

        windows = list(loaded.windows(source))
        with pytest.raises(InputError, match=r"^row 1: is wrong$"):
            results(windows)
        with pytest.raises(InputError, match=r"rows 11 to 20 failed \(.*is wrong"):
            results(windows[1:2])
        files = {**files, "model.onnx": b"damaged"}
        with pytest.raises(InputError, match=r"model.onnx has changed since the export"):
            results(windows)
        # More CPUs than there are.
        monkeypatch.setattr(engine, "START_S", 2.0)
        actor = ray.remote(Wrong).options(num_cpus=1000)
        with pytest.raises(InputError, match="no actor could start for 2 s"):
            results(windows)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_and_all_its_processes(exported, source, tmp_path, number):
    command = [sys.executable, "-m", "seqclf.predict", f"bundle={exported('events').folder}", "engine=ray"]
    command += [f"input={source.path}", f"output={tmp_path / 'out.parquet'}", "ray.actors=1", "ray.object_store_mb=100"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        children = []
        while not any("raylet" in child.name() for child in children) and process.poll() is None:
            children = psutil.Process(process.pid).children(recursive=True)
            time.sleep(0.05)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 128 + number and errors.count("\n") == 1, errors
    gone, alive = psutil.wait_procs(children, timeout=20)
    assert gone and not alive and not (tmp_path / "out.parquet").exists()


LOCAL_RAY = """
import os, stat, subprocess, sys
from pathlib import Path
import psutil
from seqclf.bundle.ray_engine import ray_engine
from seqclf.bundle.runtime import Classifier

for _ in range(2):
    with ray_engine(Classifier(sys.argv[1], device="cpu", threads=1), {"threads": 1, "device": "cpu"}, None, actors=1,
                    object_store_mb=100) as actors:
        address, folder = actors.ray.get_runtime_context().gcs_address, Path(os.environ["RAY_TMPDIR"])
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and list(folder.iterdir())
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        sockets = [socket for process in processes for socket in process.net_connections("tcp")]
        hosts = {socket.laddr.ip for socket in sockets if socket.status == "LISTEN"}
        assert hosts and hosts <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}, hosts
        code = "import sys; from ray._raylet import GcsClient as Client; c = Client(address=sys.argv[1]); "
        code += "print('reads', c.internal_kv_keys(b'', namespace=b'fun'))"
        environment = {name: value for name, value in os.environ.items() if "RAY_" not in name}
        command = [sys.executable, "-c", code, address]
        stranger = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert "InvalidAuthToken" in stranger.stderr and "reads" not in stranger.stdout, stranger
    assert not folder.exists()
"""


@pytest.mark.slow
def test_a_local_ray_listens_on_the_loopback_address_and_rejects_strangers(exported, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    command = [sys.executable, "-c", LOCAL_RAY, str(exported("events").folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


def test_a_cluster_that_is_not_there_is_one_line(classifier):
    loaded = classifier("events")
    for address in ("nowhere", "ray://x:1", "127.0.0.1:1", "127.0.0.1:99999"):
        with (
            pytest.raises(InputError, match=f"ray.address={address}: no cluster answers"),
            ray_engine(loaded, SETTINGS, None, address=address),
        ):
            pass


def test_a_cluster_that_is_lost_is_one_line():
    lost = Mock(side_effect=ConnectionError("GCS is gone"))
    ray = SimpleNamespace(wait=lost, exceptions=SimpleNamespace(RayError=RuntimeError))
    with pytest.raises(InputError, match="GCS is gone"):
        list(RayEngine(ray, [], "ray.address=auto").results([SimpleNamespace(columns=[], first_row=1)]))


def test_a_bundle_that_was_replaced_is_not_sent(classifier, copy_bundle):
    folder = copy_bundle("events")
    loaded = type(classifier("events"))(folder, device="cpu", threads=1)
    assert set(bundle_files(loaded)) == {"manifest.json", *loaded.manifest["files"]}
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace(loaded.manifest["digest"], "0" * 64))
    with pytest.raises(InputError, match="was replaced"):
        bundle_files(loaded)


@pytest.mark.parametrize(
    ("engine", "sequence", "actors", "where"), [("ray", "[1]", None, "engine=ray"), ("local", None, 2, "ray.actors=2")]
)
def test_settings_of_another_engine_are_refused(engine, sequence, actors, where):
    settings = SimpleNamespace(
        engine=engine, sequence=sequence, running=False, ray=SimpleNamespace(address=None, actors=actors)
    )
    with pytest.raises(InputError) as refused:
        _check_engine(settings)
    assert refused.value.where == where
