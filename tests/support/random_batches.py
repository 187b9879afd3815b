"""Random inputs of networks, with the shapes and the padding at which exported networks go wrong."""

import numpy as np

from seqclf.models.onnx.exporter import example_inputs


def draw(fields, generator, number):
    """Inputs of random shapes. The first batch is a row of one token, and every second one is padded with NaN."""
    batch, time = (1, 1) if number == 0 else generator.integers(1, [9, 25]).tolist()
    lengths = generator.integers(1, time + 1, batch)
    inputs = example_inputs(fields, lengths, time + int(generator.integers(0, 3)), generator)
    if number % 2:
        for name in [field["name"] for field in fields if field["kind"] == "number"]:
            for row, length in enumerate(lengths):
                inputs[name][row, length:] = np.nan
    return inputs
