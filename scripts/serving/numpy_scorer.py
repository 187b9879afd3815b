"""Score rows with a bundle by NumPy and ONNX Runtime alone, without seqclf.

    python scripts/serving/numpy_scorer.py BUNDLE < rows.jsonl > scores.jsonl

A row is a dict field name → list of tokens, or field name → value for a static field. Values have the types of
training, and events are in order. All rows are one batch. The scorer reads category and number fields. It does not read
text, sets, trees, times, `since`, `scale: sequence` and `data.query`, and does not compare the hashes of the files.
"""

import json
import sys
import zlib
from pathlib import Path

import numpy as np
import onnxruntime


class Scorer:
    def __init__(self, folder):
        self.manifest = json.loads(Path(folder, "manifest.json").read_text(encoding="utf-8"))
        self.session = onnxruntime.InferenceSession(Path(folder, "model.onnx"), providers=["CPUExecutionProvider"])
        for field in self.manifest["schema"]["fields"]:
            options = field["options"]
            if field["kind"] not in ENCODE or options.get("since") or options.get("scale") == "sequence":
                raise ValueError(f"{field['name']}: only category and number fields, not since and scale: sequence")
            field |= {"state": json.loads(Path(folder, f"encoders/{field['name']}.json").read_text(encoding="utf-8"))}
            field["ids"] = {value: id for id, value in enumerate(field["state"].get("values", []), 1)}

    def predict(self, rows):
        """Return the labels of N rows, as texts, and the (N, C) probabilities of all classes."""
        decision = self.manifest["decision"]
        scaled = self.logits(rows).astype(np.float64) / decision["temperature"]
        probabilities = np.exp(scaled - np.logaddexp.reduce(scaled, axis=1, keepdims=True))  # softmax
        chosen = (scaled + (decision["offsets"] or 0.0)).argmax(axis=1)
        if decision["rule"] == "threshold":
            positive, threshold = decision["positive_index"], decision["threshold"]
            chosen = np.where((probabilities[:, positive] >= threshold) & (threshold < 1), positive, 1 - positive)
        return [self.manifest["classes"][index] for index in chosen], probabilities

    def logits(self, rows):
        """Return the (N, C) logits of N rows."""
        inputs, limit, side = {}, self.manifest["schema"]["max_length"], self.manifest["schema"]["truncate"]
        kept = {"keep_first": slice(limit), "keep_last": slice(limit and -limit, None)}.get(side, slice(None))
        for field in self.manifest["schema"]["fields"]:
            cells = [[row[field["name"]]] if field["static"] else row[field["name"]][kept] for row in rows]
            arrays = [ENCODE[field["kind"]](cell, field, field["options"]) for cell in cells]
            lengths = np.array([len(array) for array in arrays])
            known = lengths if field["static"] else inputs.setdefault("lengths", lengths)
            if (lengths != known).any() or not 1 <= min(lengths) <= max(lengths) <= (limit or np.inf):
                raise ValueError(f"{field['name']} has no token, more than {limit}, or not as many as other fields")
            batch = np.zeros((len(rows), max(lengths), *arrays[0].shape[1:]), arrays[0].dtype)
            for row, array in enumerate(arrays):
                batch[row, : len(array)] = array  # the model ignores the padding behind it
            inputs[field["name"]] = batch[:, 0] if field["static"] else batch
        return self.session.run(["logits"], inputs)[0]


def encode_category(values, field, options):
    """Return the (T,) ids of the values: 0 for an unknown value."""
    size, missing = options.get("hash_size"), options.get("missing") == "value"
    keys = [None if value != value or (missing and value == "") else value for value in values]
    keys = [str(key).lower() if isinstance(key, bool) else key for key in keys]
    if None in keys and not missing:
        raise ValueError(f"{field['name']} has a missing value")
    return np.array([1 + zlib.crc32(f"{key}".encode()) % size if size else field["ids"].get(key, 0) for key in keys])


def encode_number(values, field, options):
    """Return the scaled numbers and, if numbers may be missing, their mask: (T, D) float32."""
    missing, listed, limit = options.get("missing", "refuse"), options.get("missing_values", []), options.get("clip")
    x = np.array([np.nan if value is None else value for value in values], np.float64).reshape(len(values), -1)
    x[np.isin(x, [*listed, *np.float32(listed)])] = np.nan
    seen = ~np.isnan(x)
    if np.isinf(x).any() or (missing == "refuse" and not seen.all()):
        raise ValueError(f"{field['name']} has a missing or infinite number")
    x = np.sign(x) * np.log1p(np.abs(x)) if options.get("log") else x
    mean, deviation = np.array(field["state"]["mean"]), np.array(field["state"]["deviation"])
    x, zero = (np.clip((y - mean) / deviation, -(limit or 1e30), limit or 1e30) for y in (x, 0.0))
    if missing == "last":
        x = np.take_along_axis(x, np.maximum.accumulate(np.where(seen, np.arange(len(x))[:, None], 0)), axis=0)
    x = np.where(np.isnan(x), zero if missing == "zero" else 0.0, x)
    return np.hstack([x, seen] if missing != "refuse" and options.get("mask", True) else [x]).astype(np.float32)


ENCODE = {"category": encode_category, "number": encode_number}

if __name__ == "__main__":
    labels, probabilities = Scorer(sys.argv[1]).predict([json.loads(line) for line in sys.stdin])
    for label, row in zip(labels, probabilities.tolist(), strict=True):
        print(json.dumps({"prediction": label, "probabilities": row}))
