"""fuzz.py on a few files: outcomes are counted, and workers that die or hang are replaced."""

import importlib.util
import os
import sys
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "fuzz.py"


@pytest.fixture(scope="module")
def fuzz():
    spec = importlib.util.spec_from_file_location("fuzz", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["fuzz"]


def serve_badly(connection, *_):
    """A worker that dies at file 1, hangs at file 2 and examines all others."""
    from fuzzing.cases import Outcome  # a folder of tests/, on the path once fuzz.py is loaded

    while (number := connection.recv()) is not None:
        if number == 1:
            os._exit(3)
        if number == 2:
            time.sleep(60)
        connection.send(Outcome(number, "csv", ["cut"], "died"))
        connection.send(Outcome(number, "csv", ["cut"], "success"))


@pytest.mark.slow
def test_a_dead_and_a_hanging_worker_are_findings_and_the_next_file_is_examined(fuzz, monkeypatch, capsys):
    monkeypatch.setattr(fuzz, "serve", serve_badly)
    monkeypatch.setattr(fuzz, "TIMEOUT_S", 8)
    outcomes = fuzz.run(range(4), seed=0, keep=None, worker_count=1)
    assert [fuzz.status_of(outcome) for outcome in outcomes] == ["success", "finding", "finding", "success"]
    assert outcomes[1].findings == ["the process died, exit code 3"]
    assert outcomes[2].findings == ["takes more than 8 s"]
    assert "takes more than 8 s" in capsys.readouterr().out
    by_kind, by_mutation = fuzz.count_statuses(outcomes)
    assert (
        by_kind["csv"] == {"success": 2} and by_kind["unknown"] == {"finding": 2} and by_mutation["cut"]["success"] == 2
    )
    assert "| csv | 2 | 0 | 0 |" in fuzz.markdown_table("kind of file", by_kind)


def test_only_named_files_are_examined(fuzz, monkeypatch, capsys):
    outcome = fuzz.Outcome(7, "csv", [], "success")
    monkeypatch.setattr(fuzz, "run", lambda numbers, *_: [outcome for _ in numbers])
    monkeypatch.setattr(sys, "argv", ["fuzz.py", "--only", "7", "9"])
    assert fuzz.main() == 0
    assert (
        capsys.readouterr().out.splitlines()[-1] == '{"files": 2, "seed": 0, "success": 2, "errors": 0, "findings": 0}'
    )


CASES_OF = {"bundles": ("text", "trees", "subwords"), "inputs": ("file jsonl",)}
CASES = 14


@pytest.fixture(scope="module")
def bundles(fuzz, tmp_path_factory):
    from fuzzing import bundle_bases

    folder = tmp_path_factory.mktemp("bundles")
    bundle_bases.export(folder, sorted({kind for kinds in CASES_OF.values() for kind in kinds}))
    return folder


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, kinds in CASES_OF.items() for kind in kinds])
def test_mutated_predictions_end_in_one_row_per_row_or_one_clear_error_line(fuzz, bundles, tmp_path, name, kind):
    """Cases of one bundle of each suite, in this process: their numbers are those of the bundle."""
    suite, statuses = fuzz.SUITES[name], []
    first, stride = suite.bundles.index(kind), len(suite.bundles)
    for case in range(CASES):
        folder = tmp_path / str(case)
        outcome = suite.examine(suite.make(3, first + case * stride, folder, bundles), folder)
        assert outcome.findings == [], fuzz.describe(outcome)
        statuses.append(outcome.status)
    assert {"success", "error"} <= {*statuses}


def test_a_prediction_that_breaks_its_rules_is_a_finding(fuzz, bundles, tmp_path, monkeypatch):
    """A row is lost, a file is written beside the output, and an exception is raised."""
    from fuzzing import predictions

    def broken(config):
        (tmp_path / "work" / "other").write_text("x")
        result = predict(config)
        (tmp_path / "out" / "scores.jsonl").write_text('{"id": 1, "prediction": null, "error": null}\n')
        return result

    predict = predictions._predict
    monkeypatch.setattr(predictions, "_predict", broken)
    monkeypatch.setattr(predictions, "OUTPUTS", ("scores.jsonl",))
    suite = fuzz.SUITES["inputs"]
    number = suite.bundles.index("file jsonl")
    seed = next(seed for seed in range(999) if suite.make(seed, number, tmp_path / f"x{seed}", bundles).mutations
                == ["repeated_rows"])  # fmt: skip
    outcome = suite.examine(suite.make(seed, number, tmp_path, bundles), tmp_path)
    text = "\n".join(outcome.findings)
    assert "written outside of the output: work/other" in text
    assert "1 output rows of" in text and "error None, prediction None" in text
    monkeypatch.setattr(predictions, "_predict", lambda _: {}["key"])
    outcome = suite.examine(suite.make(seed, number, tmp_path / "again", bundles), tmp_path / "again")
    assert "KeyError" in outcome.findings[0]
