"""Tables in the cache: one file per content."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seqclf.data.storage import cache as stored_tables
from seqclf.data.storage.cache import store_table
from seqclf.errors import InputError


def test_the_path_depends_on_the_rows_alone(tmp_path):
    table = pa.table({"x": list(range(50))})
    path = store_table(table, tmp_path, "data")
    state = path.stat()
    assert store_table(pa.concat_tables([table[:7], table[7:]]), tmp_path, "data") == path
    assert store_table(table.replace_schema_metadata({"pandas": "{}"}), tmp_path, "data") == path
    assert store_table(table.to_reader(3), tmp_path, "data") == path
    assert path.stat().st_mtime_ns == state.st_mtime_ns and path.stat().st_ino == state.st_ino
    assert store_table(table[1:], tmp_path, "data") != path
    assert pq.read_table(path).equals(table)


def test_only_the_user_may_read_a_stored_table(tmp_path):
    assert store_table(pa.table({"x": [1]}), tmp_path, "data").stat().st_mode & 0o777 == 0o600


def test_a_cut_file_is_written_again(tmp_path):
    path = store_table(pa.table({"x": [1]}), tmp_path, "data")
    path.write_bytes(path.read_bytes()[:10])
    assert pq.read_table(store_table(pa.table({"x": [1]}), tmp_path, "data")).to_pydict() == {"x": [1]}


def test_tables_without_rows_and_types_without_parquet_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"^test: has no rows; give a table"):
        store_table(pa.table({"x": pa.array([], pa.int64())}), tmp_path, "test")
    with pytest.raises(InputError, match=r"^test: cannot be written as Parquet"):
        store_table(pa.table({"x": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}), tmp_path, "test")
    assert not list((tmp_path / stored_tables.FOLDER).iterdir())
