"""Reader of the offline run file of Weights & Biases."""

import struct

from wandb.proto.wandb_internal_pb2 import Record

HEADER, BLOCK = 7, 32768


def records(path):
    """Yield the protocol buffers in a `.wandb` file.

    The file is a LevelDB log: blocks of 32 KiB, in which a record has one or more parts. No part crosses a block.
    """
    data = path.read_bytes()
    assert data[:4] == b":W&B"
    position, content = HEADER, b""
    while position + HEADER <= len(data):
        remaining = BLOCK - position % BLOCK
        if remaining < HEADER:  # padding: a header does not fit any more
            position += remaining
            continue
        _, length, part = struct.unpack("<IHB", data[position : position + HEADER])
        content += data[position + HEADER : position + HEADER + length]
        position += HEADER + length
        if part in (1, 4):  # a full record, or the last part of one
            record = Record()
            record.ParseFromString(content)
            yield record
            content = b""


def run_of(recorded):
    """Return the record of the run itself: its id, project, group, tags."""
    return next(record.run for record in recorded if record.HasField("run"))
