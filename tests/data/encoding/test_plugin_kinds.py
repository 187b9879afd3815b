"""A field kind of another package: the example of docs/extending.md, from its cells to a prediction."""

import json

import numpy as np
import pyarrow as pa
import pytest
from support.plugin_package import documented_example, install_package
from support.table_files import write
from support.untrained_task import data_options, make_task

from seqclf.bundle.runtime import Classifier
from seqclf.data.encoding import registry
from seqclf.data.encoding.check_encoders import check_encoders
from seqclf.data.prepare import prepare
from seqclf.data.schema.schema import Field
from seqclf.errors import InputError
from seqclf.runs.export import write_bundle

POINTS = documented_example("A field kind")
GROUP = {"seqclf.field_kinds": {"point": "points:PointEncoder"}}


@pytest.fixture(autouse=True)
def forget_plugins(monkeypatch):
    monkeypatch.setattr(registry, "_plugins", {})


@pytest.fixture
def install(monkeypatch, tmp_path):
    def run(code=POINTS, entry_points=GROUP):
        return install_package(monkeypatch, tmp_path / "site", "mypackage", {"points.py": code}, entry_points)

    return run


def routes(seed, count=24):
    generator = np.random.default_rng(seed)
    return [
        np.stack([generator.uniform(-80, 80, length), generator.uniform(-180, 180, length)], axis=1).tolist()
        for length in generator.integers(1, 9, count)
    ]


def test_the_kind_keeps_the_promises_of_the_interface(install):
    install()
    for origin in ("earth", "mean"):
        field = Field("where", "point", ("where",), width=2, options={"origin": origin})
        columns = pa.record_batch({"where": pa.array(routes(0), pa.list_(pa.list_(pa.float64())))})
        (encoder,) = check_encoders([field], columns).values()
        assert encoder.decode(encoder.encode(columns.slice(0, 1)).arrays)[0] == "{:.2f}°, {:.2f}°".format(
            *routes(0)[0][0]
        )


@pytest.mark.parametrize("events", [False, True])
def test_rows_are_prepared_exported_and_predicted(events, install, tmp_path):
    install()
    rows, labels = routes(1), ["a", "b"] * 12
    columns = {"where": rows, "label": labels}
    options = {"fields": {"where": {"kind": "point", "origin": "mean"}}}
    if events:
        flat = [(row, *point) for row, points in enumerate(rows) for point in points]
        cards, latitudes, longitudes = map(list, zip(*flat, strict=True))
        columns = {"card": cards, "lat": latitudes, "lon": longitudes, "label": [labels[row] for row in cards]}
        options["fields"]["where"]["columns"] = ["lat", "lon"]
        options["group_by"] = "card"
    path = write(tmp_path / "train.jsonl", columns)
    dataset = prepare(data_options(tmp_path / "cache", train=str(path), **options))
    assert dataset.splits["train"].sequences.fields["where"].shape[1] == 3
    task = make_task(json.loads(json.dumps(dataset.description())))
    write_bundle(task, tmp_path / "bundle", {})
    classifier = Classifier(tmp_path / "bundle", device="cpu", threads=1)
    good, bad = classifier.predict([rows[0], [[91.0, 0.0]]])
    assert good["error"] is None and "latitude beyond 90" in bad["error"]


def test_rows_beyond_the_globe_are_refused(install, tmp_path):
    install()
    columns = {"where": [*routes(2, 29), [[0.0, 0.0], [0.0, 361.0]]], "label": ["a", "b"] * 15}
    path = write(tmp_path / "train.jsonl", columns)
    dataset = prepare(data_options(tmp_path / "cache", train=str(path), fields={"where": "point"}))
    assert sum(counts.refused for counts in dataset.report.values()) == 1


def test_changed_code_of_the_kind_makes_prepared_data_stale(install, tmp_path, monkeypatch):
    path = write(tmp_path / "train.jsonl", {"where": routes(3), "label": ["a", "b"] * 12})
    options = data_options(tmp_path / "cache", train=str(path), fields={"where": "point"})
    install()
    first = prepare(options)
    assert prepare(options).reused
    monkeypatch.setattr(registry, "_plugins", {})
    install(POINTS.replace("- self.center", "- self.center + 1.0"))
    second = prepare(options)
    assert not second.reused and second.digest != first.digest


@pytest.mark.parametrize(
    ("code", "entry_points", "message"),
    [
        (POINTS, {}, "data.fields.where: kind 'point' is unknown"),
        (POINTS, {"seqclf.field_kinds": {"pint": "points:PointEncoder"}}, "did you mean 'pint'?"),
        ("import nowhere", GROUP, r"mypackage.points:PointEncoder of mypackage 1.0 cannot be imported"),
        ("PointEncoder = int", GROUP, "is no subclass of"),
    ],
)
def test_a_kind_that_cannot_be_used_is_one_line(code, entry_points, message, install, tmp_path):
    install(code, entry_points)
    path = write(tmp_path / "train.jsonl", {"where": routes(4), "label": ["a", "b"] * 12})
    with pytest.raises(InputError, match=message):
        prepare(data_options(tmp_path / "cache", train=str(path), fields={"where": "point"}))


def test_a_bundle_names_the_kind_that_is_not_installed(install, tmp_path, monkeypatch):
    install()
    path = write(tmp_path / "train.jsonl", {"where": routes(5), "label": ["a", "b"] * 12})
    dataset = prepare(data_options(tmp_path / "cache", train=str(path), fields={"where": "point"}))
    write_bundle(make_task(dataset.description()), tmp_path / "bundle", {})
    monkeypatch.setattr(registry, "_plugins", {})
    install(POINTS, {})
    with pytest.raises(InputError, match=r"kind 'point' is unknown; it must be .* other packages must be installed"):
        Classifier(tmp_path / "bundle", device="cpu", threads=1)


def test_kinds_of_this_package_cannot_be_replaced(install):
    install(POINTS, {"seqclf.field_kinds": {"number": "points:PointEncoder"}})
    assert registry.encoder_class("number").__name__ == "NumberEncoder"
