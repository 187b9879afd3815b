"""Rebuild the Parquet files of Spoken Arabic Digit in seqclf/data/builtin from the text files of the UCI repository.

    python scripts/build_spoken_arabic_digits.py FOLDER_WITH_Train_Arabic_Digit.txt_AND_Test_Arabic_Digit.txt

The text files hold a block of lines for each utterance, with blank lines between blocks, and a line of 13 MFCCs for
each frame. Blocks are sorted by digit, then by sex (male first), then by speaker, who says each digit ten times.

The package ships a part: a third of the training speakers with all of their utterances, and all test speakers with
every second utterance. MFCCs are rounded to half precision, 11 significant bits, which halves the size of the files.

Columns of each row: `id` (speaker, digit and repetition), `speaker`, `digit` (0-9) and `mfcc`, a list of 13-channel
frames.
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

BUILTIN = Path(__file__).parents[1] / "seqclf" / "data" / "builtin"
DIGITS, REPETITIONS = 10, 10


def parse(path: Path, split: str) -> pa.Table:
    """Read all utterances of a text file. Raises ValueError if speakers and digits are not complete."""
    blocks = [block.split("\n") for block in path.read_text().replace("\r", "").split("\n\n")]
    frames = [[line.split() for line in block if line.strip()] for block in blocks]
    utterances = [np.array(lines, np.float16).astype(np.float32) for lines in frames if lines]
    speakers_of_a_sex, rest = divmod(len(utterances), DIGITS * REPETITIONS * 2)
    if rest or any(utterance.shape[1:] != (13,) for utterance in utterances):
        raise ValueError(f"{path.name}: {len(utterances)} utterances are not ten of each speaker and digit")
    rows: dict[str, list] = {"id": [], "speaker": [], "digit": [], "mfcc": []}
    for index, utterance in enumerate(utterances):
        index, repetition = divmod(index, REPETITIONS)
        index, number = divmod(index, speakers_of_a_sex)
        digit, sex = divmod(index, 2)
        speaker = f"{split}_{'mf'[sex]}{number:02d}"
        rows["id"].append(f"{speaker}_{digit}_{repetition}")
        rows["speaker"].append(speaker)
        rows["digit"].append(digit)
        rows["mfcc"].append(utterance.tolist())
    types = {"id": pa.string(), "speaker": pa.string(), "digit": pa.int8(), "mfcc": pa.list_(pa.list_(pa.float32()))}
    return pa.table({name: pa.array(values, types[name]) for name, values in rows.items()})


def shipped_part(table: pa.Table, split: str) -> pa.Table:
    """Return the rows that the package ships."""
    if split == "test":
        return table.take(np.arange(0, table.num_rows, 2))
    speakers = sorted(set(table["speaker"].to_pylist()))[::3]
    return table.filter(pc.is_in(table["speaker"], pa.array(speakers)))


def main() -> None:
    for split in ("train", "test"):
        table = shipped_part(parse(Path(sys.argv[1]) / f"{split.title()}_Arabic_Digit.txt", split), split)
        target = BUILTIN / f"spoken_arabic_digits_{split}.parquet"
        pq.write_table(
            table,
            target,
            compression="zstd",
            compression_level=19,
            use_dictionary=["speaker"],
            use_byte_stream_split=["mfcc.list.element.list.element"],
        )
        print(target, table.num_rows, target.stat().st_size)


if __name__ == "__main__":
    main()
