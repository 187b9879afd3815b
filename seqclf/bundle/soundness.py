"""Checks that tell whether a bundle is sound on this machine, in the order of `CHECKS`, and their results."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from seqclf.batching.collate import pad
from seqclf.bundle import parity
from seqclf.bundle.manifest import check_decision, verify_files
from seqclf.bundle.model import NOT_FINITE, BundleModel
from seqclf.bundle.parity import read_cells
from seqclf.bundle.reference_data import LENGTH, id_texts
from seqclf.bundle.sequence_reader import ReaderLimits
from seqclf.data.encoding.field_encoder import FieldEncoder
from seqclf.data.ragged import Ragged, is_list, list_offsets, take
from seqclf.errors import first_line
from seqclf.models.onnx.checks import TOLERANCE, logit_error
from seqclf.system.json_result import JsonObject, JsonResult
from seqclf.system.state_validation import read_json
from seqclf.system.version import DISTRIBUTION, RUNTIME, package_versions


@dataclass(frozen=True)
class Check(JsonResult):
    """Result of one check. `passed`: None for a warning, and for a check that did not run, as `detail` says.

    `figure`: the number that was measured, in the unit that `detail` names; None if there is none or it is not finite.
    """

    name: str
    passed: bool | None
    figure: float | None
    detail: str


@dataclass(frozen=True)
class Soundness(JsonResult):
    """Results of all checks of the bundle in the folder `bundle`. `passed`: True if none failed."""

    bundle: str
    passed: bool
    checks: list[Check]

    @property
    def exit_code(self) -> int:
        return 0 if self.passed else 1


class Cell(NamedTuple):
    """A batch of the parity grid, as stored (see `parity`), and its `sequences` without the padding."""

    fields: dict[str, np.ndarray]
    lengths: np.ndarray
    logits: np.ndarray
    sequences: Ragged


@dataclass
class CheckedBundle:
    """The bundle in `folder`, and what its checks share, read when first used. For the others, see `Classifier`."""

    folder: Path
    device: str = "auto"
    threads: int | None = None

    @cached_property
    def manifest(self) -> JsonObject:
        return verify_files(self.folder)

    @cached_property
    def model(self) -> BundleModel:
        return BundleModel(self.folder, device=self.device, threads=self.threads)

    @cached_property
    def cells(self) -> dict[str, Cell]:
        return {name: self._cell(**arrays) for name, arrays in read_cells(self.folder / "parity.npz").items()}

    def _cell(self, *, lengths: np.ndarray, logits: np.ndarray, **others: np.ndarray) -> Cell:
        fields = {spec["name"]: others[spec["name"]] for spec in self.model.specs}
        static = {spec["name"]: fields[spec["name"]] for spec in self.model.specs if spec.get("static")}
        tokens = {spec["name"]: fields[spec["name"]] for spec in self.model.specs if spec["name"] not in static}
        ragged = {name: values[np.arange(values.shape[1]) < lengths[:, None]] for name, values in tokens.items()}
        return Cell(fields, lengths, logits, Ragged(list_offsets(lengths), ragged, static))

    def logits(self, sequences: Ragged, rows: Any = slice(None), width: int | None = None) -> np.ndarray:
        """Return the logits of one batch: the sequences `rows`, padded with zeros to `width` tokens."""
        return self.model.reader(*pad(sequences, np.arange(len(sequences))[rows], width)).logits


Finding = tuple[bool | None, float | None, str]
MORE_PADDING = 7  # tokens
ROWS = ("known", "unknown", "missing")  # values of the rows that are predicted
SECONDS, MAX_SECONDS = 0.4, 2.0  # time of each batch size; a batch that would take longer is left out
EXCLUSIVE = (("onnxruntime", "onnxruntime-gpu"), (DISTRIBUTION, RUNTIME))  # packages with files of the same names


def packages(_: CheckedBundle) -> Finding:
    """Look for two packages that own the same files, so that removing one breaks the other."""
    shared = {f"{one} and {other}": len(_owned(one) & _owned(other)) for one, other in EXCLUSIVE}
    clashes = [pair for pair, count in shared.items() if count]
    return not clashes, sum(shared.values()), f"files with two owners {'; '.join(clashes)}".rstrip()


def _owned(package: str) -> set[str]:
    """Return the paths that an installed package owns, without scripts. An editable package owns none."""
    try:
        return {str(path) for path in metadata.distribution(package).files or () if ".." not in path.parts}
    except metadata.PackageNotFoundError:
        return set()


def files(bundle: CheckedBundle) -> Finding:
    return True, len(bundle.manifest["files"]), "files have the hashes of the manifest"


def decision(bundle: CheckedBundle) -> Finding:
    check_decision(bundle.manifest)
    rule = bundle.manifest["decision"]
    return True, rule["threshold"], f"rule {rule['rule']}; thresholds are finite, labels are known"


def model(bundle: CheckedBundle) -> Finding:
    """Open the bundle. A provider that is not CUDA in spite of a card is a warning."""
    used, reason, count = bundle.model.provider, bundle.model.no_cuda, len(bundle.model.specs)
    return (True, count, f"inputs; {used}") if reason is None else (None, count, f"warning: {used}, because {reason}")


def grid(bundle: CheckedBundle) -> Finding:
    stored = read_json(bundle.folder / "parity.json")["cells"]
    differing = {name for name in stored if not name.endswith("_chunks")} ^ set(bundle.cells)
    lacking = f", of which parity.json or parity.npz lacks {min(differing)}" if differing else ""
    return not differing, len(bundle.cells), f"batches with PyTorch's logits{lacking}"


def encoders(bundle: CheckedBundle) -> Finding:
    """Compare ids with those of the grid, the vectors of the network, and the texts of frequent values in training."""
    first, reference = next(iter(bundle.cells.values())), bundle.model.reference.fields
    sizes: dict[str, Any] = {spec["name"]: spec["size"] for spec in bundle.model.specs if "size" in spec}  # type: ignore[typeddict-item]
    for name, size in sizes.items():
        if (used := max(int(cell.fields[name].max()) for cell in bundle.cells.values())) >= size:
            return False, used, f"is an id of {name} in the grid, and above those of its encoder"
    last = first.fields | {name: np.full_like(first.fields[name], size - 1) for name, size in sizes.items()}
    bundle.model.reader(last, first.lengths)  # raises an error if the last id has no vector
    other = [
        f"{name}: the id of '{before}' is that of '{text}'"
        for name, encoder in bundle.model.encoders.items()
        if name in reference and not reference[name][0].is_number
        for text, before in zip(id_texts(reference[name][0].values, encoder), reference[name][0].texts, strict=False)
        if text != before
    ]
    return not other, len(other), other[0] if other else "of the frequent values have another id than at the export"


def same_logits(bundle: CheckedBundle) -> Finding:
    """Repeat the parity check of the export, with chunks where the bundle has a model that reads them."""
    step = bundle.model.open_step() if "step" in bundle.manifest else None
    found = parity.check(bundle.model.reader.session, bundle.folder / "parity.npz", step)
    detail = f"from PyTorch{' and by chunks' if step else ''}, {found.tolerance:.0e} allowed"
    return found.passed, found.max_error, detail


def padding(bundle: CheckedBundle) -> Finding:
    def pairs() -> Iterable[tuple[np.ndarray, np.ndarray]]:
        for cell in bundle.cells.values():
            plain = bundle.logits(cell.sequences)
            yield bundle.model.reader(cell.fields, cell.lengths).logits, plain  # the padding of the grid is random
            yield bundle.logits(cell.sequences, width=int(cell.lengths.max()) + MORE_PADDING), plain

    return _largest(pairs(), "content and amount of padding")


def batch_mates(bundle: CheckedBundle) -> Finding:
    even = [cell.sequences for cell in bundle.cells.values() if len(set(cell.lengths.tolist())) == 1]  # no padding
    pairs = ((bundle.logits(each, [row]), bundle.logits(each)[[row]]) for each in even for row in range(len(each)))
    return _largest(pairs, "other sequences of the batch")


def order(bundle: CheckedBundle) -> Finding:
    flip, batches = slice(None, None, -1), [cell.sequences for cell in bundle.cells.values()]
    pairs = ((bundle.logits(each, flip)[flip], bundle.logits(each)) for each in batches)
    return _largest(pairs, "order of the rows")


def _largest(pairs: Iterable[tuple[np.ndarray, np.ndarray]], cause: str) -> Finding:
    error = max(logit_error(found, expected) for found, expected in pairs)
    return error <= TOLERANCE, error, f"change by the {cause}, {TOLERANCE:.0e} allowed"


def labels(bundle: CheckedBundle) -> Finding:
    """Compare the labels of this machine with those of PyTorch, except where rounding may decide."""
    choose, certain, other = bundle.model.decision.choose, 0, 0
    for cell in bundle.cells.values():
        chosen, near = choose(cell.logits), 2 * TOLERANCE * max(1.0, float(np.abs(cell.logits).max()))
        same = [choose(cell.logits + near * unit) == chosen for unit in np.eye(cell.logits.shape[1])]
        found = choose(np.nan_to_num(bundle.model.reader(cell.fields, cell.lengths).logits))
        certain += int(np.all(same, axis=0).sum())
        other += int((np.all(same, axis=0) & (found != chosen)).sum())
    return not other, other, f"of {certain} rows get another label than by PyTorch"


def one_token(bundle: CheckedBundle) -> Finding:
    """Predict a row of one known token, one of an unknown token, and one of a missing value in each field."""
    cells = {
        name: pa.array([_cell(encoder, encoder.canonical_type, row) for row in ROWS], encoder.canonical_type)
        for name, encoder in bundle.model.encoders.items()
    }
    found = bundle.model.predict_columns(pa.record_batch(cells))
    finite = np.isfinite(found.probabilities).all(axis=1)
    clean = [error is not None and NOT_FINITE not in error for error in found.errors]
    errors = "".join(f"; {row}: {error}" for row, error in zip(ROWS, found.errors, strict=True) if error)
    return bool((finite | clean).all()), int(finite.sum()), f"of {len(ROWS)} rows are predicted{errors}"


def _cell(encoder: FieldEncoder, kind: pa.DataType, row: str) -> Any:
    if is_list(kind):
        is_vector = pa.types.is_floating(kind.value_type) and kind != encoder.canonical_type
        return [_cell(encoder, kind.value_type, row)] * (encoder.field.width or 1 if is_vector else 1)
    if not pa.types.is_string(kind):
        return None if row == "missing" else 0.0 if pa.types.is_floating(kind) else -(2**61)
    last: Any = encoder.spec().get("size", 1)
    known = id_texts(np.array([last - 1]), encoder)[0].strip("{}")
    text = {"known": known, "unknown": "\N{SNOWMAN}", "missing": None}[row]
    return encoder.from_python({"tokens": [text], "parents": [-1]}) if encoder.parts else text


def versions(bundle: CheckedBundle) -> Finding:
    """Compare the packages that predict with those at the export. `same_logits` says whether a difference matters."""
    here, before = package_versions(), bundle.manifest["versions"]
    known = {name: here[name] for name in ("seqclf", "onnxruntime", "numpy", "pyarrow") if name in before}
    other = [f"{name} {before[name]}" for name, version in known.items() if version != before[name]]
    texts = ", ".join(f"{name} {version}" for name, version in known.items())
    return None if other else True, len(other), f"warning: {texts}; export: {', '.join(other)}" if other else texts


def speed(bundle: CheckedBundle) -> Finding:
    """Time batches of several sizes, of random tokens, with the lengths of the training if they are known."""
    opened, pool, random = bundle.model, list(bundle.cells.values())[-1].sequences, np.random.default_rng(0)
    lengths, rates = pool.lengths, dict[int, float]()
    if LENGTH in opened.reference.fields and not opened.reads_trees:
        bins, shares = opened.reference.fields[LENGTH]
        weights = np.diff(shares.mean, prepend=0.0)[: len(bins.values)].clip(1e-9)
        lengths = random.choice(bins.values, 1000, p=weights / weights.sum()).astype(np.int64)
        lengths = lengths.clip(1, opened.schema.max_length)
    limits = ReaderLimits.of(opened.reader.session, opened.threads, by_chunks=opened.may_halt)
    for size in sorted({1, 16, 256, max(1, int(limits.max_tokens / lengths.mean()))}):
        if rates and size / max(rates.values()) > MAX_SECONDS:
            break
        rows, counts = random.integers(0, len(pool), size), random.choice(lengths, size)
        batch, tokens = take(pool, rows), random.integers(0, pool.offsets[-1], counts.sum())
        if not opened.reads_trees:
            fields = {name: each[tokens] for name, each in pool.fields.items()}
            batch = Ragged(list_offsets(counts), fields, batch.static)
        done, start = 0, time.perf_counter()
        while not done or time.perf_counter() - start < SECONDS:
            opened.logits(batch)
            done += size
        rates[size] = done / (time.perf_counter() - start)
    text = ", ".join(f"{size:,}: {rate:,.0f}" for size, rate in rates.items())
    return True, max(rates.values()), f"rows/s of {lengths.mean():.0f} tokens; by rows of a batch: {text}"


GATES = (files, decision, model, grid)  # no later check can run after one of these has failed
CHECKS = (packages, *GATES, encoders, same_logits, padding, batch_mates, order, labels, one_token, versions, speed)


def examine(bundle: CheckedBundle) -> Soundness:
    """Run all checks, but for those after a failed one of `GATES`."""
    checks, closed = list[Check](), None
    for function in CHECKS:
        name, finding = function.__name__.replace("_", " "), (None, None, f"not run: needs {closed}")
        try:
            passed, figure, detail = finding if closed else function(bundle)
        except Exception as error:  # a damaged bundle may raise any, of NumPy, Arrow or ONNX Runtime
            passed, figure, detail = False, None, first_line(error).removeprefix(f"bundle={bundle.folder}: ")
        checks.append(Check(name, passed, figure if figure is not None and np.isfinite(figure) else None, detail))
        closed = name if function in GATES and passed is False else closed
    return Soundness(str(bundle.folder), all(check.passed is not False for check in checks), checks)
