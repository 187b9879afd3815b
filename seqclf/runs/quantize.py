"""int8 form of a bundle: its LSTM layers are quantized, and the rows of the run judge them and set the threshold."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

from seqclf.batching.collate import pad
from seqclf.bundle import parity
from seqclf.bundle.manifest import MODEL
from seqclf.bundle.parity import Parity
from seqclf.bundle.rows.sequence_reader import BatchLimits, WholeSequences, batches_by_length, read_sequences
from seqclf.bundle.session import open_session, thread_count
from seqclf.bundle.step_model import STEP, open_step
from seqclf.config.options import parse_options
from seqclf.config.targets import Trust
from seqclf.data.prepare import prepare
from seqclf.data.ragged import take
from seqclf.data.storage.dataset import THRESHOLD
from seqclf.data.storage.store import sampled_rows
from seqclf.documents.terminal import console
from seqclf.errors import InputError
from seqclf.evaluation.decisions.holdout import hold_out
from seqclf.evaluation.judge import judge
from seqclf.evaluation.options import DecisionOptions
from seqclf.evaluation.results import SplitMetrics, SplitOutputs
from seqclf.evaluation.run_result import RunResult
from seqclf.evaluation.scores import NETWORK, Scores
from seqclf.models.parity_grid import logit_error
from seqclf.report.run_report import read_run, run_data
from seqclf.system import progress
from seqclf.system.json_result import JsonObject

KEY, JUDGE = "precision=int8", "validation"
FLOAT = "export precision=float32"
CLIP = "quantized_input"  # beginning of the names of nodes and values
MAX_TOKENS, BATCH_TOKENS = 500_000, 8192  # tokens of a split that are read for the range of inputs, and of a batch
ALLOWANCE = 3.0  # an int8 model may differ from PyTorch on another machine by this many times the difference here
LOST = ("accuracy", "recall", "recall of the positive label")  # metrics that `max_loss` limits


class Int8:
    """Quantization of a bundle that is being exported, with the data and the scores of its run.

    The 8-bit weights use 7 bits, because the products of larger ones overflow on processors without VNNI: the model
    would have other logits there than here.

    Args:
        run: folder of the run, whose scores are those of the exported checkpoint.
        max_loss: largest loss of a metric in `LOST` on validation.
        trust: packages other than seqclf whose code the data of the run may need.

    Raises:
        InputError: the data of the run is gone.
    """

    def __init__(self, run: Path, max_loss: float, trust: Trust = ()):
        self.max_loss, self.lost = max_loss, dict[str, float]()
        self.contenders, self.facts, settings = read_run(run)
        self.decision = parse_options(DecisionOptions, settings["decision"], "decision")
        self.dataset = hold_out(prepare(run_data(settings, trust)), self.decision)
        self.network = next(scores for scores in self.contenders if scores.role == NETWORK)
        splits = self.network.splits
        self.judging = {split: splits[split] for split in self.dataset.all_splits if split in splits.keys() - {"train"}}

    def __call__(self, bundle: Path, content: JsonObject) -> tuple[RunResult, Parity]:
        """Quantize the models in the folder `bundle`.

        Return the result of the run with the quantized model, and its difference from PyTorch. `content`: content of
        the manifest, whose decision, metrics and `precision` are replaced. Raises InputError if there is nothing to
        quantize, if the data of the run has changed, or if a metric loses more than `max_loss`.
        """
        if content["data"]["digest"] != self.dataset.description()["digest"]:
            raise InputError(KEY, "the data is not that of the run any more", "train again")
        if "halting" in content:
            raise InputError(KEY, "the model stops early at a threshold that rounding would move", FLOAT)
        before = judge(self.contenders, self.facts, self.decision).result
        names = [name for name in content["inputs"] if name != "lengths"]
        limit = self._largest_input(bundle / MODEL, names)
        for name in (MODEL, STEP):
            if (bundle / name).is_file():
                _quantize(bundle / name, limit)
        session, step = open_session(bundle / MODEL, "cpu"), None
        if "step" in content:
            step = open_step(bundle, content, self.dataset.description()["fields"], device="cpu", threshold=None)
        found = parity.check(session, bundle / "parity.npz", step)
        found = replace(found, tolerance=max(parity.TOLERANCE, ALLOWANCE * found.max_error), passed=True)
        (bundle / "parity.json").write_text(json.dumps(found.to_dict(), indent=1) + "\n")
        quantized, error = self._score(session, names)
        others = [scores for scores in self.contenders if scores.role != NETWORK]
        after = judge([*others, quantized], self.facts, self.decision).result
        self.lost = lost = _lost(before.splits[JUDGE], after.splits[JUDGE])
        text = ", ".join(f"{100 * value:+.2f} points of {name}" for name, value in lost.items())
        console.print(f"int8: loses {text} on {JUDGE}; logits differ by up to {error:.2g}", soft_wrap=True)
        worst = max(lost, key=lambda name: lost[name])
        if lost[worst] > self.max_loss:
            problem = f"loses {100 * lost[worst]:.2f} points of {worst}, more than max_loss={self.max_loss:g}"
            raise InputError(KEY, problem, f"raise max_loss, or {FLOAT}")
        content["precision"] = {"weights": "int8", "lost": lost, "max_error": error, "tolerance": found.tolerance}
        content["parity"] = {"max_error": found.max_error, "tolerance": found.tolerance}
        content["decision"] = after.decision.to_dict()
        content["metrics"] = {split: metrics.to_dict() for split, metrics in after.splits.items()}
        return after, found

    def _largest_input(self, path: Path, names: list[str]) -> float:
        """Return the largest absolute input of an LSTM layer for rows that judge the model."""
        model: Any = onnx.load(path)
        inputs = dict.fromkeys(node.input[0] for node in model.graph.node if node.op_type == "LSTM")
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in inputs)
        session, found = open_session(path, "cpu", content=model.SerializeToString()), [0.0]
        for split in self.judging:
            rows = self.dataset.all_splits[split].sequences
            some = take(rows, sampled_rows(rows, MAX_TOKENS, 0))
            for batch in batches_by_length(some.lengths, BATCH_TOKENS):
                fields, lengths = pad(some, batch)
                arrays = {**{name: fields[name] for name in names}, "lengths": lengths}
                found += [float(np.abs(values).max()) for values in session.run([*inputs], arrays)]
        return max(found)

    def _score(self, session: Any, inputs: list[str]) -> tuple[Scores, float]:
        """Return the scores of the model that a session runs, and its largest logit error on all rows but training."""
        outputs, errors, classes = dict[str, SplitOutputs](), [0.0], len(self.network.classes)
        reader, limits = WholeSequences(session, inputs), BatchLimits.of(session, thread_count(None), by_chunks=False)
        for split, known in self.judging.items():
            rows = self.dataset.all_splits[split].sequences
            with progress.stage(f"scoring {split} by the quantized model", total=len(rows), unit="rows"):
                logits = read_sequences(reader, rows, classes, limits).logits
            errors.append(logit_error(logits, known.logits) if len(logits) else 0.0)
            if not np.isfinite(errors[-1]):
                raise InputError(KEY, f"gives logits that are not finite for rows of {split}", FLOAT)
            outputs[split] = known._replace(logits=logits)
        if THRESHOLD in self.network.splits.keys() - outputs.keys():
            # Cross-fitted logits of validation rows change as much as the final logits of the same rows.
            known, change = self.network.splits[THRESHOLD], outputs[JUDGE].logits - self.network.splits[JUDGE].logits
            outputs[THRESHOLD] = known._replace(logits=known.logits + change)
        return replace(self.network, splits=outputs), max(errors)


def _quantize(path: Path, limit: float) -> None:
    """Replace the LSTM layers of an ONNX file by quantized ones. Raises InputError if it has none.

    `limit`: inputs of the layers are clipped to it. They are scaled by the largest one of a batch, so a single far
    number would otherwise round those of all other rows to zero.
    """
    model: Any = onnx.load(path)
    if not any(node.op_type == "LSTM" for node in model.graph.node):
        raise InputError(KEY, "the model has no LSTM layer to quantize", FLOAT)
    bounds = [numpy_helper.from_array(np.array(sign * limit, np.float32), f"{CLIP}/{sign}") for sign in (-1, 1)]
    model.graph.initializer.extend(bounds)
    for index, node in reversed([*enumerate(model.graph.node)]):
        if node.op_type == "LSTM":
            clipped = f"{CLIP}/{index}"
            values = [node.input[0], *(bound.name for bound in bounds)]
            model.graph.node.insert(index, onnx.helper.make_node("Clip", values, [clipped]))
            node.input[0] = clipped
    del model.graph.value_info[:]  # shapes of the float32 layers, which quantize_dynamic would contradict
    logging.disable(logging.WARNING)  # advice on steps that only graphs of images need
    try:
        quantize_dynamic(
            model,
            path,
            op_types_to_quantize=["LSTM"],
            weight_type=QuantType.QInt8,
            per_channel=True,
            reduce_range=True,
        )
    finally:
        logging.disable(logging.NOTSET)


def _lost(before: SplitMetrics, after: SplitMetrics) -> dict[str, float]:
    """Return by how much each metric in `LOST` is lower after the quantization."""
    values = [
        (metrics.accuracy, metrics.recall, None if metrics.positive is None else metrics.positive.recall)
        for metrics in (before, after)
    ]
    pairs = zip(LOST, *values, strict=True)
    return {name: round(old - new, 6) for name, old, new in pairs if old is not None and new is not None}
