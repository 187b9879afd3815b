"""Mutations of the files of a bundle. Hashes and digest are recomputed, so that only the content is wrong."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from fuzzing.columns import Random, pick
from fuzzing.mutations import BYTES

from seqclf.bundle.manifest import NAME, _digest

SECRET = "secret.bin"  # file beside the bundle and in the working folder, which no bundle may read
WRONG: list[Any] = [
    *(None, True, -1, 0, 1, 3, 2**31, 2**62, 10**40, 0.5, 1e308, float("nan"), float("inf"), -0.0),
    *("", "x" * 1000, f"../{SECRET}", "/dev/zero", "\x00", "a/b", "b", "category", "text", "id"),
    *([], [[]], [1, "x"], {}, {"x": 1}, [None], "[1, 2", "\ud800", -(10**310)),
]
# Texts of JSON values that Python does not write, or that it cannot read.
RAW = [
    *(depth * "[" + depth * "]" for depth in (90, 99, 150, 990, 100_000)),
    *('{"a": ' * 150 + "1" + "}" * 150, '{"a": 1, "a": 2}', "[" + "0, " * 300_000 + "0]"),
    *("9" * 5000, "9" * 400, "1e400", "-1e999", "1e-400", "1e308", "0.1e-9" + "9" * 400, '"\\ud800\\ud800"'),
]
SPLIT = {"type": "Split", "pattern": {"Regex": "(w+)+$"}, "behavior": "Removed", "invert": True}
DOUBLE = {"type": "Replace", "pattern": {"String": "w"}, "content": "ww"}
TOKEN = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
PADDING = {"direction": "Left", "pad_to_multiple_of": 8, "pad_id": 99, "pad_type_id": 0, "pad_token": "w1"}
TRUNCATION = {"direction": "Left", "max_length": 1, "strategy": "LongestFirst", "stride": 0}
# Valid settings of a tokenizer and of its model that are not those of the field, and wrong ones.
SETTINGS: dict[str, list[Any]] = {
    "normalizer": [None, DOUBLE, {"type": "Sequence", "normalizers": [DOUBLE] * 60}, {"type": "NFKC"}],
    "pre_tokenizer": [None, SPLIT, {"type": "Whitespace"}],
    "truncation": [TRUNCATION, {**TRUNCATION, "max_length": 0, "stride": 2**62}],
    "padding": [{"strategy": {"Fixed": 2**31}, **PADDING}, {"strategy": "BatchLongest", **PADDING}],
    "added_tokens": [[], *([{"id": id, "content": text, **TOKEN}] for id, text in [(0, "w1"), (99, "w"), (2**40, "")])],
    "post_processor": [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}],
    "decoder": [{"type": "ByteFallback"}],
}
MODEL: dict[str, list[Any]] = {
    "type": ["BPE", "WordLevel", "WordPiece", "Unigram"],
    "merges": [[], None, "w1", [["w", "1"]], ["w 1"], [["w"]], [["w", "1", "2"]], [[1, 2]], [["w", "1"]] * 9, {"w": 1}],
    "unk_token": [None, "w1"],
    "dropout": [0.5, 1.0],
    "byte_fallback": [True],
    "continuing_subword_prefix": ["##"],
}
IDS: list[Any] = [-1, 1, 99, 2**31, 2**32, 2**64, "1", 1.0, True, None]


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all values below nested dicts and lists."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield (*path, key)
        yield from _paths(entry, (*path, key))


def _in_json(random: Random, value: Any) -> None:
    """Change one value below a dict or a list. All keys of the first level are equally likely."""
    first = pick(random, list(value) if isinstance(value, dict) else list(range(len(value))))
    path = pick(random, [(first,), *((first, *rest) for rest in _paths(value[first]))])
    parent = value
    for key in path[:-1]:
        parent = parent[key]
    key, kind = path[-1], pick(random, ["replaced", "replaced", "removed", "renamed", "repeated", "moved", "raw"])
    if kind == "removed":
        del parent[key]
    elif kind == "raw":
        parent[key] = f"RAW {int(random.integers(len(RAW)))}"
    elif kind == "renamed" and isinstance(parent, dict):
        parent[pick(random, ["", "../x", "\x00", "lengths", "label", f"{key} 2"])] = parent.pop(key)
    elif kind == "repeated" and isinstance(parent[key], (list, str)):
        parent[key] = parent[key] * int(pick(random, [2, 1000]))
    elif kind == "moved":
        parent[key] = pick(random, list(parent.values() if isinstance(parent, dict) else parent))
    else:
        parent[key] = pick(random, WRONG)


def _json_file(random: Random, path: Path) -> None:
    if random.integers(8) == 0:
        return _bytes(random, path)
    value = json.loads(path.read_text(encoding="utf-8"))
    for _ in range(1 + int(random.integers(3))):
        if value:
            _in_json(random, value)
    text = re.sub(r'"RAW (\d+)"', lambda found: RAW[int(found[1])], json.dumps(value))
    path.write_text(text, encoding="utf-8")


def _bytes(random: Random, path: Path) -> None:
    path.write_bytes(BYTES[pick(random, sorted(BYTES))](random, path.read_bytes()))


def manifest(random: Random, bundle: Path) -> None:
    _json_file(random, bundle / NAME)


def encoder(random: Random, bundle: Path) -> None:
    _json_file(random, pick(random, sorted((bundle / "encoders").iterdir())))


def tokenizer(random: Random, bundle: Path) -> None:
    """Change a setting, a token or the ids of a tokenizer. A bundle without texts has none."""
    path = bundle / "encoders" / "text.json"
    if not path.is_file():
        return encoder(random, bundle)
    state = json.loads(path.read_text(encoding="utf-8"))
    model = state["tokenizer"]["model"]
    vocabulary, kind = model["vocab"], int(random.integers(6))
    first, second = pick(random, list(vocabulary)), pick(random, ["[UNK]", *vocabulary])
    if kind < 2:
        settings, parent = [(SETTINGS, state["tokenizer"]), (MODEL, model)][kind]
        key = pick(random, list(settings))
        parent[key] = pick(random, [*settings[key], pick(random, WRONG)])
    elif kind == 2:
        vocabulary[first] = pick(random, IDS)
    elif kind == 3:
        vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    elif kind == 4:
        vocabulary[pick(random, ["", " ", "\x00", "\ud800", "W1", "w 1", "x" * 100_000])] = vocabulary.pop(first)
    else:
        id, merges = vocabulary.pop(second), model.get("merges", [])
        vocabulary.update({token: other - (other > id) for token, other in vocabulary.items()})
        merges[:] = [pair for pair in merges if random.integers(9)]
    path.write_text(json.dumps(state), encoding="utf-8")


def parity_json(random: Random, bundle: Path) -> None:
    _json_file(random, bundle / "parity.json")


def parity_npz(random: Random, bundle: Path) -> None:
    """Change the bytes of parity.npz, or one of its arrays."""
    path = bundle / "parity.npz"
    if random.integers(4) == 0:
        return _bytes(random, path)
    with np.load(path) as file:
        arrays: dict[str, Any] = dict(file)
    name = pick(random, sorted(arrays))
    array, kind = arrays.pop(name), int(random.integers(9))
    changes: list[Callable[[], Any]] = [
        lambda: array[:0],
        lambda: array[..., None],
        lambda: array.astype(object),
        lambda: array.astype(pick(random, ["float64", "int8", "U9", "bool"])),
        lambda: np.full_like(array, pick(random, [-1, 2**40, 0, 99]) if array.dtype.kind == "i" else np.nan),
        lambda: array[: len(array) // 2],
        lambda: np.concatenate([array, array]),
        lambda: np.asarray(array.flat[0]),
    ]
    if kind < len(changes):
        arrays[name] = changes[kind]()
    elif random.integers(2):
        arrays[name.replace("/", "-")] = array
    content = io.BytesIO()
    np.savez(content, **arrays)
    path.write_bytes(content.getvalue())


def model_bytes(random: Random, bundle: Path) -> None:
    _bytes(random, _model(random, bundle))


def model_graph(random: Random, bundle: Path) -> None:
    """Change a node, an input, an output or a weight of a model."""
    path = _model(random, bundle)
    loaded: Any = onnx.load(path)
    for _ in range(1 + int(random.integers(2))):
        pick(random, [_weight, _weight, _node, _node, _ends])(random, loaded)
    path.write_bytes(loaded.SerializeToString())


def external_data(random: Random, bundle: Path) -> None:
    """Read a weight from a file that is not in the bundle: in the working folder, or elsewhere."""
    path = _model(random, bundle)
    loaded: Any = onnx.load(path)
    tensor = pick(random, [each for each in loaded.graph.initializer if each.raw_data])
    places = [bundle.parent / SECRET, bundle.parent / "work" / SECRET]
    for place in places:
        place.write_bytes(tensor.raw_data)
    secret = str(places[0])
    location = pick(random, [SECRET, f"./{SECRET}", f"../{SECRET}", secret, f"encoders/../../{SECRET}", "/dev/zero"])
    entries = {"location": location, "offset": "0", "length": str(len(tensor.raw_data))}
    if random.integers(3) == 0:
        entries[pick(random, ["offset", "length"])] = pick(random, ["-1", str(2**62), "x", ""])
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    path.write_bytes(loaded.SerializeToString())


def other_file(random: Random, bundle: Path) -> None:
    """Replace a file by another file of the bundle, remove it, or add one."""
    files = sorted(path for path in bundle.rglob("*") if path.is_file() and path.name != NAME)
    path, kind = pick(random, files), int(random.integers(4))
    if kind == 0:
        path.unlink()
    elif kind == 1:
        (bundle / "x" / "y").parent.mkdir()
        (bundle / "x" / "y").write_text("x")
    else:
        shutil.copy(pick(random, files), bundle / "copy")
        (bundle / "copy").replace(path)


def _model(random: Random, bundle: Path) -> Path:
    return pick(random, sorted(bundle.glob("*.onnx")))


def _weight(random: Random, loaded: Any) -> None:
    tensor = pick(random, list(loaded.graph.initializer))
    array = onnx.numpy_helper.to_array(tensor)
    kind = int(random.integers(6))
    if kind == 0:
        tensor.dims[:] = [*tensor.dims[:-1], pick(random, [0, 1, -1, 2**31, 2**62])]
    elif kind == 1:
        tensor.data_type = int(random.integers(-1, 30))
    elif kind == 2:
        tensor.raw_data = tensor.raw_data[: len(tensor.raw_data) // 2]
    else:
        value = pick(random, [np.nan, np.inf, -1e38, 0.0] if array.dtype.kind == "f" else [-1, 0, 2, 99, 2**31 - 1])
        shape = pick(random, [array.shape, array.shape, (*array.shape, 1), array.shape[1:], (3, *array.shape)])
        changed = np.resize(array, shape)
        if changed.size and kind < 5:
            changed.flat[int(random.integers(changed.size))] = value
        tensor.CopyFrom(onnx.numpy_helper.from_array(changed, tensor.name))


def _node(random: Random, loaded: Any) -> None:
    nodes, kind = loaded.graph.node, int(random.integers(6))
    node, other = pick(random, list(nodes)), pick(random, list(nodes))
    names = [name for each in nodes for name in (*each.input, *each.output)]
    if kind == 0:
        nodes.remove(node)
    elif kind == 1:
        node.op_type = pick(random, [other.op_type, "Identity", "Expand", "If", "Loop", "Scan", "x", "MatMul"])
    elif kind == 2 and node.input:
        node.input[int(random.integers(len(node.input)))] = pick(random, [*names, "", "x"])
    elif kind == 3:
        nodes.append(node)
    elif kind == 4 and node.attribute:
        attribute = pick(random, list(node.attribute))
        value = int(pick(random, [-1, 0, 1, 7, 2**31, 2**62]))
        attribute.i = value
        attribute.ints[:] = [value] * len(attribute.ints)
        attribute.name = pick(random, [attribute.name, attribute.name, "x"])
    else:
        node.domain = pick(random, ["", "x", "com.microsoft", "ai.onnx.ml"])


def _ends(random: Random, loaded: Any) -> None:
    end = pick(random, [*loaded.graph.input, *loaded.graph.output])
    dims, kind = end.type.tensor_type.shape.dim, int(random.integers(4))
    if kind == 0:
        end.type.tensor_type.elem_type = int(random.integers(-1, 20))
    elif kind == 1 and dims:
        pick(random, list(dims)).dim_value = int(pick(random, [-1, 0, 1, 2, 2**40]))
    elif kind == 2:
        end.name = pick(random, ["x", "", "lengths", "logits"])
    else:
        loaded.opset_import[0].version = int(pick(random, [-1, 0, 7, 18, 99]))


MUTATIONS = {
    f.__name__: f
    for f in (manifest, encoder, tokenizer, parity_json, parity_npz, model_bytes, model_graph, external_data,
              other_file)
}  # fmt: skip
# The manifest and the models have the most to check.
WEIGHTS = {
    "manifest": 8,
    "encoder": 4,
    "tokenizer": 3,
    "parity_npz": 3,
    "parity_json": 1,
    "model_bytes": 3,
    "model_graph": 5,
}


def mutate(random: Random, bundle: Path) -> str:
    """Apply one mutation to a bundle, sign the bundle, and return the name of the mutation."""
    name = pick(random, [name for name in MUTATIONS for _ in range(WEIGHTS.get(name, 1))])
    with suppress(Exception):  # an earlier mutation may have damaged or removed the file
        MUTATIONS[name](random, bundle)
    sign(bundle, relist=name == "other_file")
    return name


def sign(bundle: Path, *, relist: bool = False) -> None:
    """Recompute the hashes and the digest of a manifest, as far as it is one. `relist`: list the files anew too."""
    with suppress(ValueError, AttributeError, TypeError, RecursionError, OSError):
        content: Any = json.loads((bundle / NAME).read_text(encoding="utf-8"))
        present = {path.relative_to(bundle).as_posix() for path in bundle.rglob("*") if path.is_file()} - {NAME}
        if isinstance(content.get("files"), dict):
            names = present if relist else present & set(content["files"])
            kept = {} if relist else content["files"]
            content["files"] = {**kept, **{n: hashlib.sha256((bundle / n).read_bytes()).hexdigest() for n in names}}
        content["digest"] = _digest(content)
        (bundle / NAME).write_text(json.dumps(content), encoding="utf-8")
