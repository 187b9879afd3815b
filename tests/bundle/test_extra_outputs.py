"""Outputs of a network beside its logits: exported, compared with PyTorch, predicted, scored and shown by name."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from support.untrained_task import data_options, export_table, make_task

import seqclf
from seqclf.bundle import parity
from seqclf.bundle.runtime import Classifier
from seqclf.bundle.step_model import StepModel
from seqclf.config.command_keys import default_settings
from seqclf.data.prepare_data import prepare
from seqclf.errors import InputError
from seqclf.evaluation.score_files import read_run_scores
from seqclf.extend import SequenceNetwork
from seqclf.models.ensemble import check_members
from seqclf.runs.bundle_export import write_bundle

TOKENS = [[letter] * count for count in range(1, 21) for letter in "abc"]
TABLE = pa.table({"code": TOKENS, "label": [row[0] for row in TOKENS]})


class Pooled(SequenceNetwork):
    """The trial: a vector, a number and an integer for each row."""

    extra_outputs = ("pooled", "norm", "total")

    def __init__(self, fields, num_classes, **settings):
        super().__init__()
        (self.field,) = (field["name"] for field in fields)
        self.embedding, self.output = torch.nn.Embedding(50, 4), torch.nn.Linear(4, num_classes)

    def outputs(self, fields, lengths, host_lengths):
        inside = torch.arange(fields[self.field].shape[1]) < lengths[:, None]
        pooled = (self.embedding(fields[self.field].clamp(max=49)) * inside[..., None]).sum(dim=1) / lengths[:, None]
        total = (fields[self.field] * inside).sum(dim=1)
        return {"logits": self.output(pooled), "pooled": pooled, "norm": pooled.norm(dim=1), "total": total}

    def forward(self, fields, lengths, host_lengths):
        return self.outputs(fields, lengths, host_lengths)["logits"]


POOLED = {"_target_": f"{__name__}.Pooled"}


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return export_table(tmp_path_factory.mktemp("pooled"), TABLE, POOLED)


def test_a_bundle_returns_each_extra_output_beside_the_probabilities(classifier):
    assert classifier.manifest["outputs"] == ["logits", *Pooled.extra_outputs]
    table = classifier.predict(TABLE.append_column("id", pa.array(map(str, range(len(TOKENS))))))
    rows = classifier.predict([*TOKENS, []])
    assert table.schema.names[-5:] == ["pooled", "norm", "total", "unknown", "error"]
    assert rows[-1]["pooled"] is None and rows[-1]["total"] is None
    pooled = np.array(table["pooled"].to_pylist())
    assert pooled.shape == (len(TOKENS), 4) and np.ptp(pooled[:, 0]) > 0
    np.testing.assert_allclose(np.linalg.norm(pooled, axis=1), table["norm"].to_numpy(), atol=1e-5)
    np.testing.assert_array_equal([row["total"] for row in rows[:-1]], table["total"].to_numpy())
    np.testing.assert_allclose([row["pooled"] for row in rows[:-1]], pooled, atol=1e-6)


def test_a_run_scores_and_shows_them(tmp_path):
    settings = ["logger=none", "trainer.accelerator=cpu", "baseline=false", "trainer.max_epochs=1", "export=false"]
    settings += [f"model._target_={__name__}.Pooled", f"data.cache_dir={tmp_path / 'cache'}", "batching.max_tokens=64"]
    run = seqclf.fit(TABLE, label="label", overrides=settings, folder=tmp_path / "run")
    last = read_run_scores(run.folder / "scores")[-1].splits["validation"]
    predicted = pq.read_table(run.folder / "predictions.parquet").to_pandas()
    predicted = predicted[predicted["split"] == "validation"]
    assert last.extra.keys() == set(Pooled.extra_outputs) and last.extra["pooled"].shape == (len(predicted), 4)
    np.testing.assert_array_equal(np.stack(predicted["pooled"]), last.extra["pooled"])
    np.testing.assert_array_equal(predicted["total"], last.extra["total"])
    page = (run.folder / "report.html").read_text(encoding="utf-8")
    assert f"norm: {last.extra['norm'].mean():.4g} on average" in page and "pooled: " not in page


@pytest.mark.parametrize("name", ["code", "label", "probability_a", "halted"])
def test_names_of_fields_and_columns_are_taken(name, tmp_path, monkeypatch):
    monkeypatch.setattr(Pooled, "extra_outputs", (name,))
    with pytest.raises(InputError, match=f"has an extra output named '{name}'"):
        export_table(tmp_path, TABLE, POOLED)


def test_members_cannot_have_extra_outputs():
    with pytest.raises(InputError, match=r"model.members=2: "):
        check_members(Pooled, 2)


@pytest.mark.parametrize(("rows", "passes"), [(1, True), (40, False)])
def test_few_rows_may_have_other_integers(classifier, tmp_path, rows, passes):
    cells = parity.read_cells(classifier.folder / "parity.npz")
    changed = 0
    for arrays in cells.values():
        for row in range(len(arrays["total"]) if changed < rows else 0):
            arrays["total"][row] += 1
            arrays["logits"][row] += 1  # as of another token, which is not compared
            changed += 1
            if changed == rows:
                break
    stored = {f"{cell}/{name}": values for cell, arrays in cells.items() for name, values in arrays.items()}
    np.savez(tmp_path / "parity.npz", **stored)
    found = parity.check(classifier.reader.session, tmp_path / "parity.npz")
    assert found.passed == passes and found.max_error < 1e-5 and found.other_rows > 0


@pytest.fixture(scope="module")
def adaptive(tmp_path_factory):
    """A task whose network stops early, its bundle and sequences."""
    folder, random = tmp_path_factory.mktemp("adaptive"), np.random.default_rng(0)
    rows = [random.choice(list("abcdef"), count).tolist() for count in random.integers(1, 60, 40)]
    pq.write_table(pa.table({"code": rows, "label": [row[0] for row in rows]}), folder / "rows.parquet")
    dataset = prepare(data_options(folder / "cache", train=str(folder / "rows.parquet")))
    model = default_settings("model", "adaptive")
    task = make_task(dataset.description(), **{key: value for key, value in model.items() if key != "defaults"})
    with torch.no_grad():
        task.model.halting.outputs.weight.mul_(3)
        task.model.halting.outputs.bias.fill_(-3.0)
    task.model.threshold.fill_(0.9)
    write_bundle(task, folder / "bundle", {})
    return task, Classifier(folder / "bundle", device="cpu", threads=1), rows


def expected(task, classifier, row):
    ids = classifier.encoders["code"].encode(classifier.python_rows.to_columns([row])[0]).arrays["code"]
    with torch.no_grad():
        found = task.model.outputs(
            {"code": torch.from_numpy(ids)[None].long()}, torch.tensor([len(ids)]), np.array([len(ids)])
        )
    return found["logits"][0].double().softmax(0).numpy(), int(found["tokens_read"][0])


def test_batches_stop_where_the_network_does(adaptive, monkeypatch):
    task, classifier, rows = adaptive
    steps, run = [], StepModel.run
    counted = lambda model, fields, lengths, states: steps.append(len(lengths)) or run(model, fields, lengths, states)  # noqa: E731
    monkeypatch.setattr(StepModel, "run", counted)
    for chunk in (1, 16):
        monkeypatch.setattr(classifier.reader, "chunk", chunk)
        monkeypatch.setattr(classifier.reader, "long_row", chunk)
        steps.clear()
        predicted = classifier.predict(rows)
        for row, result in zip(rows, predicted, strict=True):
            probabilities, read = expected(task, classifier, row)
            np.testing.assert_allclose(list(result["probabilities"].values()), probabilities, atol=1e-6)
            assert result["tokens_read"] == read
        total = sum(result["tokens_read"] for result in predicted)
        assert sum(map(len, rows)) / 4 < total < sum(map(len, rows)) * 0.9
        assert chunk > 1 or sum(steps) <= total, "a step costs the rows that have not halted"
    contributions = classifier.explain(rows)[0]["contributions"]
    assert max(map(abs, contributions[predicted[0]["tokens_read"] :]), default=0.0) < 1e-5


def test_a_stream_stops_where_a_sequence_halts(adaptive):
    _, classifier, rows = adaptive
    stream, whole = classifier.stream(), classifier.predict(rows)
    for key, (row, result) in enumerate(zip(rows, whole, strict=True)):
        for token in row:
            last = stream.read({key: [token]})[key]
        assert last["tokens_read"] == result["tokens_read"] <= last["tokens"] <= len(row)
        assert last["probability"] == pytest.approx(result["probability"], abs=1e-6)
        assert last["halted"] or result["tokens_read"] == len(row)
        if last["halted"]:
            assert stream.read({key: ["b"]})[key] == last, "a prediction that is final"


def test_running_scores_keep_the_last_of_a_sequence_that_halts(adaptive):
    task, classifier, rows = adaptive
    lines, start = classifier.running(rows).to_pylist(), 0
    assert len(lines) == sum(map(len, rows))
    for row in rows:
        for stop in range(1, len(row) + 1, 5):
            probabilities, tokens_read = expected(task, classifier, row[:stop])
            line = lines[start + stop - 1]
            assert line["probability"] == pytest.approx(probabilities.max(), abs=1e-5)
            assert line["tokens_read"] == tokens_read
        start += len(row)


def test_the_embedding_is_what_the_output_layer_reads(adaptive, monkeypatch):
    task, classifier, rows = adaptive
    weight, bias = (values.detach().double().numpy() for values in task.model.output.parameters())
    assert classifier.manifest["embedding"] == {"pooled": weight.shape[1]} and "embedding" not in classifier.extra
    found = classifier.embed([*rows, []])
    assert found.dtype == np.float32 and found.shape == (len(rows) + 1, weight.shape[1]) and np.isnan(found[-1]).all()
    shares = np.exp(found[:-1] @ weight.T + bias)
    np.testing.assert_allclose(shares / shares.sum(axis=1, keepdims=True), classifier.predict_proba(rows), atol=1e-6)
    assert "embedding" not in classifier.predict(rows)[0] and "embedding" not in classifier.stream().read({0: "a"})[0]
    opened = Classifier(classifier.folder, device="cpu", threads=1, embeddings=True)
    column = opened.predict(pa.table({"code": [*rows, []]})).column("embedding")
    assert column.type == pa.list_(pa.float32(), weight.shape[1]) and column[-1].as_py() is None
    np.testing.assert_array_equal(np.stack(column[:-1].to_pylist()).astype(np.float32), found[:-1])
    stream = opened.stream()
    for row, expected in zip(rows[:9], found, strict=False):
        for token in row:
            last = stream.read({"key": [token]})["key"]["embedding"]
        stream.close("key")
        np.testing.assert_allclose(last, expected, atol=1e-5)


LAYERS = {"unused": lambda self: torch.nn.Identity(), "ids": lambda self: self.embedding}


@pytest.mark.parametrize(("name", "error"), [("unused", "is not called"), ("ids", "gets no vector")])
def test_a_layer_that_gives_no_embedding_is_one_line(tmp_path, monkeypatch, name, error):
    monkeypatch.setattr(Pooled, "embedding_layers", lambda self: {name: LAYERS[name](self)})
    with pytest.raises(InputError, match=rf"embedding_layers: {name}: {error}"):
        export_table(tmp_path, TABLE, POOLED)


def test_a_network_has_the_embedding_that_it_defines(classifier, tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"has no embedding; define embedding_layers"):
        classifier.embed(TOKENS)
    with pytest.raises(InputError, match=r"has no embedding; define embedding_layers"):
        Classifier(classifier.folder, embeddings=True)
    monkeypatch.setattr(Pooled, "embedding_layers", lambda self: {"mean": self.output})
    found = export_table(tmp_path, TABLE, POOLED)
    pooled = [row["pooled"] for row in found.predict(TOKENS)]
    np.testing.assert_array_equal(found.embed(TOKENS), np.array(pooled, np.float32))


def test_the_model_has_the_threshold_of_the_network(adaptive):
    task, classifier, rows = adaptive
    assert "halting" not in classifier.manifest and {"inputs", "outputs"} <= classifier.manifest.keys()
    task.model.threshold.fill_(-1)
    write_bundle(task, classifier.folder.parent / "all", {})
    everything = Classifier(classifier.folder.parent / "all", device="cpu", threads=1)
    assert [result["tokens_read"] for result in everything.predict(rows)] == list(map(len, rows))
    task.model.threshold.fill_(0.9)
