"""Damage of any file of a bundle is noticed before it is used."""

import json
import re
import shutil

import pytest

from seqclf.bundle.manifest import read_manifest, write_manifest
from seqclf.bundle.runtime import Classifier
from seqclf.errors import InputError

FILES = ["MODEL_CARD.md", "model.onnx", "parity.npz", "parity.json", "encoders/shop.json", "encoders/amount.json"]


@pytest.fixture
def copied(packed, tmp_path):
    return shutil.copytree(packed("card").folder, tmp_path / "bundle")


def test_an_untouched_copy_is_read(copied, packed):
    assert read_manifest(copied) == read_manifest(packed("card").folder)


def test_the_manifest_names_every_other_file(copied):
    found = {path.relative_to(copied).as_posix() for path in copied.rglob("*") if path.is_file()}
    assert set(read_manifest(copied)["files"]) == found - {"manifest.json"} == set(FILES)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("place", [0, -1, None])
def test_one_changed_byte_is_noticed(copied, name, place):
    content = bytearray((copied / name).read_bytes())
    content[len(content) // 2 if place is None else place] ^= 1
    (copied / name).write_bytes(content)
    with pytest.raises(InputError, match=rf"bundle=.*: {re.escape(name)} has changed since the export; copy the"):
        Classifier(copied)


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_short_or_gone_is_noticed(copied, name):
    (copied / name).write_bytes((copied / name).read_bytes()[:-1])
    with pytest.raises(InputError, match=rf"{re.escape(name)} has changed"):
        read_manifest(copied)
    (copied / name).unlink()
    with pytest.raises(InputError, match=rf"{re.escape(name)} is missing"):
        read_manifest(copied)


EDITS = {
    "a class renamed": lambda manifest: manifest["classes"].reverse(),
    "a metric improved": lambda manifest: manifest["metrics"].update(test={"recall": 1.0}),
    "a hash replaced": lambda manifest: manifest["files"].update({"model.onnx": "0" * 64}),
    "a file forgotten": lambda manifest: manifest["files"].pop("parity.npz"),
    "a key added": lambda manifest: manifest.update(note="trust me"),
    "the digest gone": lambda manifest: manifest.pop("digest"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edited_manifest_is_noticed(copied, edit):
    path = copied / "manifest.json"
    manifest = json.loads(path.read_text())
    edit(manifest)
    path.write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=r"manifest\.json has changed since the export"):
        read_manifest(copied)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"manifest"', "\x00"])
def test_a_manifest_that_is_none_is_noticed(copied, text):
    (copied / "manifest.json").write_text(text)
    with pytest.raises(InputError, match=r"manifest\.json has changed since the export"):
        read_manifest(copied)


def test_a_manifest_that_is_not_text_is_noticed(copied):
    (copied / "manifest.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"manifest\.json has changed since the export"):
        read_manifest(copied)


def test_a_reformatted_manifest_is_the_same(copied):
    path = copied / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()), indent=4, sort_keys=True))
    read_manifest(copied)


def test_a_folder_that_is_no_bundle_is_refused_by_name(tmp_path):
    with pytest.raises(InputError, match=r"bundle=.*nowhere: no such folder"):
        read_manifest(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"manifest\.json is missing"):
        read_manifest(tmp_path)


def test_a_later_format_is_refused(copied, monkeypatch):
    monkeypatch.setattr("seqclf.bundle.manifest.FORMAT", 99)
    manifest = json.loads((copied / "manifest.json").read_text())
    write_manifest(copied, {key: manifest[key] for key in manifest if key not in ("format", "files", "digest")})
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"of format 99, this seqclf reads 1"):
        read_manifest(copied)
