"""Rebuild the Parquet files of Japanese Vowels in seqclf/data/builtin from the archive's `.ts` files.

The wheel of sktime 1.2.0 holds those files.

    python scripts/build_japanese_vowels.py FOLDER_WITH_JapaneseVowels_TRAIN.ts_AND_TEST.ts

Each row: `id` (position in its file, from 1), `speaker` (1-9) and `lpc`, a list of 12-channel frames.
"""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

BUILTIN = Path(__file__).parents[1] / "seqclf" / "data" / "builtin"


def parse(path: Path) -> pa.Table:
    """Read a `.ts` file, whose data lines hold the channels separated by colons, then the label."""
    lines = path.read_text().splitlines()
    header_end = next(index for index, line in enumerate(lines) if line.strip().lower() == "@data")
    ids, speakers, recordings = [], [], []
    for line in lines[header_end + 1 :]:
        *channel_texts, speaker = line.split(":")
        # NaN is the archive's padding of recordings that are shorter than the longest.
        channels = [[float(value) for value in text.split(",") if value != "NaN"] for text in channel_texts]
        if len({len(channel) for channel in channels}) != 1:
            raise ValueError(f"{path.name}: channels of different length")
        ids.append(len(ids) + 1)
        speakers.append(int(speaker))
        recordings.append(list(zip(*channels, strict=True)))
    vectors = pa.array(recordings, pa.list_(pa.list_(pa.float32())))
    return pa.table({"id": ids, "speaker": pa.array(speakers, pa.int8()), "lpc": vectors})


def main() -> None:
    for split in ("TRAIN", "TEST"):
        table = parse(Path(sys.argv[1]) / f"JapaneseVowels_{split}.ts")
        target = BUILTIN / f"japanese_vowels_{split.lower()}.parquet"
        pq.write_table(
            table,
            target,
            compression="zstd",
            compression_level=19,
            use_dictionary=False,
            use_byte_stream_split=["lpc.list.element.list.element"],
        )
        print(target, table.num_rows, target.stat().st_size)


if __name__ == "__main__":
    main()
