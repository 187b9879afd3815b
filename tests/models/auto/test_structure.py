"""Changes of the structure of a network of heads in training."""

import copy

import pytest
import torch
from models.auto.conftest import CATEGORY, NUMBER, PLAIN, build, random_split, same_buffers, training_rows

from seqclf.models.change_network import change_network, changed_config

FIELDS = [NUMBER, CATEGORY]
CONFIG = {
    "_target_": "seqclf.models.auto.heads_classifier.HeadsClassifier",
    **PLAIN,
    "cell": "lstm",
    "layers": 1,
    "residual_layers": 0,
    "bidirectional": True,
    "members": 1,
}


@pytest.mark.parametrize("changes", [{"hidden_size": 16}, {"layers": 3}, {"hidden_size": 24, "layers": 2}])
@torch.inference_mode()
def test_wider_and_deeper_recurrent_heads_have_the_same_logits(fitted, changes):
    network = fitted(FIELDS).double()
    network.heads[0].pooled_norm.mean.normal_()
    network.heads[0].pooled_norm.variance.uniform_(0.5, 2)
    (batch,) = training_rows(random_split(FIELDS, rows=9, seed=3)).batches()
    fields = {name: values.double() if values.is_floating_point() else values for name, values in batch.fields.items()}
    inputs = fields, batch.lengths, batch.lengths.numpy()
    before = network.head_logits(*inputs)
    config = changed_config(CONFIG, changes, "structure[0]")
    changed = change_network(copy.deepcopy(network), config, FIELDS, 3, seed=0)
    assert changed.preserves
    torch.testing.assert_close(changed.network.head_logits(*inputs), before, rtol=0, atol=1e-11)
    # What was fitted to the training rows is carried along, and not fitted again.
    assert same_buffers(changed.network.front, network.front)
    assert torch.equal(changed.network.heads[1].weight, network.heads[1].weight)


def test_the_added_units_learn():
    network = build(FIELDS)
    rows = training_rows(random_split(FIELDS))
    network.fit_to(rows)
    changed = change_network(network, changed_config(CONFIG, {"hidden_size": 16}, "s"), FIELDS, 3, seed=0).network
    (batch,) = rows.batches(max_tokens=10**6)
    labels = torch.from_numpy(rows.labels[batch.rows])
    loss = torch.nn.functional.cross_entropy
    changed.training_loss(batch.fields, batch.lengths, batch.lengths.numpy(), labels, loss).total.backward()
    assert changed.heads[0].recurrent.forward_layers[0].weight_hh_l0.grad[8:16].abs().max() > 0
