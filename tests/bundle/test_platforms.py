"""Import and prediction on a platform without the POSIX parts of Python's library, such as Windows."""

import json
import subprocess
import sys

from seqclf.bundle.runtime import Classifier

# What Python lacks on Windows, as far as seqclf once used it.
WITHOUT_POSIX = """
import json, os, signal, sys
for name in ("fcntl", "resource", "termios", "grp", "pwd"):
    sys.modules[name] = None
for module, names in ((signal, ("SIGHUP",)), (os, ("fork", "getuid", "register_at_fork", "sched_getaffinity"))):
    for name in names:
        delattr(module, name)
import seqclf
from seqclf.system import atomic_files, signals
from seqclf.system import run_folder as run_lock
assert atomic_files.fcntl is None and len(signals.SIGNALS) == 2
signals.install()
classifier = seqclf.Classifier(sys.argv[1])
print(json.dumps([row["probability"] for row in classifier.predict(json.loads(sys.argv[2]))]))
"""


def test_import_and_prediction_need_no_posix(exported):
    folder, sequences = exported("events").folder, [[1, 2, 3], [8]]
    command = [sys.executable, "-c", WITHOUT_POSIX, str(folder), json.dumps(sequences)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = [row["probability"] for row in Classifier(folder).predict(sequences)]
    assert json.loads(done.stdout) == expected and len(expected) == 2
