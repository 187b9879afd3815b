"""Refused rows are written to a file. Too many of them, or the first with on_bad_row=error, stop the run."""

import json

import pytest

from seqclf.data.schema.quarantine import Quarantine
from seqclf.data.schema.rows import Refusal
from seqclf.errors import InputError

ROW = Refusal("t.csv", 7, "tokens", "is empty; é")


def test_refusals_are_written_with_file_row_column_and_reason(tmp_path):
    quarantine = Quarantine("quarantine", 1.0)
    quarantine.add([ROW, ROW])
    quarantine.write(tmp_path / "q.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "q.jsonl").read_text().splitlines()]
    assert lines == [{"file": "t.csv", "row": 7, "column": "tokens", "reason": "is empty; é"}] * 2


@pytest.mark.parametrize(("on_bad_row", "rows"), [("drop", [ROW]), ("quarantine", [])])
def test_nothing_is_written_if_rows_are_dropped_or_none_is_refused(tmp_path, on_bad_row, rows):
    quarantine = Quarantine(on_bad_row, 1.0)
    quarantine.add(rows)
    quarantine.write(tmp_path / "q.jsonl")
    assert quarantine.refusals == rows and not (tmp_path / "q.jsonl").exists()


def test_error_stops_at_the_first_bad_row():
    with pytest.raises(InputError, match=r"^t.csv: row 7: tokens is empty; é \(data.on_bad_row=quarantine goes on"):
        Quarantine("error", 1.0).add([ROW])


def test_the_share_counts_the_rows_of_the_source():
    quarantine = Quarantine("quarantine", 0.1)
    quarantine.check_share("t.csv", 10, [ROW])
    quarantine.check_share("t.csv", 0, [])
    with pytest.raises(
        InputError, match=r"t.csv: row 7: .*\(2 of 19 rows of t.csv are refused, more than data.max_bad"
    ):
        quarantine.check_share("t.csv", 19, [ROW] * 2)
