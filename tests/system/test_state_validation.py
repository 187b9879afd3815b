"""Files of JSON and YAML from others end in a value or in one line, in bounded time and memory."""

import json
import os

import pytest
import yaml

from seqclf.errors import InputError
from seqclf.system import state_validation
from seqclf.system.state_validation import read_json, read_yaml

# PyYAML reads 1:30 as 90, in quadratic time.
BASE_60 = ["z: 1" + ":1" * 900_000, "z: !!float 1" + ":100" * 300, 'z: !!int "1' + "\\x3a1" * 9000 + '"']
DEEP = ["[" * depth + "]" * depth for depth in (101, 900, 100_000)]
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 8)}]\n" for level in range(1, 12)
)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "file"


@pytest.mark.parametrize(
    "text", [*DEEP, '{"a":' * 101 + "1" + "}" * 101, "{", "9" * 5000, "\ud800".encode("utf-8", "surrogatepass")]
)
def test_json_that_is_no_plain_value_is_one_error(file, text):
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match="file: is not readable JSON"):
        read_json(file)


@pytest.mark.parametrize(
    "text", [*DEEP, BOMB, "&a [*a]", "a: [", "? [a]\n: b", "9" * 5000, "\x00", *BASE_60, "!!python/name:os.system"]
)
def test_yaml_that_is_no_plain_value_is_one_error(file, text):
    file.write_text(text)
    with pytest.raises(InputError, match="file: is not readable YAML"):
        read_yaml(file)


def test_plain_values_are_read(file):
    shared = {"sizes": [1, 2.5, None]}
    for value in ({"a": shared, "b": [shared, shared]}, [], "text", 1, json.loads("[" * 99 + "]" * 99)):
        file.write_text(json.dumps(value))
        assert read_json(file) == value
        file.write_text(yaml.safe_dump(value))
        assert read_yaml(file) == value


@pytest.mark.parametrize(("read", "bound"), [(read_json, "MAX_BYTES"), (read_yaml, "MAX_YAML_BYTES")])
def test_large_files_and_pipes_are_not_read(file, monkeypatch, read, bound):
    monkeypatch.setattr(state_validation, bound, 10)
    file.write_text('"' + "x" * 20 + '"')
    with pytest.raises(InputError, match="file: is not a file of at most"):
        read(file)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(InputError, match="file: is not a file of at most"):
        read(file)
