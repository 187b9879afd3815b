"""`manifest.json` of a bundle: schema, labels, decision, versions, metrics, and hashes that reveal damaged files.

It has the SHA-256 hash of every other file and a digest of itself. It may come from an untrusted source, so the types
of its values are checked before these are used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path, PurePosixPath
from typing import Any

from seqclf.bundle.step_model import STATE, STEP
from seqclf.data.encoding.declaration import stored_schema
from seqclf.data.schema.schema import typed_labels
from seqclf.data.storage.dataset import READER
from seqclf.errors import InputError
from seqclf.evaluation.decision import BASES, HELD_OUT, RULES, Decision, Guarantee
from seqclf.evaluation.thresholds import ROWS, STATEMENTS, SURE
from seqclf.models.onnx.checks import EMBEDDING
from seqclf.settings.typed_text import similar_file
from seqclf.system.json_result import JsonObject
from seqclf.system.state_validation import COUNT, POSITIVE, SHARE, SIZE, Each, error_context, one_of, read_json, require

# 1 had other key names for tokens in the schema, 2 no data.query, 3 no outputs, 4 memory for reference, 5 no embedding
FORMAT = 6
NAME = "manifest.json"
MODEL = "model.onnx"
COPY_AGAIN = "copy the bundle again, or export it anew"

TARGET = {
    "rule": one_of(*RULES),
    "label": str,
    "target": POSITIVE,
    "confidence": (SHARE, None),
    "statement": one_of(*STATEMENTS),
    "backed": bool,
    "rows": COUNT,
    "needed": (COUNT, None),
    "basis": one_of(*BASES),
    "approximate": (bool, None),
    "conflict": (bool, None),
    "unit": (one_of("group", "sequence"), None),
    "takes": (SHARE, None),
    "reached": (SHARE, None),
    "beyond_lowest": (COUNT, None),
}
DECISION = {
    "rule": one_of("argmax", "threshold", *RULES),
    "positive": (str, None),
    "threshold": (SHARE, None),
    "offsets": ([float], None),
    "temperature": POSITIVE,
    "targets": [dict],
}
SHAPE = {
    "classes": [str],
    "positive": (str, None),
    "decision": DECISION,
    "schema": dict,
    "reader": READER,
    "inputs": Each([(str, int)]),
    "outputs": [str],
    "model": dict,
    "data": {"digest": str, "rows": Each(int)},
    "metrics": Each(dict),
    "versions": Each(str),
}
# Optional keys of a manifest. `step`: the bundle has a model that reads chunks. `recipe`: settings of the training (see
# `TrainConfig.recipe`). `embedding`: size of each part of the embedding, in its order.
OPTIONAL = {
    EMBEDDING: Each(SIZE),
    "step": {"states": [STATE], "outputs": [str]},
    "recipe": {"data": dict, "trainer": dict, "seed": int},
}


def encoder_file(field: str) -> str:
    """Return the path of a field's encoder in the bundle, as the name is an identifier."""
    return f"encoders/{field}.json"


def write_manifest(folder: Path, content: JsonObject) -> None:
    """Write `manifest.json` into `folder`, with `content` and the hash of every other file in the folder."""
    # The names are sorted, so that the same files give the same manifest on every file system.
    names = sorted(_file_names(folder) - {NAME})
    files = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    manifest = {"format": FORMAT, **content, "files": files}
    manifest["digest"] = _digest(manifest)
    (folder / NAME).write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_bundle(folder: Path) -> tuple[JsonObject, dict[str, bytes]]:
    """Return the manifest of a bundle, and a dict path → bytes of the files that prediction needs.

    All are of one bundle, even if another process replaces it. Raises InputError if a file is missing or was changed.
    """
    manifest = _read_description(folder)
    try:
        return manifest, _read_files(folder, manifest, _names_read(manifest))
    except InputError:
        latest = _read_description(folder)
        if latest["digest"] == manifest["digest"]:
            raise
    return latest, _read_files(folder, latest, _names_read(latest))  # another process has replaced the bundle


def verify_files(folder: Path) -> JsonObject:
    """Return the manifest of a bundle, whose digest and hashes of files are right. Its values may be wrong."""
    manifest = _read_signed(folder)
    _read_files(folder, manifest, [])
    return manifest


def _read_description(folder: Path) -> JsonObject:
    manifest = _read_signed(folder)
    with error_context(f"bundle={folder}: {NAME}", "export the bundle anew"):
        # The digest shows only that nobody changed the manifest. The manifest may still be from an untrusted source.
        check_content(manifest)
        for name in _names_read(manifest):
            if name not in manifest["files"]:
                raise InputError("files", f"no hash of {name}")
    return manifest


def _read_signed(folder: Path) -> JsonObject:
    if not folder.is_dir():
        hint = similar_file(str(folder)) or f"give the folder that holds {NAME}"
        raise InputError(f"bundle={folder}", "is a file" if folder.exists() else "no such folder", hint)
    file = folder / NAME
    if not file.is_file():
        raise InputError(f"bundle={folder}", f"{NAME} is missing", "give the folder that holds it, such as RUN/bundle")
    try:
        # The digest is checked before the values, so that an edited manifest is reported as changed.
        manifest: JsonObject = read_json(file)
        intact = manifest.get("digest") == _digest(manifest)
    except (OSError, ValueError, AttributeError):  # JSON that is too deeply nested, or not an object
        intact = False
    if not intact:
        raise InputError(f"bundle={folder}", f"{NAME} has changed since the export", COPY_AGAIN)
    if (format := manifest.get("format")) != FORMAT:
        raise InputError(f"bundle={folder}", f"of format {format}, this seqclf reads {FORMAT}", "train and export anew")
    with error_context(f"bundle={folder}: {NAME}", "export the bundle anew"):
        require(manifest, {"files": Each(str)})
        for name in manifest["files"]:
            # A path outside the bundle could name a private file, or a device that can be read without end.
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or "\x00" in name or not path.parts:
                raise InputError(f"files.{name}", "not a path in the bundle")
    return manifest


def _read_files(folder: Path, manifest: JsonObject, read: Collection[str]) -> dict[str, bytes]:
    """Compare the hash of every file with the manifest. Return the content of the files `read`."""
    if unlisted := sorted(_file_names(folder) - {NAME, *manifest["files"]}):
        remedy = "move it out of the bundle, or export it anew"
        raise InputError(f"bundle={folder}", f"{NAME} does not list {unlisted[0]}", remedy)
    contents = {}
    for name, expected in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            raise InputError(f"bundle={folder}", f"{name} is missing", COPY_AGAIN)
        try:
            with path.open("rb") as file:
                if name in read:  # a second read could give other bytes than those with the hash
                    contents[name] = file.read()
                    actual = hashlib.sha256(contents[name]).hexdigest()
                else:
                    actual = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise InputError(f"bundle={folder}", f"{name} cannot be read ({error.strerror})", COPY_AGAIN) from None
        if actual != expected:
            raise InputError(f"bundle={folder}", f"{name} has changed since the export", COPY_AGAIN)
    return contents


def check_content(manifest: Mapping[str, Any]) -> None:
    """Raise InputError if the manifest lacks a key that prediction needs, or if two keys contradict each other."""
    require(manifest, SHAPE | {key: shape for key, shape in OPTIONAL.items() if key in manifest})
    check_decision(manifest)
    typed_labels(manifest["classes"], stored_schema(manifest["schema"]).label_type)


def check_decision(manifest: Mapping[str, Any]) -> None:
    """Raise InputError if the decision has a wrong value, or names a label that is no class."""
    require(manifest, {key: SHAPE[key] for key in ("classes", "positive", "decision")})
    classes, decision = manifest["classes"], manifest["decision"]
    for number, target in enumerate(decision["targets"]):
        default = {"statement": SURE if target.get("backed") else ROWS, "basis": HELD_OUT}
        is_share, target = target.get("rule") != "cost", {**default, **dict.fromkeys(Guarantee.OMIT_NONE), **target}
        shape = TARGET | ({"target": SHARE} if is_share else {})
        shape |= {"confidence": SHARE} if is_share and target["statement"] == SURE else {}
        require(target, shape, f"decision.targets[{number}]")
        if target["label"] not in classes:
            raise InputError("decision.targets", "must have a label of the classes each")
    labels = [None, *classes] if len(classes) == 2 else [None]
    positive, threshold, offsets = decision["positive"], decision["threshold"], decision["offsets"]
    index = decision.get("positive_index")
    is_index = type(index) is int and index in range(len(classes)) and classes[index] == positive
    is_set = threshold is not None and index is not None
    rules = {
        "classes": (bool(classes) and len(set(classes)) == len(classes), "must be different texts"),
        "positive": (manifest["positive"] in labels, "must be one of two classes"),
        "decision": (set(decision) <= {entry.name for entry in fields(Decision)}, "has an unknown key"),
        "decision.positive": (positive in labels, "must be one of two classes"),
        "decision.offsets": (offsets is None or len(offsets) == len(classes), "must be a number for each class"),
        "decision.positive_index": (index is None or is_index, "must be the number of the class decision.positive"),
        "decision.threshold": (threshold is None or positive is not None, "needs decision.positive"),
        "decision.rule": (decision["rule"] != "threshold" or is_set, "needs a threshold and a positive_index"),
    }
    for key, (holds, text) in rules.items():
        if not holds:
            raise InputError(key, text)


def _names_read(manifest: Mapping[str, Any]) -> list[str]:
    models = [MODEL, *([STEP] if "step" in manifest else [])]
    return [*models, *(encoder_file(field["name"]) for field in manifest["schema"]["fields"])]


def _file_names(folder: Path) -> set[str]:
    """Return the relative paths of all files and symbolic links below a folder. Linked folders are not searched."""
    paths = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    return {path.relative_to(folder).as_posix() for path in paths}


def _digest(manifest: JsonObject) -> str:
    # The digest does not depend on whitespace or key order, so reformatting a manifest does not change the digest.
    content = {key: value for key, value in manifest.items() if key != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
