"""Memory that a model needs to read one long row whole. A row that needs too much is rejected before it is computed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import gettempdir

import numpy as np
import onnxruntime

from seqclf.batching.collate import pad
from seqclf.bundle.manifest import MODEL
from seqclf.bundle.rows.sequence_reader import LONG_ROW
from seqclf.bundle.session import CPU, explain_run_errors
from seqclf.data.field_spec import FieldSpec, kind_of
from seqclf.data.ragged import Ragged
from seqclf.system.atomic_files import scratch_folder
from seqclf.system.threads import available_memory

MAX_MEMORY_FRACTION = 0.5  # share of the memory of this process that one row may use
LENGTHS = (1023, 2047, 4095)  # tokens of the measured rows; full binary trees have such numbers of nodes


class RowMemory:
    """Predicts the memory that the model `content` needs for one row on a CPU.

    The memory for n tokens is a + b n + c n² bytes, fit to three rows of zeros when the first row of more than
    `LONG_ROW` tokens comes.
    """

    def __init__(self, content: bytes, folder: Path, specs: Sequence[FieldSpec]):
        self.content, self.folder, self.specs = content, folder, specs
        self._coefficients: dict[tuple[tuple[int, ...], ...], np.ndarray] = {}

    def errors(self, sequences: Ragged) -> dict[int, str]:
        """Return the error of each long row that needs too much memory, as a dict position of the row → error."""
        errors = {}
        for row in np.flatnonzero(sequences.lengths > LONG_ROW).tolist():
            fields, lengths = pad(sequences, np.array([row]))
            limit, needed = MAX_MEMORY_FRACTION * available_memory(), self.needed(fields, int(lengths[0]))
            if needed > limit:
                errors[row] = (
                    f"has {lengths[0]:,} tokens; this model needs about {needed / 1e9:,.1f} GB for them, above the "
                    f"limit of {limit / 1e9:,.1f} GB ({MAX_MEMORY_FRACTION:.0%} of the memory); shorten the row, "
                    "or train a model that reads chunks, such as model=lstm model.bidirectional=false"
                )
        return errors

    def needed(self, fields: dict[str, np.ndarray], length: int) -> float:
        """Return the bytes that a row of `length` tokens needs. `fields`: the padded row."""
        shapes = tuple(fields[spec["name"]].shape[2:] for spec in self.specs)  # the ids of a token differ between rows
        if shapes not in self._coefficients:
            with explain_run_errors(MODEL):
                tensors, peaks = np.transpose([self._measure(fields, count) for count in LENGTHS])
            # Peaks include the scratch memory of kernels, but also unused ends of blocks, which spoil the fit of c. The
            # tensors alone have exact coefficients.
            self._coefficients[shapes] = np.polyfit(LENGTHS, tensors, 2).clip(0) * (peaks[-1] / tensors[-1])
        return float(np.polyval(self._coefficients[shapes], length))

    def _measure(self, fields: dict[str, np.ndarray], count: int) -> tuple[int, int]:
        """Run a row of `count` tokens. Return the most bytes of tensors at the same time, and the peak of memory."""
        inputs = {"lengths": np.array([count])}
        for spec in self.specs:
            values = fields[spec["name"]]
            shape = values.shape if spec.get("static") else (1, count, *values.shape[2:])
            inputs[spec["name"]] = np.zeros(shape, values.dtype)
            if kind_of(spec).is_tree:  # a balanced binary tree, whose root is the last node
                inputs[spec["name"]][0] = [*(count - 1 - (np.arange(count - 1, 0, -1) - 1) // 2), -1]
        options = onnxruntime.SessionOptions()
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(self.folder))
        options.intra_op_num_threads, options.log_severity_level, options.enable_profiling = 1, 3, True
        with scratch_folder(Path(gettempdir()), "profile-") as folder:
            options.profile_file_prefix = f"{folder}/row"
            session = onnxruntime.InferenceSession(self.content, options, providers=[CPU])
            session.run(["logits"], inputs)
            events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        nodes = [event["args"] for event in events if "output_size" in event.get("args", {})]
        tensors = max(int(node.get("mem_bytes_requested_in_use", node["output_size"])) for node in nodes)
        return tensors, max(tensors, *(int(node.get("mem_in_use_peak", 0)) for node in nodes))
