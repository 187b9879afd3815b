"""Import and prediction on a platform without the POSIX parts of Python's library, such as Windows."""

import json
import subprocess
import sys

import pytest

# What Python lacks on Windows, as far as seqclf once used it.
WITHOUT_POSIX = """
import json, os, signal, sys
for name in ("fcntl", "resource", "termios", "grp", "pwd"):
    sys.modules[name] = None
for module, names in ((signal, ("SIGHUP",)), (os, ("fork", "getuid", "register_at_fork", "sched_getaffinity"))):
    for name in names:
        delattr(module, name)
"""
PREDICT = """
import seqclf
from seqclf.system import file_locks, run_lock, signals
assert file_locks.fcntl is None and len(signals.SIGNALS) == 2
signals.install()
classifier = seqclf.Classifier(sys.argv[1])
print(json.dumps([row["probability"] for row in classifier.predict(json.loads(sys.argv[2]))]))
"""


@pytest.mark.parametrize("kind", ["events"])
def test_import_and_prediction_need_no_posix(exported, kind):
    bundle = exported(kind).folder
    sequences = [[1, 2, 3], [8]]
    answers = []
    for platform in ("import json, sys\n", WITHOUT_POSIX):
        code = platform + (PREDICT if platform == WITHOUT_POSIX else PREDICT.replace("assert", "# assert"))
        done = subprocess.run(
            [sys.executable, "-c", code, str(bundle), json.dumps(sequences)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        answers.append(json.loads(done.stdout))
    assert answers[0] == answers[1] and len(answers[0]) == 2


def test_nothing_is_locked_where_there_are_no_locks(tmp_path, monkeypatch):
    from seqclf.system import file_locks
    from seqclf.system.atomic_files import sweep, write_output
    from seqclf.system.run_lock import locked

    monkeypatch.setattr(file_locks, "fcntl", None)
    with locked(tmp_path):
        write_output(tmp_path / "a.json", "{}")
        (tmp_path / ".b.json.0123.part").touch()
        sweep(tmp_path, ".*.part")
    # It may be that of a live process.
    assert sorted(path.name for path in tmp_path.iterdir()) == [".b.json.0123.part", "a.json"]
