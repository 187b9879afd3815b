"""Fields of a step side by side, and the noise that only training adds."""

import torch

from seqclf.models.embedding import UNKNOWN, StepEmbedding

FIELDS = [{"name": "token", "kind": "category", "size": 12}, {"name": "value", "kind": "number", "width": 3}]


def embedding(**noise):
    return StepEmbedding(FIELDS, embedding_size=6, **{"token_dropout": 0.0, "number_noise": 0.0, **noise})


def fields():
    return {"token": torch.randint(1, 12, (40, 50)), "value": torch.randn(40, 50, 3)}


def test_each_field_is_embedded_by_itself():
    made, given = embedding(), fields()
    found = made(given)
    assert found.shape == (40, 50, 12) and made.size == 12
    table, projection = made.layers[0], made.layers[1]
    expected = torch.cat([table.weight[given["token"]], given["value"] @ projection.weight.T + projection.bias], -1)
    torch.testing.assert_close(found, expected)


def test_one_field_stands_alone():
    made = StepEmbedding(FIELDS[:1], embedding_size=6, token_dropout=0.0, number_noise=0.0)
    assert made(fields()).shape == (40, 50, 6) and made.size == 6


def test_the_order_of_given_fields_does_not_matter():
    made, given = embedding(), fields()
    assert torch.equal(made(given), made(dict(reversed(given.items()))))


def test_the_names_of_fields_are_free():
    names = ["items", "values", "keys", "type", "forward", "training", "a.b", "", "self", "layers", "names"]
    spec = [{"name": name, "kind": "number", "width": 1} for name in names]
    made = StepEmbedding(spec, embedding_size=2, token_dropout=0.0, number_noise=0.0)
    given = {name: torch.randn(3, 4, 1) for name in names}
    for place, name in enumerate(names):
        part = made(given)[..., 2 * place : 2 * place + 2]
        torch.testing.assert_close(part, made.layers[place](given[name]))


def test_noise_is_of_training_only():
    made, given = embedding(token_dropout=0.5, number_noise=1.0), fields()
    made.eval()
    assert torch.equal(made(given), embedding_without_noise(made)(given))
    made.train()
    assert not torch.equal(made(given), made(given))


def embedding_without_noise(made):
    quiet = embedding()
    quiet.load_state_dict(made.state_dict())
    return quiet


def test_token_dropout_reads_its_share_as_unknown():
    made, given = embedding(token_dropout=0.3), fields()
    found = made.train()(given)[..., :6]
    unknown = (found == made.layers[0].weight[UNKNOWN]).all(dim=-1)
    kept = (found == made.layers[0].weight[given["token"]]).all(dim=-1)
    assert (unknown ^ kept).all(), "a token is either kept or unknown"
    assert abs(unknown.float().mean() - 0.3) < 0.05
    assert torch.equal(given["token"], given["token"].clamp(min=1)), "the batch itself is left as it was"


def test_number_noise_has_its_deviation_on_scaled_channels_only():
    field = {"name": "value", "kind": "number", "width": 3, "scaled": [True, False, True]}
    made = StepEmbedding([field], embedding_size=3, token_dropout=0.0, number_noise=0.5).train()
    with torch.no_grad():
        made.layers[0].weight.copy_(torch.eye(3))
        made.layers[0].bias.zero_()
    given = fields()
    noise = (made(given) - given["value"]).flatten(0, 1)
    assert (noise[:, 1] == 0).all(), "a mask or a number left as it is would be drowned"
    torch.testing.assert_close(noise[:, [0, 2]].std(dim=0), torch.full((2,), 0.5), atol=0.03, rtol=0)
    assert noise.mean(dim=0).abs().max() < 0.03
