"""Examples of docs/extending.md that no other test runs: a recurrent layer, a part, a head, a network."""

import pytest
import torch
from support.installed_package import documented_example, install_package

from seqclf.models.classifier import EncoderClassifier
from seqclf.models.onnx.checks import TOLERANCE
from seqclf.training.network_checks import check_exportable, padding_error

FIELDS = [{"name": "values", "kind": "number", "width": 1}, {"name": "a.b", "kind": "category", "size": 5}]


def example(heading, name, number):
    namespace = {}
    exec(documented_example(heading, number=number), namespace)
    return namespace[name]


def test_the_network_takes_fields_of_any_name_and_ignores_padding():
    torch.manual_seed(0)
    network = example("A network", "Averages", 1)(FIELDS, num_classes=3, width=4)
    fields = {"values": torch.randn(2, 6, 1), "a.b": torch.randint(5, (2, 6))}
    logits = network(fields, torch.tensor([6, 2]), None)
    fields["values"][1, 2:] = float("nan")
    torch.testing.assert_close(network(fields, torch.tensor([6, 2]), None), logits)
    alone = network({name: values[1:, :2] for name, values in fields.items()}, torch.tensor([2]), None)
    torch.testing.assert_close(alone[0], logits[1])


def test_the_encoder_with_a_recurrent_layer_is_exported_and_skips_padding(monkeypatch, tmp_path):
    code = documented_example("An encoder", number=2)
    install_package(monkeypatch, tmp_path, "stackedpackage", {"encoders.py": code})
    target = "stackedpackage.encoders.StackedLSTM"
    plain = {"embedding_size": 6, "pooling": "last", "token_dropout": 0.0, "number_noise": 0.0}
    network = EncoderClassifier(FIELDS, 3, encoder={"_target_": target}, dropout=0.0, hidden_size=4, layers=2, **plain)
    check_exportable(network, FIELDS, target)
    assert padding_error(network, FIELDS, target) < 0.1 * TOLERANCE


def test_the_encoder_with_a_part_builds_and_exports_it(monkeypatch, tmp_path):
    install_package(monkeypatch, tmp_path, "gatedpackage", {"encoders.py": documented_example("An encoder", number=3)})
    target = "gatedpackage.encoders.GatedTokens"
    gate = {"_target_": "gatedpackage.encoders.Linear", "bias": False}
    plain = {"embedding_size": 6, "pooling": "max", "token_dropout": 0.0, "number_noise": 0.0}
    network = EncoderClassifier(FIELDS, 3, encoder={"_target_": target, "gate": gate}, dropout=0.0, **plain)
    assert network.encoder.gate.linear.bias is None
    check_exportable(network, FIELDS, target)


@pytest.mark.slow
def test_the_head_is_a_part_of_the_default_network(monkeypatch, tmp_path):
    code = documented_example("A head", number=1)
    install_package(monkeypatch, tmp_path, "levelspackage", {"heads.py": code})
    from seqclf.models.auto.config import HeadsConfig
    from seqclf.models.auto.heads_classifier import HeadsClassifier

    levels = {"_target_": "levelspackage.heads.Levels", "dropout": 0.5}
    config = HeadsConfig.of({
        "heads": ["recurrent", levels], "window": 2, "dilations": [1], "closed_form": True, "embedding_size": 4,
        "projection_size": 4, "hidden_size": 4, "convolution": 0, "dropout": 0.1, "feature_dropout": 0.1,
    })  # fmt: skip
    network = HeadsClassifier(FIELDS, 3, config)
    assert network.names == ["recurrent", "Levels"] and network.heads[1].dropout.p == 0.5
    target = levels["_target_"]
    check_exportable(network, FIELDS, target)
    assert padding_error(network, FIELDS, target) < TOLERANCE
