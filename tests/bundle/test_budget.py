"""A bundle of an adaptive model: budgets, tokens read in predictions, and errors of one line."""

import itertools
import json
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch
import yaml
from bundle.conftest import row_of, sequences_of
from bundle.test_malformed import is_refused, mutations, write_signed
from support.untrained_task import data_options, make_task

from seqclf.bundle.manifest import read_bundle
from seqclf.bundle.rows import sequence_reader
from seqclf.bundle.runtime import Classifier
from seqclf.config.documentation import CONF
from seqclf.data.prepare import prepare
from seqclf.errors import InputError
from seqclf.evaluation.decisions.decision import Guarantee
from seqclf.predict import predict_text
from seqclf.runs.export import write_bundle

SHARES = {0.0: 0.2, 0.3: 0.5, 0.9: 0.8, None: 1.0}  # by threshold; the scores of the test's network are that large
POINTS = [{"threshold": t, "tokens": share, "recall": 0.9, "accuracy": 0.9, "loss": 0.3} for t, share in SHARES.items()]
HALTING = {"threshold": 0.3, "splits": {"validation": POINTS, "test": POINTS}}


@pytest.fixture(scope="module")
def adaptive(tmp_path_factory):
    work = tmp_path_factory.mktemp("adaptive")
    sequences = sequences_of("events")
    rows = [{**row_of("events", entry), "label": f"k{row % 3}"} for row, entry in enumerate(sequences)]
    (work / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    dataset = prepare(data_options(work / "cache", train=str(work / "train.jsonl")))
    model = yaml.safe_load((CONF / "model" / "adaptive.yaml").read_text(encoding="utf-8"))
    task = make_task(dataset.description(), **{key: value for key, value in model.items() if key != "defaults"})
    with torch.no_grad():
        task.model.halting.outputs.weight.mul_(3)
        task.model.halting.outputs.bias.fill_(-2.0)
    write_bundle(task, work / "bundle", {"halting": HALTING})
    return task, work / "bundle", sequences


def load(folder, **options):
    return Classifier(folder, device="cpu", threads=1, **options)


def expected(task, sequence, threshold, classifier):
    ids = torch.from_numpy(
        classifier.encoders["events"].encode(classifier.python_rows.to_columns([sequence])[0]).arrays["events"]
    )
    inputs = {"events": ids[None].long()}, torch.tensor([len(ids)]), np.array([len(ids)])
    with torch.no_grad():
        logits, read = task.model.at_thresholds(*inputs, torch.tensor([threshold]))
    return logits[0, 0].double().softmax(0).numpy(), int(read[0, 0])


@pytest.mark.parametrize(("budget", "threshold"), [(None, 0.3), (0.85, 0.9), (0.1, 0.0), (1, float("inf"))])
def test_predictions_are_those_of_the_network_at_the_threshold_of_the_budget(adaptive, monkeypatch, budget, threshold):
    task, folder, sequences = adaptive
    classifier = load(folder, budget=budget)
    for chunk in (1, 3, 16):
        monkeypatch.setattr(classifier.reader, "chunk", chunk)
        for sequence, result in zip(sequences, classifier.predict(sequences), strict=True):
            probabilities, read = expected(task, sequence, threshold, classifier)
            np.testing.assert_allclose(list(result["probabilities"].values()), probabilities, atol=1e-6)
            assert result["tokens_read"] == read
    shares = [
        result["tokens_read"] / len(entry)
        for result, entry in zip(classifier.predict(sequences), sequences, strict=True)
    ]
    assert (min(shares) < 1) == (budget != 1)


def test_tables_have_a_column_of_tokens_read(adaptive):
    _, folder, sequences = adaptive
    table = load(folder).predict(pa.table({"events": [*sequences, []]}))
    read = table.column("tokens_read").to_pylist()
    assert read[-1] is None and all(1 <= count <= len(entry) for count, entry in zip(read, sequences, strict=False))
    assert table.schema.names[-3:] == ["tokens_read", "unknown", "error"]


def test_halted_rows_leave_the_batch(adaptive, monkeypatch):
    _, folder, sequences = adaptive
    rows, run = [], sequence_reader.StepModel.run

    def counted(model, fields, lengths, states):
        rows.append(len(lengths))
        return run(model, fields, lengths, states)

    monkeypatch.setattr(sequence_reader.StepModel, "run", counted)
    classifier = load(folder)
    monkeypatch.setattr(classifier.reader, "chunk", 1)
    read = [result["tokens_read"] for result in classifier.predict(sequences)]
    assert sum(rows) == sum(read) < sum(map(len, sequences)), "a step costs the rows that have not halted"


def test_a_stream_stops_where_a_sequence_halts(adaptive):
    _, folder, sequences = adaptive
    classifier = load(folder)
    stream, whole = classifier.stream(), classifier.predict(sequences)
    for row, (sequence, result) in enumerate(zip(sequences, whole, strict=True)):
        for token in sequence:
            last = stream.read({row: [token]})[row]
        assert last["tokens_read"] == result["tokens_read"]
        assert last["probability"] == pytest.approx(result["probability"], abs=1e-6)
        assert last["halted"] or result["tokens_read"] == len(sequence)
        if last["halted"]:
            assert stream.read({row: [99]})[row] == last, "a prediction that is final"


@pytest.mark.parametrize("budget", [0, -1, 1.5])
def test_impossible_budgets_are_refused_in_one_line(adaptive, budget):
    with pytest.raises(InputError, match=rf"budget={budget}: must be above 0 and at most 1") as error:
        load(adaptive[1], budget=budget)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_a_checkpoint_without_its_metrics_reads_everything(adaptive, tmp_path):
    task, _, sequences = adaptive
    task.model.threshold = float("inf")
    write_bundle(task, tmp_path / "bundle", {})
    classifier = load(tmp_path / "bundle")
    assert [result["tokens_read"] for result in classifier.predict(sequences)] == [len(entry) for entry in sequences]
    with pytest.raises(InputError, match="exported without the metrics of its run"):
        load(tmp_path / "bundle", budget=0.5)


def test_a_mutated_curve_predicts_or_is_refused(adaptive, tmp_path):
    _, folder, sequences = adaptive
    folder = shutil.copytree(folder, tmp_path / "bundle")
    manifest = read_bundle(folder)[0]
    refused = 0
    for mutation, changed in itertools.islice(mutations({"halting": manifest["halting"]}), 0, None, 7):
        write_signed(folder, {**manifest, **changed})
        refused += is_refused(folder, sequences[0], mutation)
    assert refused > 5


def test_guarantees_are_lost_at_another_budget(adaptive):
    classifier = load(adaptive[1])
    target = Guarantee(
        rule="min_recall", label="k0", target=0.8, confidence=0.95, statement="sure", backed=True, rows=50, needed=None
    )
    for budget, kept in ((None, True), (0.5, True), (0.3, False), (1, False)):
        classifier.decision = replace(classifier.decision, targets=(target,))
        warning = classifier._drop_guarantees(budget)
        assert (classifier.decision.targets == (target,)) == kept == (warning is None)


def test_tokens_that_were_not_read_have_no_contribution(adaptive):
    _, folder, sequences = adaptive
    classifier = load(folder, budget=0.5)
    everything = load(folder, budget=1.0).explain(sequences)
    explanations, predictions = classifier.explain(sequences), classifier.predict(sequences)
    assert any(row["tokens_read"] < len(sequence) for row, sequence in zip(predictions, sequences, strict=True))
    for row, prediction, complete in zip(explanations, predictions, everything, strict=True):
        missing = [value is None for value in row["contributions"]]
        read = prediction["tokens_read"]
        assert missing == [position >= read for position in range(len(row["tokens"]))]
        assert complete["contributions"].count(None) == len(complete["tokens"]) - complete["tokens_read"]
    table = classifier.explain(pa.table({"events": sequences}))
    assert table["contribution"].to_pylist() == pytest.approx(
        [value for row in explanations for value in row["contributions"]], abs=1e-5
    )


def test_predict_says_how_many_tokens_were_not_read(adaptive, capsys):
    _, folder, sequences = adaptive
    sequence = max(sequences, key=len)
    result = predict_text(load(folder, budget=0.5), str(sequence), by_field=True)
    unread = len(sequence) - result.tokens_read
    output = capsys.readouterr().err
    assert unread and f"{unread} tokens that the model did not read" in " ".join(output.split())
    assert result.contributions[-unread:] == [None] * unread
