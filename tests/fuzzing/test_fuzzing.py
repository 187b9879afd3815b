"""Mutated files end in success or in one clear error line, and no row is lost. scripts/fuzz.py runs more cases."""

import json
from dataclasses import replace

import pytest
from fuzzing.bases import bases
from fuzzing.cases import Case, examine, make_case, message_faults, options_of
from fuzzing.checks import check_order, check_rows, check_tokens
from fuzzing.files import write
from fuzzing.truth import truth

from seqclf.data.prepare import prepare

SEED = 4
FILES = 40
QUICK = 14


@pytest.mark.parametrize("kind", bases())
def test_valid_files_are_read_completely(tmp_path, kind):
    base = bases()[kind]
    files = write(base, tmp_path, base.columns)
    outcome = examine(Case(0, base, [], options_of(base, tmp_path), files), tmp_path)
    assert (outcome.status, outcome.findings) == ("success", [])
    assert len(truth(base, files).untouched) == len(base.tokens())


@pytest.mark.parametrize(
    "number", [pytest.param(number, marks=[pytest.mark.slow] * (number >= QUICK)) for number in range(FILES)]
)
def test_mutated_files_end_in_success_or_one_clear_error_line(tmp_path, number):
    outcome = examine(make_case(SEED, number, tmp_path), tmp_path)
    assert outcome.findings == []
    assert outcome.status in ("success", "error")


def test_same_seed_and_number_give_the_same_file(tmp_path):
    for number in range(28):
        first, second = (make_case(SEED, number, tmp_path / f"{number}{name}") for name in "ab")
        assert first.mutations == second.mutations
        uncompressed = [path for path in first.files if path.suffix != ".gz"]  # gzip stores the time of writing
        assert all(path.read_bytes() == second.files[first.files.index(path)].read_bytes() for path in uncompressed)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "csv events"])
def test_checks_detect_lost_moved_and_changed_rows(tmp_path, kind):
    base = bases()[kind]
    write(base, tmp_path, base.columns)
    dataset = prepare(Case(0, base, [], options_of(base, tmp_path), []).build(tmp_path))

    def findings(check, columns):
        changed = replace(base, columns=columns)
        return list(check(changed, dataset, truth(changed, write(base, tmp_path, columns))))

    assert not any(findings(check, base.columns) for check in (check_rows, check_order, check_tokens))
    with_another_row = [
        (name, [*cells, *cells[-1:]] if name != "id" else [*cells, "another"]) for name, cells in base.columns
    ]
    assert findings(check_rows, with_another_row)
    if not base.events:
        assert findings(check_order, [(name, cells[::-1]) for name, cells in base.columns])
    other_tokens = [[cell[0] + 1, *cell[1:]] if isinstance(cell, list) else cell + 1 for cell in base.column(base.main)]
    assert findings(
        check_tokens, [(name, other_tokens if name == base.main else cells) for name, cells in base.columns]
    )


@pytest.mark.parametrize(
    "message", ["", "a.csv: one\ntwo", "a.csv: \x1b[2J", "a.csv" + 600 * "x", "something is wrong"]
)
def test_checks_detect_messages_that_are_not_one_clear_line(message):
    assert list(message_faults(message))
    assert not list(message_faults(f"t.csv: row 1: label is {json.dumps('é')}; fill it in"))
