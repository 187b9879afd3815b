"""Mutated files end in success or in one clear error line, and no row is lost. scripts/fuzz.py runs more cases."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import yaml
from fuzzing.bases import bases
from fuzzing.cases import Case, examine, make_case, message_faults, options_of
from fuzzing.checks import check_order, check_rows, check_tokens
from fuzzing.columns import pick
from fuzzing.files import write
from fuzzing.mutations import BYTES, TEXT, change_file
from fuzzing.truth import truth

from seqclf.data.prepare_data import prepare
from seqclf.errors import InputError
from seqclf.system.state_validation import read_json, read_yaml

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


@pytest.mark.parametrize(("read", "write_text"), [(read_json, json.dumps), (read_yaml, yaml.safe_dump)])
def test_mutated_settings_are_read_or_refused_in_one_clear_line(tmp_path, read, write_text):
    """Only mutations of bytes and texts are applied. Those of values are in bundle_mutations.py."""
    path = tmp_path / "folder" / "settings"
    path.parent.mkdir()
    levels = (f"{level}: &{level} [{', '.join(9 * ['*' + below])}]" for below, level in pairwise("abcdefghi"))
    bomb = "\n".join(["a: &a [x]", *levels])
    ends = set()
    for number in range(120):
        random = np.random.default_rng([SEED, number])
        text = write_text({"data": {"label": "y", "max_bad_share": 0.5, "fields": [{"id": 1, "time": None}]}})
        text = pick(random, [text, text + bomb, text + random.choice(["!!python/name:os.system", "<<: *a", "? [1]"])])
        mutated = [*BYTES, *(name for name in TEXT if name != "huge_line")]
        path.write_text(text)
        for name in random.choice(mutated, 2):
            change_file(random, str(name), path, "utf-8")
        try:
            read(path)
            ends.add("success")
        except InputError as error:
            ends.add("error")
            assert not list(message_faults(str(error)))
    assert ends == {"success", "error"}
