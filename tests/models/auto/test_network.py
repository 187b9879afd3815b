"""Fit, files and training of a network of heads."""

import numpy as np
import pytest
import torch
from models.auto.conftest import BAG, CATEGORY, MASKED, NUMBER, PLAIN, build, random_split, training_rows
from sklearn.linear_model import Ridge

from seqclf.data.storage.store import SplitWriter, open_split
from seqclf.errors import InputError
from seqclf.models.auto.feature_cache import feature_cache
from seqclf.models.auto.front_end import crossed_sizes
from seqclf.models.auto.head import Head
from seqclf.models.auto.statistics_heads import static_ids


def stored(split, folder):
    with SplitWriter(folder) as writer:
        writer.append(split._replace(original_lengths=None, groups=None, texts=None, group_names=None))
    return open_split(folder)


def test_two_fits_to_the_same_rows_are_equal_to_the_bit():
    fields = [NUMBER]
    states = []
    for _ in range(2):
        torch.manual_seed(0)
        network = build(fields)
        network.fit_to(training_rows(random_split(fields)))
        states.append(network.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


TABLE = {"dilations": [], "heads": ["recurrent", "categories"]}


@pytest.mark.parametrize(
    ("fields", "options"), [([NUMBER], {"window": 2}), ([NUMBER, CATEGORY], {"window": 2}), ([MASKED, BAG], TABLE)]
)
def test_training_with_files_equals_training_without_them_to_the_bit(tmp_path, fields, options):
    """A machine with less memory must train the same weights."""
    split = stored(random_split(fields), tmp_path / "train")
    gradients = []
    for cache in (True, False):
        torch.manual_seed(0)
        network = build(fields, **options, cache=cache)
        rows = training_rows(split)
        network.fit_to(rows)
        outputs = feature_cache(network, rows)
        assert (outputs is not None) == cache
        network.train()
        for batch in rows.batches(max_tokens=200):
            inputs = dict(batch.fields)
            if outputs is not None:
                inputs |= outputs.batch(batch.rows, next(iter(batch.fields.values())).shape[1])
            labels = torch.from_numpy(split.labels[batch.rows])
            torch.manual_seed(5)
            loss = torch.nn.functional.cross_entropy
            network.training_loss(inputs, batch.lengths, batch.lengths.numpy(), labels, loss).total.backward()
        gradients.append(
            {name: weight.grad for name, weight in network.named_parameters()} | dict(network.named_buffers())
        )
    assert [name for name in gradients[0] if not torch.equal(gradients[0][name], gradients[1][name])] == []


def test_files_are_shared_by_networks_of_other_weights_and_not_by_other_kernels(tmp_path):
    split = stored(random_split([NUMBER]), tmp_path / "train")
    rows = training_rows(split)
    for seed, options in ((0, {}), (1, {}), (2, {"hidden_size": 12}), (3, {"kernel_seed": 4})):
        torch.manual_seed(seed)
        network = build([NUMBER], **options)
        network.fit_to(rows)
    assert len(list((tmp_path / "train").glob("outputs-*"))) == 2


def test_the_kernels_head_is_the_ridge_regression_of_scikit_learn(fitted):
    network = build([NUMBER])
    split = random_split([NUMBER], rows=60)
    rows = training_rows(split._replace(labels=np.digitize(split.sequences.lengths, [10, 20])))
    network.fit_to(rows)
    head, features = network.heads[1], []
    order = []
    for batch in rows.batches():
        reading = network.front(batch.fields, batch.lengths)
        features.append(head.features(reading.means.half().float(), reading.statistics, {}))
        order.append(batch.rows)
    x, labels = torch.cat(features).double().numpy(), rows.labels[np.concatenate(order)]
    found = x @ head.weight.double().numpy().T + head.bias.double().numpy()
    targets = 2.0 * np.eye(3)[labels] - 1
    # Up to a factor and a shift, some penalty gives the same scores.
    fits = [Ridge(alpha=alpha).fit(x, targets).predict(x) for alpha in np.logspace(-3, 6, 200)]
    fit = max(fits, key=lambda scores: np.corrcoef(scores[:, 0], found[:, 0])[0, 1])
    assert np.corrcoef(fit[:, 0], found[:, 0])[0, 1] > 0.9999


def test_each_head_learns_from_its_own_loss():
    """The gradient of one head does not depend on the others."""
    fields = [CATEGORY]
    options = {**PLAIN, "dilations": [], "closed_form": False}
    rows = training_rows(random_split(fields))
    (batch,) = rows.batches(max_tokens=10**6)
    labels = torch.from_numpy(rows.labels[batch.rows])
    gradients = {}
    for heads in (["statistics"], ["statistics", "ngrams", "recurrent"]):
        torch.manual_seed(0)
        network = build(fields, **{**options, "heads": heads, "label_smoothing": 0.0}).train()
        network.heads.eval()  # no dropout
        network.fit_to(rows)
        torch.manual_seed(1)
        loss = torch.nn.functional.cross_entropy
        network.training_loss(batch.fields, batch.lengths, batch.lengths.numpy(), labels, loss).total.backward()
        gradients[len(heads)] = network.heads[0].hidden.weight.grad
    torch.testing.assert_close(gradients[1], gradients[3])


def test_validation_rows_weigh_a_head_that_tells_nothing_almost_zero(fitted):
    network = fitted([NUMBER], heads=["recurrent", "kernels", "statistics"])
    split = random_split([NUMBER], rows=60, seed=9)
    labels = np.digitize(split.sequences.lengths, [10, 20])
    with torch.no_grad():
        network.heads[0].output.weight.zero_()  # says the same of each row
        network.heads[0].output.bias.copy_(torch.tensor([3.0, 0.0, -3.0]))
    rows = training_rows(split._replace(labels=labels))
    network.fit_to(rows)
    text = network.fit_to_validation(rows)
    assert text.startswith("recurrent 0.0") and text.endswith("by 60 validation rows")
    assert network.weights[0, 1] > 0.2


def test_the_statistics_head_selects_the_statistics_that_tell_the_class():
    """A penalty of groups of weights leaves statistics without use at almost no weight."""
    fields = [{"name": "value", "kind": "number", "width": 6}]
    random = np.random.default_rng(0)
    split = random_split(fields, rows=300, longest=12)
    for values in split.sequences.fields.values():
        values[:] = random.normal(size=values.shape)
    levels = random.choice([-1.0, 1.0], (300, 2))
    row = np.repeat(np.arange(300), split.sequences.lengths)
    split.sequences.fields["value"][:, :2] += levels[row]
    rows = training_rows(split._replace(labels=(levels[:, 0] * levels[:, 1] > 0).astype(np.int64)))  # an exclusive or
    options = {**PLAIN, "dilations": [], "heads": ["statistics"], "label_smoothing": 0.0}
    torch.manual_seed(0)
    network = build(fields, **options)
    network.fit_to(rows)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    (batch,) = rows.batches(max_tokens=10**6)
    labels = torch.from_numpy(rows.labels[batch.rows])
    for _ in range(400):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy
        network.training_loss(batch.fields, batch.lengths, batch.lengths.numpy(), labels, loss).total.backward()
        optimizer.step()
    head = network.heads[0]
    weights = torch.cat([head.hidden.weight[:, :37, None], head.hidden.weight[:, 37:].unflatten(1, (37, 8))], dim=2)
    norms = weights.square().sum((0, 2)).sqrt().detach()
    others = [number for number in range(36) if number % 6 >= 2]  # statistics of the other channels
    assert norms[:2].min() > 4 * norms[others].max()  # the means of the first two channels


def test_numbers_by_category_are_sums_and_highest_values_of_the_tokens_with_an_id():
    fields = [{**MASKED, "width": 6}, CATEGORY]
    front = build(fields, dilations=[], heads=["recurrent", "categories"]).front
    random, lengths = np.random.default_rng(0), np.array([9, 1, 6])
    values = random.normal(size=(3, 12, 6)).astype(np.float32)
    values[:, :, 2:4] = random.random((3, 12, 2)) < 0.6
    ids = random.integers(0, 4, (3, 12))
    tensors = {"vital": torch.from_numpy(values), "token": torch.from_numpy(ids)}
    found = front.statistics(tensors, torch.from_numpy(lengths))[:, front.plain_size :].unflatten(1, (2, 2, 12)).numpy()
    for row, time in enumerate(lengths):
        for channel in range(2):
            is_present = values[row, :time, 2 + channel] > 0
            present = values[row, :time, channel][is_present]
            for number in range(12):
                of_id = present[ids[row, :time][is_present] == number]
                total = of_id.sum()
                assert found[row, 0, channel, number] == pytest.approx(np.sign(total) * np.log1p(abs(total)), abs=1e-6)
                highest = of_id.max() if len(of_id) else present.min() if len(present) else 0
                assert found[row, 1, channel, number] == pytest.approx(highest, abs=1e-6)


def test_the_most_frequent_ids_are_told_by_category():
    wide = [{**NUMBER, "width": 20}, {**CATEGORY, "size": 60}, {**CATEGORY, "name": "other", "size": 3}]
    assert crossed_sizes(wide) == (8, [16, 3])
    assert crossed_sizes([NUMBER]) == (3, []) and crossed_sizes([CATEGORY]) == (0, [0])


def test_linear_reads_no_kernels(fitted):
    networks = [fitted([NUMBER], heads=["recurrent", name]) for name in ("linear", "kernels")]
    sizes = [network.heads[1].weight.shape[1] for network in networks]
    assert sizes == [networks[0].front.statistic_size, networks[0].front.statistic_size + networks[0].front.mean_size]


def test_the_linear_head_learns_an_effect_of_each_id_of_a_large_static_field():
    shop = {"name": "shop", "kind": "category", "size": 90, "static": True}
    fields = [NUMBER, shop]
    split = random_split(fields, rows=400)
    ids = split.sequences.static["shop"] % 30
    split.sequences.static["shop"][:] = ids
    network = build(fields, heads=["recurrent", "linear"], dilations=[])
    rows = training_rows(split._replace(labels=ids % 3))
    network.fit_to(rows)
    (batch,) = rows.batches(np.arange(60))
    reading = network.front(batch.fields, batch.lengths)
    logits = network.heads[1](batch.fields, batch.lengths, None, reading)
    assert (logits.argmax(1).numpy() == ids[batch.rows] % 3).mean() > 0.95
    others = [
        network.heads[1]({**batch.fields, "shop": torch.full_like(batch.fields["shop"], value)}, None, None, reading)
        for value in (60, 5000)  # an id without a row, and one beyond those that are told apart
    ]
    torch.testing.assert_close(*others)
    assert static_ids([shop, {**shop, "size": 50}, {**shop, "name": "user", "size": 10**6}]) == {
        "shop": 90,
        "user": 2000,
    }


class Own(Head):
    def __init__(self, front, fields, num_classes, factor: float = 1.0):
        super().__init__(front, fields, num_classes)
        self.linear = torch.nn.Linear(front.statistic_size, num_classes)

    def forward(self, fields, lengths, host_lengths, reading):
        return self.linear(reading.statistics)


@pytest.mark.parametrize("members", [1, 2])
def test_each_head_has_logits_of_its_own_and_the_recurrent_head_is_the_last(fitted, members):
    own = {"_target_": f"{Own.__module__}.Own"}
    network = fitted([NUMBER], heads=["recurrent", own, "kernels", {**own, "factor": 2.0}], members=members)
    (batch,) = training_rows(random_split([NUMBER], rows=5)).batches()
    with torch.no_grad():
        parts = network.outputs(batch.fields, batch.lengths, batch.lengths.numpy())
    assert list(parts) == ["logits", "kernels", "Own", "Own 2", "recurrent"]


WORDS = {**CATEGORY, "size": 90}


@pytest.mark.parametrize(
    ("fields", "heads", "named"),
    [
        ([NUMBER], ["recurrent", "ngrams"], "model.heads: has ngrams"),
        ([CATEGORY], ["recurrent", "categories"], "model.heads: has categories"),
        ([WORDS], ["recurrent", "linear"], "model.heads: has a head of statistics"),
        ([NUMBER], ["kernels"], "model.heads: has no head that is trained"),
    ],
)
def test_heads_that_cannot_be_built_are_one_clear_line(fields, heads, named):
    with pytest.raises(InputError) as raised:
        build(fields, dilations=[], heads=heads)
    assert str(raised.value).startswith(named) and "\n" not in str(raised.value)


def test_large_groups_are_sampled_in_the_ridge_fit(monkeypatch):
    from seqclf.models.auto import statistics_heads

    fitted_to = []
    fit_ridge = statistics_heads.fit_ridge
    monkeypatch.setattr("seqclf.models.auto.ridge.MAX_GROUP_WORK", 200 * 18)
    monkeypatch.setattr(statistics_heads, "fit_ridge", lambda *a: fitted_to.append(a) or fit_ridge(*a))
    split = random_split([NUMBER], rows=60)._replace(groups=np.repeat([0, 1, 2], [50, 5, 5]))
    build([NUMBER], dilations=[], heads=["recurrent", "linear"]).fit_to(training_rows(split))
    features, labels, _, groups, _ = fitted_to[0]
    assert np.bincount(groups).max() < 50 and (np.bincount(groups)[1:] == 5).all()
    assert len(features) == len(labels) == len(groups)


def test_numbers_and_ids_have_like_shares_of_the_first_values():
    """A number is one input and an id many; without kernels, both must be heard from the first step on."""
    options = {**PLAIN, "dilations": [], "heads": ["recurrent"], "embedding_size": 64, "projection_size": 200}
    weight = build([{**NUMBER, "width": 1}, CATEGORY], **options).heads[0].project.weight.detach()
    of_number, of_ids = weight[:, 0].square().mean(), weight[:, 1:].square().sum(1).mean()
    assert float(of_number / of_ids) == pytest.approx(1, rel=0.2)
