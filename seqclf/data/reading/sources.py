"""Sources of rows: paths, globs, folders, URLs and queries, the files behind them, and the state of those files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from glob import glob, has_magic
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import duckdb

from seqclf.config.suggestions import similar_file
from seqclf.data.reading.class_folders import Listing, list_files
from seqclf.data.reading.object_store import fetch, is_object_url, url_of
from seqclf.data.reading.queries import QUERY, NamedFiles, cte_names, local_path, named_files, named_paths, scheme_of
from seqclf.errors import InputError

COMPRESSED = (".gz", ".zst")
FOLDER_KINDS = ("parquet", "csv", "json")  # for a folder, DuckDB's read_parquet reads **/*.parquet, and so on


class ReaderOptions(TypedDict):
    """Options with which files are read, in training and in prediction, see conf/data/files.yaml.

    `quote` and `delimiter` are None where they are detected in each file.
    """

    header: bool
    encoding: str
    quote: str | None
    delimiter: str | None
    query: str | None


@dataclass(frozen=True)
class Source:
    """Files or a query to read rows from, and how.

    `path`: a path, a glob, a folder, a URL, a `.sql` file, a query or `builtin:NAME`. `key`: the option that names it
    (`data.train`), for error messages. `memory_limit`: of DuckDB, such as 2GB. `spill`: folder that DuckDB may spill
    to. `listing`: the files of a class folder, once it is listed. `query`: a SELECT over the table `input`, the rows of
    the files, whose result is read instead. `mirror`: local copy of the objects that `path` names (see `fetched`).
    `table`: rows in memory (see `tables.to_arrow`), which `path` then only names for error messages.
    """

    path: str
    key: str
    header: bool = True
    encoding: str = "utf-8"
    quote: str | None = None
    delimiter: str | None = None
    memory_limit: str | None = None
    spill: str | None = None
    listing: Listing | None = field(default=None, compare=False, repr=False)
    query: str | None = None
    mirror: str | None = field(default=None, compare=False, repr=False)
    table: Any = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return self.key if is_query(self.path) else self.path

    @property
    def short_name(self) -> str:
        """The last part of the path, or the key of a query, for progress."""
        return Path(str(self)).name or str(self)


def fetched(source: Source, cache: str | Path | None = None) -> Source:
    """Return the source with a mirror of its objects in a cache folder. A source of files, or of SQL, stays as it is.

    `cache`: None for the usual one. Raises InputError if the objects cannot be read.
    """
    if source.table is not None or is_query(source.path) or not is_object_url(source.path):
        return source
    usual = os.environ.get("SEQCLF_CACHE", "~/.cache/seqclf")
    return replace(source, mirror=str(fetch(source.path, source.key, Path(cache or usual))))


def local_files(source: Source) -> list[Path]:
    """The local files of a source, as far as they can be known: for a query, its `.sql` file and those it names."""
    if source.path.startswith("builtin:"):
        return [_builtin(source)]
    if is_remote(source) or source.table is not None:
        return []
    text = query_text(source)
    if text is None:
        if (listing := listing_of(source)) is not None:
            return listing.used
        path = _path(source)
        return [path] if path.exists() else _matches(str(path))
    script = [] if is_query(source.path) else [_path(source)]
    return script + [path for entry in named_files(text) for path in _query_files(entry)]


def readable_files(source: Source) -> list[Path]:
    """The files of a source that is neither a query nor a URL. Raises InputError unless all can be read together."""
    paths = local_files(source)
    if not paths:
        problem = "an empty folder" if class_folder(source) else "no such file"
        remedy = similar_file(source.path) or f"check the path (it is read from {Path.cwd()})"
        raise InputError(f"{source.key}={source.path}", problem, remedy)
    for path in paths:
        if path.is_dir():
            name = url_of(str(path))
            raise InputError(f"{source.key}={source.path}", f"{name} is a folder", f"name its files: {name}/*.parquet")
        if path.stat().st_size == 0 and class_folder(source) is None:
            raise InputError(url_of(str(path)), "the file is empty", "give a file with a row per sequence")
        if suffix_of(path) != suffix_of(paths[0]):
            raise InputError(
                f"{source.key}={source.path}",
                url_of(f"{paths[0]} and {path} are of two kinds"),
                "name one kind of file",
            )
    return paths


def class_folder(source: Source) -> Path | None:
    """The folder of a source with a file, or a folder of files, per class. None for other sources."""
    if source.path.startswith("builtin:") or is_remote(source) or query_text(source) is not None:
        return None
    if source.table is not None:
        return None
    path = _path(source)
    return path if path.is_dir() else None


def _path(source: Source) -> Path:
    return local_path(source.mirror or source.path).expanduser()


def listing_of(source: Source) -> Listing | None:
    """The files of a class folder. None for other sources."""
    if source.listing is not None:
        return source.listing
    folder = class_folder(source)
    return None if folder is None else list_files(folder)


def listed(source: Source) -> Source:
    """The same source with its class folder listed. Keep it for one run only: later changes of the folder go unseen."""
    return replace(source, listing=listing_of(source))


def _matches(pattern: str) -> list[Path]:
    return [Path(path) for path in sorted(glob(pattern, recursive=True))]  # noqa: PTH207 (it may be absolute)


def _query_files(entry: NamedFiles) -> list[Path]:
    """The files that DuckDB reads for a name in a query, and more if a folder holds files of several kinds."""
    if scheme_of(entry.path) is not None:
        return []
    path = local_path(entry.path)
    with suppress(OSError, ValueError):  # a name too long for the file system, or with a null byte, is no file
        if path.is_dir():
            return _files_below(path, entry.function)
        if path.is_file() and not has_magic(entry.path):
            return [path]
    with suppress(duckdb.Error), duckdb.connect() as connection:  # files of other file systems stay unknown
        rows = connection.execute("SELECT file FROM glob(?)", [entry.path]).fetchall()
        return [Path(file) for (file,) in sorted(rows)]
    return []


def _files_below(folder: Path, function: str) -> list[Path]:
    """The files of a folder and its sub-folders, hidden ones too, that a table function of DuckDB reads."""
    kinds = [kind for kind in FOLDER_KINDS if kind in function.replace("ndjson", "json")] or FOLDER_KINDS
    endings = tuple(f".{kind}" for kind in kinds)
    walk = os.walk(folder)  # like DuckDB, it does not follow links to folders
    return sorted(Path(parent, name) for parent, _, names in walk for name in names if name.endswith(endings))


def is_remote(source: Source) -> bool:
    """True for a URL, and for a query that names one."""
    text = query_text(source)
    if text is None:
        return source.mirror is None and scheme_of(source.path) is not None
    return any(scheme_of(name) is not None for name in named_paths(text))


def is_volatile(source: Source) -> bool:
    """True if the rows may change without a trace: for a URL, and for a query with a name whose files are unknown."""
    text = query_text(source)
    if text is None:
        return is_remote(source)
    entries = [entry for entry in named_files(text) if entry.path.casefold() not in cte_names(text)]
    return not entries or not all(_query_files(entry) for entry in entries)


def query_text(source: Source) -> str | None:
    """The SQL of a source that is a query or a `.sql` file, else None."""
    if source.table is not None:
        return None
    if is_query(source.path):
        return source.path
    if is_sql_file(source.path) and _path(source).is_file():
        return read_sql_file(_path(source), source.path)
    return None


def is_query(value: str) -> bool:
    """True for a query, and not for the path of a file that begins like one: `with space/t.csv`."""
    return QUERY.match(value) is not None and not glob(value)  # noqa: PTH207 (it may be absolute)


def is_sql_file(value: str) -> bool:
    """True for the path of a `.sql` file, False for a query."""
    return value.endswith(".sql") and not is_query(value)


def read_sql_file(path: Path, where: str) -> str:
    """The SQL in a file. `where`: how the file was named, for error messages."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(where, "no such file", f"check the path (it is read from {Path.cwd()})") from None
    except (OSError, UnicodeError) as error:
        raise InputError(where, f"is not utf-8 text ({error})", "save the query as utf-8") from None


def require_files(source: Source) -> None:
    """Raise InputError if the source is SQL: a bundle reads files only."""
    if query_text(source) is not None:
        raise InputError(
            f"{source.key}={source.path}",
            "is SQL, which only training reads",
            "run it in DuckDB and give the file: COPY (SELECT …) TO 'new.parquet'",
        )


def suffix_of(path: str | Path) -> str:
    """The ending of a file's name in lower case, without that of a compression.

    >>> suffix_of("data/train.CSV.gz")
    '.csv'
    """
    name = Path(path)
    return (Path(name.stem) if name.suffix.lower() in COMPRESSED else name).suffix.lower()


def _builtin(source: Source) -> Path:
    path = Path(str(files("seqclf.data.builtin").joinpath(source.path.removeprefix("builtin:"))))
    if not path.is_file():
        raise InputError(f"{source.key}={source.path}", "no such built-in file")
    return path


def resolved(paths: Iterable[Path]) -> list[Path]:
    """Absolute paths without links."""
    # Each folder is resolved once: with 20,000 files that takes a tenth of the time.
    folders: dict[Path, Path] = {}
    real = []
    for path in paths:
        if path.parent not in folders:
            folders[path.parent] = path.parent.resolve()
        file = folders[path.parent] / path.name
        real.append(file.resolve() if path.name == ".." or file.is_symlink() else file)
    return real


class FileState(NamedTuple):
    """State of a file as the file system knows it: size in bytes, times of change in nanoseconds, and inode.

    The time of modification can be set, and copies keep it. The time of the inode's change cannot be set. The device is
    left out, because its number changes with each mount of a network drive or a container's disk.
    """

    size: int
    modified_ns: int
    inode_changed_ns: int
    inode: int


class FileEntry(NamedTuple):
    """A file by its absolute path, and its state."""

    path: str
    state: FileState


@dataclass(frozen=True)
class SourceState:
    """Options of a source, and its files in their present state."""

    options: tuple[Any, ...]
    files: tuple[FileEntry, ...]


def file_state(path: Path) -> FileState:
    """Look up the state of a file, without reading the file."""
    status = path.stat()
    return FileState(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def source_state(source: Source) -> SourceState:
    """Look up the state of all files of a source, without reading them."""
    source = listed(source)
    paths = local_files(source)
    entries = [FileEntry(str(real), file_state(path)) for path, real in zip(paths, resolved(paths), strict=True)]
    options = [source.path, source.header, source.encoding, source.quote, source.delimiter, query_text(source)]
    options.append(source.query)
    if source.listing is not None:
        options.append(str(source.listing))  # the names of refused files are part of the dataset
    return SourceState(tuple(options), tuple(entries))


def source_digest(source: Source) -> str:
    """Text that changes with the options and the state of the files."""
    return json.dumps(asdict(source_state(source)))
