"""A bundle that is replaced while somebody loads it: predictions are those of the one or of the other."""

import shutil
import sys
from pathlib import Path

import pytest

from seqclf.bundle import manifest, model
from seqclf.bundle.runtime import Classifier
from seqclf.runs import bundle_export
from seqclf.system.atomic_files import exchange


@pytest.fixture
def replaceable(exported, tmp_path):
    """The folder of a bundle, what it predicts, and a function that puts another bundle in its place."""
    folder, other = tmp_path / "bundle", tmp_path / "other"
    shutil.copytree(exported("events").folder, folder)
    shutil.copytree(exported("alerts").folder, other)

    def replace():
        if other.exists():
            folder.rename(tmp_path / "earlier")
            other.rename(folder)

    return folder, replace


def calling_first(function, first):
    def called(*arguments, **options):
        first()
        return function(*arguments, **options)

    return called


@pytest.mark.parametrize("moment", ["load_encoders", "open_session"])
def test_a_bundle_replaced_after_its_check_is_loaded_as_it_was_checked(replaceable, exported, monkeypatch, moment):
    folder, replace = replaceable
    sequences = exported("events").sequences[:5]
    expected = Classifier(folder, device="cpu").predict(sequences)
    monkeypatch.setattr(model, moment, calling_first(getattr(model, moment), replace))
    assert Classifier(folder, device="cpu").predict(sequences) == expected
    assert manifest.read_bundle(folder)[0] == manifest.read_bundle(exported("alerts").folder)[0]


def test_a_bundle_replaced_while_it_is_checked_is_loaded_anew(replaceable, exported, monkeypatch):
    folder, replace = replaceable
    monkeypatch.setattr(manifest, "_read_files", calling_first(manifest._read_files, replace))
    loaded = Classifier(folder, device="cpu")
    assert loaded.manifest == manifest.read_bundle(exported("alerts").folder)[0]


@pytest.mark.skipif(sys.platform != "linux", reason="exchanges names on Linux only")
def test_a_new_bundle_takes_the_place_of_the_earlier_one_in_one_step(tmp_path, monkeypatch):
    new, folder = tmp_path / "new", tmp_path / "bundle"
    for path in (new, folder):
        path.mkdir()
        (path / "name").write_text(path.name)
    monkeypatch.setattr(Path, "replace", lambda *_: pytest.fail("in two steps"))
    bundle_export._replace(new, folder, tmp_path / "earlier")
    assert (folder / "name").read_text() == "new" and (new / "name").read_text() == "bundle"


def test_where_names_cannot_be_exchanged_nothing_is_done_and_the_earlier_bundle_is_moved_away(tmp_path, monkeypatch):
    new, folder, earlier = (tmp_path / name for name in ("new", "bundle", "earlier"))
    new.mkdir()
    folder.mkdir()
    assert not exchange(new, tmp_path / "missing")
    monkeypatch.setattr(sys, "platform", "none")
    assert not exchange(new, folder)
    (new / "name").touch()
    bundle_export._replace(new, folder, earlier)
    assert (folder / "name").exists() and earlier.is_dir() and not new.exists()
