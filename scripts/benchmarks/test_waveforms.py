"""waveforms.py: the generated classes are what they claim to be, and a comparison runs on a few of them."""

import argparse
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parent / "waveforms.py"
specification = importlib.util.spec_from_file_location("waveforms", SCRIPT)
waveforms = importlib.util.module_from_spec(specification)
specification.loader.exec_module(waveforms)
generate = waveforms.generate


@pytest.mark.parametrize("family", waveforms.FAMILIES)
def test_waveforms_have_all_classes_lengths_and_amplitudes(family):
    table = generate(family, 120, seed=3, standardized=False)
    labels = table["label"].to_pylist()
    classes = waveforms.FAMILIES[family][1]
    assert {label: labels.count(label) for label in labels} == {f"class{n}": 120 // classes for n in range(classes)}
    waves = table["wave0"].to_pylist()
    lengths, deviations = [len(wave) for wave in waves], [np.std(wave) for wave in waves]
    assert waveforms.SHORTEST <= min(lengths) < 150 and 1300 < max(lengths) <= waveforms.LONGEST
    assert max(deviations) / min(deviations) > 1e4
    assert table.equals(generate(family, 120, seed=3, standardized=False)), "the same seed gives the same table"
    assert not table.equals(generate(family, 120, seed=4, standardized=False))


def test_standardized_waveforms_have_mean_0_and_deviation_1():
    for wave in generate("phase_lag", 10, seed=0, standardized=True)["wave1"].to_pylist():
        assert np.mean(wave) == pytest.approx(0, abs=1e-4) and np.std(wave) == pytest.approx(1, abs=1e-4)


def test_frequencies_of_the_classes_are_apart():
    """The strongest frequency of a waveform tells its class, except where noise drowns a short one."""
    table, hits = generate("frequency", 60, seed=0, standardized=True), 0
    for wave, label in zip(table["wave0"].to_pylist(), table["label"].to_pylist(), strict=True):
        strongest = np.abs(np.fft.rfft(wave, 2**14)).argmax() / 2**14  # padded: bins of 100 tokens would be too wide
        hits += label == f"class{round(np.log(strongest / 0.02) / np.log(1.5))}"
    assert hits > 50, "of 60, of which 15 by chance"


def test_an_event_is_where_its_matched_filter_answers_most():
    table = generate("event", 60, seed=0, standardized=True)
    ramp = np.linspace(0, 1, waveforms.EVENT)
    shapes = (ramp, ramp[::-1], 1 - np.abs(2 * ramp - 1))
    hits = 0
    for wave, label in zip(table["wave0"].to_pylist(), table["label"].to_pylist(), strict=True):
        answers = [np.abs(np.correlate(wave, shape / np.linalg.norm(shape))).max() for shape in shapes]
        hits += label == f"class{np.argmax(answers)}"
    assert hits > 40, "of 60, of which 20 by chance"


@pytest.mark.parametrize(("models", "ratio"), [(["lstm", "gru"], 2.0), (["gru"], None), (["a", "b", "c"], None)])
def test_any_models_are_compared_and_two_by_their_times(models, ratio, monkeypatch):
    seconds = iter((3.0, 1.5, 1.0))
    monkeypatch.setattr(waveforms, "train", lambda *_: {"recall": 0.5, "baseline": None, "seconds": next(seconds)})
    options = argparse.Namespace(models=models, scale="sequence", rows=8, seed=0)
    result = waveforms.compare("frequency", options)
    assert result.get("time_ratio") == ratio
    row = waveforms.table_row(result, models)
    assert row.startswith("| frequency | - | 0.500 |") and row.count("|") == 3 + 2 * len(models)


@pytest.mark.parametrize(("baseline", "recall"), [({"baseline": {"recall": 0.4}}, 0.4), ({}, None)])
def test_figures_of_a_run_are_read_with_and_without_a_baseline(baseline, recall, tmp_path):
    (tmp_path / "metrics.json").write_text(json.dumps({"validation": {"recall": 0.5}, **baseline}))
    (tmp_path / "metrics.csv").write_text("epoch,seconds\n0,9\n1,2\n2,1\n")
    assert waveforms.read_figures(tmp_path) == {"recall": 0.5, "baseline": recall, "seconds": 2.0}


@pytest.mark.soak
def test_a_comparison_prints_a_table_and_one_json_line():
    options = ["--families", "frequency", "--rows", "16", "--epochs", "1"]
    completed = subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    lines = completed.stdout.strip().splitlines()
    (result,) = json.loads(lines[-1])
    assert result["family"] == "frequency" and result["time_ratio"] > 1
    assert all(0 <= result[key] <= 1 for key in ("order_blind", "lstm_recall", "auto_recall"))
    assert len({line.count("|") for line in lines[:-1]}) == 1, "the table's rows have the cells of its headings"
