"""Embedding of the fields of a token, and the noise of training."""

import numpy as np
import pytest
import torch

from seqclf.models.embedding import BagEmbedding, FieldEmbedding

FIELDS = [{"name": "token", "kind": "category", "size": 12}, {"name": "value", "kind": "number", "width": 3}]


def embedding(**noise):
    return FieldEmbedding(FIELDS, embedding_size=6, **{"token_dropout": 0.0, "number_noise": 0.0, **noise})


def fields():
    return {"token": torch.randint(1, 12, (40, 50)), "value": torch.randn(40, 50, 3)}


def test_each_field_has_its_own_layer():
    module, values = embedding(), fields()
    embedded = module(values)
    assert embedded.shape == (40, 50, 12) and module.size == 12
    table, projection = module.layers[0], module.layers[1]
    expected = torch.cat([table.weight[values["token"]], values["value"] @ projection.weight.T + projection.bias], -1)
    torch.testing.assert_close(embedded, expected)


def test_fields_may_have_any_name():
    names = ["items", "values", "keys", "type", "forward", "training", "a.b", "", "self", "layers", "names"]
    spec = [{"name": name, "kind": "number", "width": 1} for name in names]
    module = FieldEmbedding(spec, embedding_size=2, token_dropout=0.0, number_noise=0.0)
    values = {name: torch.randn(3, 4, 1) for name in names}
    for index, name in enumerate(names):
        part = module(values)[..., 2 * index : 2 * index + 2]
        torch.testing.assert_close(part, module.layers[index](values[name]))


def test_token_dropout_reads_a_share_of_tokens_as_unknown():
    module, values = embedding(token_dropout=0.3), fields()
    embedded = module.train()(values)[..., :6]
    unknown = (embedded == module.layers[0].weight[0]).all(dim=-1)
    kept = (embedded == module.layers[0].weight[values["token"]]).all(dim=-1)
    assert (unknown ^ kept).all(), "a token is either kept or unknown"
    assert abs(unknown.float().mean() - 0.3) < 0.05
    assert torch.equal(values["token"], values["token"].clamp(min=1)), "the batch itself is unchanged"


def test_number_noise_is_added_to_scaled_channels_only():
    field = {"name": "value", "kind": "number", "width": 3, "scaled": [True, False, True]}
    module = FieldEmbedding([field], embedding_size=3, token_dropout=0.0, number_noise=0.5).train()
    with torch.no_grad():
        module.layers[0].weight.copy_(torch.eye(3))
        module.layers[0].bias.zero_()
    values = fields()
    noise = (module(values) - values["value"]).flatten(0, 1)
    assert (noise[:, 1] == 0).all(), "noise would drown a mask or an unscaled number"
    torch.testing.assert_close(noise[:, [0, 2]].std(dim=0), torch.full((2,), 0.5), atol=0.03, rtol=0)
    assert noise.mean(dim=0).abs().max() < 0.03


def test_channels_that_are_constant_in_each_sequence_start_with_small_weights():
    """The other channels start with the range of weights that a field without constant channels has."""
    torch.manual_seed(0)
    field = {"name": "value", "kind": "number", "width": 6, "constant": [False] * 2 + [True] * 4}
    size = {"embedding_size": 4000, "token_dropout": 0.0, "number_noise": 0.0}
    weight = FieldEmbedding([field], **size).layers[0].weight.detach()
    alone = FieldEmbedding([{"name": "value", "kind": "number", "width": 2}], **size).layers[0].weight.detach()
    assert float(weight[:, :2].std()) == pytest.approx(float(alone.std()), rel=0.05)
    assert float(weight[:, 2:].std()) == pytest.approx(0.1 * float(alone.std()), rel=0.05)
    with torch.device("meta"):  # checkpoints are checked against networks without memory
        assert FieldEmbedding([field], **size).layers[0].weight.is_meta


@pytest.mark.parametrize("combine", ["mean", "sum", "max"])
def test_a_bag_combines_its_values_and_is_zero_without_any(combine):
    bag = BagEmbedding(9, 4, combine, dropout=0.0)
    ids = torch.tensor([[[3, 5, 5], [2, 0, 0]], [[0, 0, 0], [8, 1, 0]]])
    combined = bag(ids)
    for row, token in np.ndindex(2, 2):
        vectors = bag.weight[ids[row, token][ids[row, token] > 0]]
        expected = torch.zeros(4)
        if len(vectors):
            expected = vectors.amax(dim=0) if combine == "max" else getattr(vectors, combine)(dim=0)
        torch.testing.assert_close(combined[row, token], expected)


def test_dropped_values_of_a_bag_are_read_as_unknown_and_empty_slots_stay_empty():
    bag = BagEmbedding(9, 4, "sum", dropout=0.5).train()
    torch.manual_seed(0)
    ids = torch.full((1, 2000, 2), 5)
    ids[..., 1] = 0
    embedded = bag(ids)[0]
    unknown = (embedded == bag.weight[1]).all(dim=-1)
    kept = (embedded == bag.weight[5]).all(dim=-1)
    assert bool((unknown | kept).all()) and 0.45 < float(unknown.float().mean()) < 0.55
    assert int(ids[..., 0].min()) == 5, "the batch itself stays as it is"
