"""Fit LightGBM on aggregates of each sequence to rows of ladder.py. Prints the test score as JSON.

What a practitioner takes for event tables: the number of tokens; counts of the 50 most frequent ids, distinct ids,
first and last id, counts of the 50 most frequent pairs of neighbours; of each number mean, deviation, lowest, highest,
sum, first, last and trend, the gaps of neighbours, and its sum by each of the 20 most frequent ids; static values.
Early stopped on validation.
"""

import itertools
import json
import sys

import lightgbm
import numpy as np
from sklearn.metrics import average_precision_score

TOP, TOP_SUMS = 50, 20
SPLITS = ("train", "validation", "test")


def counted(ids, rows, known, count):
    """Return counts (N, len(known)) of the `known` ids (rising) in the tokens of each row."""
    if not len(known):
        return np.zeros((count, 0), np.float32)
    at = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    hit = known[at] == ids
    counts = np.zeros((count, len(known)), np.float32)
    np.add.at(counts, (rows[hit], at[hit]), 1)
    return counts


def frequent(ids, most):
    values, counts = np.unique(ids, return_counts=True)
    return np.sort(values[np.argsort(-counts, kind="stable")[:most]])


def of_numbers(values, rows, offsets):
    """Return aggregates (N, 10) of one number of the tokens, which may be NaN."""
    count, features = len(offsets) - 1, []
    for start, stop in itertools.pairwise(offsets):
        part = values[start:stop]
        part = part[~np.isnan(part)]
        if not len(part):
            features.append([np.nan] * 10)
            continue
        place = np.arange(len(part)) - (len(part) - 1) / 2
        trend = place @ part / max(1e-9, place @ place)
        gaps = np.abs(np.diff(part)) if len(part) > 1 else np.zeros(1)
        basics = [part.mean(), part.std(), part.min(), part.max(), part.sum(), part[0], part[-1], trend]
        features.append([*basics, gaps.mean(), gaps.std()])
    return np.array(features, np.float32).reshape(count, 10)


def aggregates(content, split, known):
    offsets = content[f"{split}_offsets"]
    lengths = np.diff(offsets)
    rows, count = np.repeat(np.arange(len(lengths)), lengths), len(lengths)
    parts, categorical, width = [lengths[:, None].astype(np.float32)], [], 1
    names = [name.removeprefix(f"{split}_ids_") for name in content.files if name.startswith(f"{split}_ids_")]
    numbers = [content[name] for name in content.files if name.startswith(f"{split}_numbers_")]
    for name in names:
        ids = content[f"{split}_ids_{name}"].astype(np.int64)
        follows = np.ones(len(ids), bool)
        follows[offsets[:-1]] = False
        pairs = ids[:-1][follows[1:]] * 2**31 + ids[1:][follows[1:]]
        if split == "train":
            known[name] = frequent(ids, TOP), frequent(pairs, TOP), frequent(ids, TOP_SUMS)
        tops, top_pairs, summed = known[name]
        first = np.concatenate([[True], (np.diff(np.sort(rows * 2**32 + ids)) != 0)])
        distinct = np.bincount(np.sort(rows * 2**32 + ids)[first] // 2**32, minlength=count)
        ends = np.stack([ids[offsets[:-1]], ids[offsets[1:] - 1]], 1)
        new = [counted(ids, rows, tops, count), counted(pairs, rows[1:][follows[1:]], top_pairs, count)]
        for values in numbers:
            for channel in values.T:
                sums = np.zeros((count, len(summed)), np.float32)
                at = np.minimum(np.searchsorted(summed, ids), len(summed) - 1)
                hit = (summed[at] == ids) & ~np.isnan(channel)
                np.add.at(sums, (rows[hit], at[hit]), channel[hit])
                new.append(sums)
        new += [distinct[:, None].astype(np.float32), ends.astype(np.float32)]
        width += sum(part.shape[1] for part in new)
        categorical += [width - 2, width - 1]
        parts += new
    for values in numbers:
        for channel in values.T:
            parts.append(of_numbers(channel, rows, offsets))
            width += 10
    for name in content.files:
        if name.startswith(f"{split}_static_"):
            values = content[name].reshape(count, -1).astype(np.float32)
            categorical += list(range(width, width + values.shape[1])) if "_static_ids_" in name else []
            width += values.shape[1]
            parts.append(values)
    return np.concatenate(parts, axis=1), categorical


def main():
    content, known = np.load(sys.argv[1]), {}
    classes, positive = int(content["classes"]), int(content["positive"])
    found = {split: aggregates(content, split, known) for split in SPLITS}
    categorical = found["train"][1]
    labels = {split: content[f"{split}_labels"] for split in SPLITS}
    objective = {"objective": "binary"} if classes == 2 else {"objective": "multiclass", "num_class": classes}
    settings = {**objective, "learning_rate": 0.05, "num_threads": 1, "verbose": -1, "seed": 0, "min_data_in_leaf": 10}
    sets = {
        split: lightgbm.Dataset(found[split][0], labels[split], categorical_feature=categorical) for split in SPLITS[:2]
    }
    stop = lightgbm.early_stopping(50, verbose=False)
    model = lightgbm.train(settings, sets["train"], 2000, valid_sets=[sets["validation"]], callbacks=[stop])
    scores = model.predict(found["test"][0], num_iteration=model.best_iteration)
    if classes == 2:
        scores = np.stack([1 - scores, scores], 1)
    if positive < 0:
        value = float((scores.argmax(1) == labels["test"]).mean())
    else:
        value = float(average_precision_score(labels["test"] == positive, scores[:, positive]))
    print(json.dumps({"score": value, "trees": model.best_iteration}))


if __name__ == "__main__":
    main()
