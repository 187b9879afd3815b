"""Prediction on Ray: the table is that of one process, whatever happens to actors and nodes."""

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seqclf.bundle import model
from seqclf.bundle.cluster import ray_cluster, ray_pool
from seqclf.bundle.cluster.ray_pool import ActorPool, pool_results
from seqclf.bundle.cluster.ray_worker import WindowWorker, bundle_files
from seqclf.bundle.explanations import explanation
from seqclf.bundle.explanations.explanation import explain_source
from seqclf.data.reading.sources import Source
from seqclf.errors import InputError
from seqclf.predict import _check_engine, write_results

ray = pytest.importorskip("ray")
ROWS, WINDOW = 200, 10
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


def slow_worker():
    """A worker that takes 50 ms for a window."""

    class Worker(WindowWorker):  # defined here, so that Ray sends the class itself
        def run(self, columns, first_row):
            time.sleep(0.05)
            return super().run(columns, first_row)

    return Worker


def kill_an_actor(killed):
    """Kill the process of an actor, once one works, as the kernel does that runs out of memory."""
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline and not killed:
        for process in psutil.Process().children(recursive=True):
            if "Worker.run" in process.name():
                process.kill()
                killed.append(process.pid)
                return
        time.sleep(0.02)


@pytest.mark.slow
def test_a_killed_actor_changes_nothing(classifier, source, tmp_path):
    loaded, killed = classifier("events"), []
    expected = written(loaded.predict_windows(source), source, tmp_path / "local.parquet")
    killer = threading.Thread(target=kill_an_actor, args=[killed])
    with ray_pool.actor_pool(loaded, actors=2, object_store_mb=100, worker=slow_worker()) as actors:
        killer.start()
        table = written(pool_results(actors, loaded, source, None), source, tmp_path / "ray.parquet")
        killer.join()
        assert table == expected and killed
        # The same actors take another source.
        again = written(pool_results(actors, loaded, source, None), source, tmp_path / "again.parquet")
        assert again == expected and actors.ready == 2
    assert not [child for child in psutil.Process().children(recursive=True) if "ray" in child.name()]


@pytest.mark.slow
def test_errors_of_data_and_code_are_one_line_and_explanations_are_those_of_one_process(
    classifier, source, tmp_path, monkeypatch
):
    class Wrong(WindowWorker):
        def run(self, columns, first_row):
            raise (InputError if first_row == 1 else RuntimeError)("row 1", "is wrong")

    loaded = classifier("events")
    expected = written(explain_source(loaded, source, by_field=True), source, tmp_path / "local.parquet")
    with ray_pool.actor_pool(loaded, actors=1, object_store_mb=100, by_field=True) as actors:
        results = pool_results(actors, loaded, source, True)
        assert written(results, source, tmp_path / "ray.parquet") == expected
        actor, files = ray.remote(Wrong).options(num_cpus=0), bundle_files(loaded)

        def pool():
            return ActorPool(ray, [actor.remote(files, str(loaded.folder), {"device": "cpu"}, None)], "engine=ray")

        with pytest.raises(InputError, match=r"^row 1: is wrong$"):
            list(pool().results(loaded.windows(source), "predicting", "rows"))
        windows = list(loaded.windows(source))[1:2]
        with pytest.raises(InputError, match=r"rows 11 to 20 failed \(.*is wrong"):
            list(pool().results(windows, "predicting", "rows"))
        files = {**files, "model.onnx": b"damaged"}
        with pytest.raises(InputError, match=r"model.onnx has changed since the export"):
            list(pool().results(windows, "predicting", "rows"))
        # More CPUs than there are.
        monkeypatch.setattr(ray_pool, "PATIENCE_S", 2.0)
        actor = ray.remote(Wrong).options(num_cpus=1000)
        with pytest.raises(InputError, match="no actor could start for 2 s"):
            list(pool().results(windows, "predicting", "rows"))


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


STRANGER = """
import sys
from ray._raylet import GcsClient
client = GcsClient(address=sys.argv[1])
print("reads", client.internal_kv_keys(b"", namespace=b"fun"))
"""


@pytest.mark.slow
def test_a_local_ray_refuses_strangers(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_ENABLE_K8S_TOKEN_AUTH", "1")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    for _ in range(2):  # a second Ray has a token of its own
        with ray_cluster.connected(None, cpus=1, object_store_mb=100):
            assert ray.get(ray.remote(lambda: os.getpid()).remote()) != os.getpid()
            node = ray._private.worker._global_node
            private = Path(node.get_session_dir_path()).parents[1]
            assert stat.S_IMODE(private.stat().st_mode) == 0o700 and private.parent == ray_cluster.FOLDER
            processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
            sockets = [socket for process in processes for socket in process.net_connections("tcp")]
            hosts = {socket.laddr.ip for socket in sockets if socket.status == "LISTEN"}
            assert hosts <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
            environment = {name: value for name, value in os.environ.items() if "RAY_" not in name}
            command = [sys.executable, "-c", STRANGER, node.gcs_address]
            stranger = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
            assert "InvalidAuthToken" in stranger.stderr and "reads" not in stranger.stdout
        assert not private.exists()


@pytest.mark.parametrize(
    "before", [{}, {"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a"}]
)
def test_a_local_ray_has_a_new_token_and_the_environment_stays(monkeypatch, before):
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in before.items():
        monkeypatch.setenv(name, value)
    loopback_only = not ray._private.ray_constants.ENABLE_RAY_CLUSTER  # as on macOS and Windows
    loader, seen = ray._raylet.AuthenticationTokenLoader.instance(), []

    def init(**settings):
        header = loader.get_token_for_http_header()["authorization"]
        assert os.environ["RAY_AUTH_MODE"] == "token" and header == f"Bearer {os.environ['RAY_AUTH_TOKEN']}"
        seen.append(header)
        # Unix sockets of Ray have paths of at most 107 characters.
        folder = Path(settings["_temp_dir"])
        assert len(f"{folder}/session_2026-11-28_23-59-59_123456_1234567/sockets/plasma_store") < 107
        assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
        raise ConnectionError("no")

    monkeypatch.setattr(ray, "init", init)
    for _ in range(2):
        with pytest.raises(InputError, match="cannot start"), ray_cluster.connected(None, cpus=1, object_store_mb=100):
            pass
    assert len(set(seen)) == 2
    after = {name: value for name, value in os.environ.items() if name.startswith("RAY_AUTH_")}
    assert after == before and ray._private.ray_constants.ENABLE_RAY_CLUSTER is not loopback_only
    mode = ray._raylet.AuthenticationMode
    assert ray._raylet.get_authentication_mode() == (mode.TOKEN if "RAY_AUTH_TOKEN" in before else mode.DISABLED)


def test_a_ray_of_the_user_is_left_alone(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "shutdown", lambda: pytest.fail("ends the user's Ray"))
    with pytest.raises(InputError, match="already"), ray_cluster.connected(None, cpus=1, object_store_mb=100):
        pass


def test_only_processes_of_the_local_ray_are_killed(tmp_path):
    log = tmp_path / "log"
    log.touch()
    wait = [sys.executable, "-c", "import sys; print(flush=True); open(sys.argv[1]); sys.stdin.read()", str(log)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    reader = subprocess.Popen(wait, **pipes)
    leftover = subprocess.Popen(wait, **pipes, env={**os.environ, "RAY_AUTH_TOKEN": "0123456789abcdef"})
    with reader, leftover:
        for process in (reader, leftover):
            process.stdout.readline()
        ray_cluster._end_leftovers("0123456789abcdef")
        assert leftover.wait(20) == -signal.SIGKILL and reader.poll() is None


def test_a_cluster_that_is_not_there_is_one_line():
    for address in ("nowhere", "ray://x:1", "127.0.0.1:1", "127.0.0.1:99999"):
        with (
            pytest.raises(InputError, match=f"ray.address={address}: no cluster answers"),
            ray_cluster.connected(address, cpus=1, object_store_mb=100),
        ):
            pass


def test_a_bundle_that_was_replaced_is_not_sent(classifier, copy_bundle):
    folder = copy_bundle("events")
    loaded = type(classifier("events"))(folder, device="cpu", threads=1)
    assert set(bundle_files(loaded)) == {"manifest.json", *loaded.manifest["files"]}
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace(loaded.manifest["digest"], "0" * 64))
    with pytest.raises(InputError, match="was replaced"):
        bundle_files(loaded)


def test_as_many_actors_as_fit():
    fitting = ray_pool._fitting
    assert fitting({"CPU": 8.0}, 3, False) == 2 and fitting({"CPU": 8.0, "GPU": 1.0}, 1, True) == 1
    assert fitting({}, 1, False) == 1


@pytest.mark.parametrize(
    ("engine", "sequence", "actors", "where"),
    [("ray", "[1]", None, "engine=ray"), ("local", None, 2, "ray.actors=2")],
)
def test_settings_of_another_engine_are_refused(engine, sequence, actors, where):
    settings = SimpleNamespace(engine=engine, sequence=sequence, ray=SimpleNamespace(address=None, actors=actors))
    with pytest.raises(InputError) as refused:
        _check_engine(settings)
    assert refused.value.where == where


def test_a_missing_extra_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"seqclf\[ray\]"), ray_cluster.connected(None, cpus=1, object_store_mb=100):
        pass
