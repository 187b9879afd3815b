"""Integrity of a bundle: damage of any file is detected before it is used."""

import json
import re
from pathlib import Path

import pytest

from seqclf.bundle.manifest import FORMAT, read_bundle, write_manifest
from seqclf.bundle.runtime import Classifier
from seqclf.errors import InputError

FILES = ["MODEL_CARD.md", "model.onnx", "parity.npz", "parity.json", "encoders/shop.json", "encoders/amount.json"]


@pytest.fixture
def bundle(copy_bundle):
    return copy_bundle("card")


def test_the_manifest_has_a_hash_of_every_other_file(bundle):
    on_disk = {path.relative_to(bundle).as_posix() for path in bundle.rglob("*") if path.is_file()}
    assert set(read_bundle(bundle)[0]["files"]) == on_disk - {"manifest.json"} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_one_changed_byte_is_detected(bundle, name):
    content = bytearray((bundle / name).read_bytes())
    content[len(content) // 2] ^= 1
    (bundle / name).write_bytes(content)
    with pytest.raises(InputError, match=rf"bundle=.*: {re.escape(name)} has changed since the export; copy the"):
        Classifier(bundle)


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_or_missing_file_is_detected(bundle, name):
    (bundle / name).write_bytes((bundle / name).read_bytes()[:-1])
    with pytest.raises(InputError, match=rf"{re.escape(name)} has changed"):
        read_bundle(bundle)
    (bundle / name).unlink()
    with pytest.raises(InputError, match=rf"{re.escape(name)} is missing"):
        read_bundle(bundle)


EDITS = {
    "classes reordered": lambda manifest: manifest["classes"].reverse(),
    "a metric improved": lambda manifest: manifest["metrics"].update(test={"recall": 1.0}),
    "a hash replaced": lambda manifest: manifest["files"].update({"model.onnx": "0" * 64}),
    "a file removed": lambda manifest: manifest["files"].pop("parity.npz"),
    "a key added": lambda manifest: manifest.update(note="trust me"),
    "the digest removed": lambda manifest: manifest.pop("digest"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edited_manifest_is_detected(bundle, edit):
    path = bundle / "manifest.json"
    manifest = json.loads(path.read_text())
    edit(manifest)
    path.write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=r"manifest\.json has changed since the export"):
        read_bundle(bundle)


def test_a_manifest_of_a_later_format_is_refused(bundle, monkeypatch):
    monkeypatch.setattr("seqclf.bundle.manifest.FORMAT", 99)
    manifest = json.loads((bundle / "manifest.json").read_text())
    write_manifest(bundle, {key: manifest[key] for key in manifest if key not in ("format", "files", "digest")})
    monkeypatch.undo()
    with pytest.raises(InputError, match=rf"of format 99, this seqclf reads {FORMAT}"):
        read_bundle(bundle)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("bundle/model.onnx", "is a file; give the folder that holds manifest.json"),
        ("bundel", "no such folder; did you mean 'bundle'?"),
        (".", "manifest.json is missing; give the folder that holds it, such as RUN/bundle"),
    ],
)
def test_a_path_that_is_no_bundle_is_explained(tmp_path, monkeypatch, name, line):
    monkeypatch.chdir(tmp_path)
    Path("bundle").mkdir()
    Path("bundle/model.onnx").touch()
    with pytest.raises(InputError) as refused:
        read_bundle(Path(name))
    assert str(refused.value) == f"bundle={name}: {line}"
