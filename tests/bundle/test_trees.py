"""Trees from bracketed text to predictions without PyTorch."""

import numpy as np
import pytest
import torch
from bundle.conftest import TREES
from support.untrained_task import make_task

from seqclf.batching.collate import pad
from seqclf.bundle.runtime import Classifier
from seqclf.runs.bundle_export import write_bundle
from seqclf.training.task import load_task

SENTENCES = TREES["treebank"]
UNSEEN = [
    "(x" * 400 + " word" + ")" * 400,
    "(x " + " ".join(f"(pos w{number})" for number in range(50)) + ")",
    "unseen",
    *SENTENCES,
]
BROKEN = {
    "(neg (pos good)": "'(' is never closed",
    "(neg good) (pos bad)": "has 2 roots",
    "(neg ())": "a node is empty",
    "": "is empty",
}


@pytest.fixture
def trained(trees):
    return trees("treebank")


def test_nodes_have_classes_by_the_names_of_their_tags(trained):
    dataset, task, _ = trained
    assert dataset.encoders["tree"].tags == ["2", "neg", "pos"] and dataset.classes == ["neg", "pos"]
    assert dataset.description()["fields"][1] == {"name": "parents", "kind": "parents", "node_classes": [-1, 0, 1]}
    assert task.model.node_classes.tolist() == [-1, 0, 1, -1]


def test_the_bundle_predicts_trees_as_torch_does(trained):
    dataset, task, classifier = trained
    rows = np.arange(4)
    fields, lengths = pad(dataset.splits["train"].sequences, rows)
    with torch.no_grad():
        logits = task.model({name: torch.from_numpy(values) for name, values in fields.items()},
                            torch.from_numpy(lengths), lengths)  # fmt: skip
    by_row = [SENTENCES[(number - 1) % 4] for number in dataset.splits["train"].row_numbers[rows]]
    expected = logits.softmax(dim=-1).numpy()
    np.testing.assert_allclose(classifier.predict_proba(by_row), expected, atol=1e-5)


def test_trees_of_any_shape_are_predicted_and_malformed_ones_refused(trained):
    classifier = trained[2]
    together = classifier.predict_proba(UNSEEN)
    assert np.isfinite(together).all()
    alone = np.concatenate([classifier.predict_proba([tree]) for tree in UNSEEN])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    for text, reason in BROKEN.items():
        (result,) = classifier.predict([text])
        assert result["prediction"] is None and reason in result["error"]
    spaced = classifier.predict_proba([SENTENCES[0].replace("(", " ( ").replace(")", " ) ")])
    np.testing.assert_allclose(spaced, classifier.predict_proba(SENTENCES[:1]), atol=1e-6)


def test_a_checkpoint_of_a_tree_model_loads(trained, tmp_path):
    _, task, _ = trained
    state = {"hyper_parameters": dict(task.hparams), "state_dict": task.state_dict(), "global_step": 0, "epoch": 0}
    torch.save(state, tmp_path / "a.ckpt")
    assert load_task(tmp_path / "a.ckpt").model.node_classes.tolist() == [-1, 0, 1, -1]


def test_a_model_of_sequences_reads_trees_as_their_nodes(trained, tmp_path):
    dataset = trained[0]
    write_bundle(make_task(dataset.description()), tmp_path / "bundle", {})
    classifier = Classifier(tmp_path / "bundle", device="cpu")
    assert np.isfinite(classifier.predict_proba(UNSEEN)).all()
    explanation, complete, shorter = (
        classifier.explain([SENTENCES[0]])[0],
        *classifier.predict([SENTENCES[0], SENTENCES[0].replace("bad", "unseen")]),
    )
    label = complete["prediction"]
    odds = [np.log(p) - np.log(1 - p) for p in (complete["probabilities"][label], shorter["probabilities"][label])]
    of_bad = explanation["contributions"][explanation["tokens"].index("bad")]
    assert of_bad == pytest.approx(odds[0] - odds[1], abs=2e-5)
