"""Where rows come from: paths, globs, folders, URLs, queries; which files those are, and in which state."""

from __future__ import annotations

import json
from dataclasses import dataclass
from glob import glob
from importlib.resources import files
from pathlib import Path

from seqclf.data.class_folders import list_files
from seqclf.data.queries import QUERY, named_paths, scheme_of
from seqclf.errors import InputError

COMPRESSED = (".gz", ".zst")


@dataclass(frozen=True)
class Source:
    """One place to read from: `path` is a path, a glob, a folder, a URL, a `.sql` file, a query or `builtin:NAME`.

    `key` is what the user set to name it (`data.train`), for error lines. DuckDB keeps to `memory_limit` and spills
    into the folder `spill`.
    """

    path: str
    key: str
    header: bool = True
    encoding: str = "utf-8"
    quote: str | None = None
    delimiter: str | None = None
    memory_limit: str | None = None
    spill: str | None = None

    def __str__(self) -> str:
        return self.key if QUERY.match(self.path) else self.path


def local_files(source: Source) -> list[Path]:
    """The files a source reads, as far as they can be known: those a query names count."""
    if source.path.startswith("builtin:"):
        return [_builtin(source)]
    if is_remote(source):
        return []
    text = query_text(source)
    if text is None:
        own = Path(source.path).expanduser()
        if own.is_dir():
            return list_files(own).used
        return [own] if own.exists() else _matches(str(own))
    found = [path for name in named_paths(text) if scheme_of(name) is None for path in _matches(name)]
    return ([Path(source.path)] if source.path.endswith(".sql") else []) + found


def class_folder(source: Source) -> Path | None:
    """The folder of a source that is one: a file, or a folder of files, per class."""
    if source.path.startswith("builtin:") or is_remote(source) or query_text(source) is not None:
        return None
    path = Path(source.path).expanduser()
    return path if path.is_dir() else None


def _matches(pattern: str) -> list[Path]:
    return [Path(path) for path in sorted(glob(pattern, recursive=True))]  # noqa: PTH207 (it may be absolute)


def is_remote(source: Source) -> bool:
    text = query_text(source)
    if text is None:
        return "://" in source.path
    return any(scheme_of(name) is not None for name in named_paths(text))


def is_volatile(source: Source) -> bool:
    """Whether what it gives may change without a sign: a URL, or a query of which no file is known."""
    files = [path for path in local_files(source) if path.suffix != ".sql"]
    return is_remote(source) or (query_text(source) is not None and not files)


def query_text(source: Source) -> str | None:
    if QUERY.match(source.path):
        return source.path
    if source.path.endswith(".sql") and Path(source.path).is_file():
        try:
            return Path(source.path).read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise InputError(f"{source.path}: cannot be read as utf-8 text ({error}); write the query anew") from None
    return None


def require_files(source: Source) -> None:
    """Raise if the source is SQL: a bundle is used on files, never on a query."""
    if query_text(source) is not None:
        raise InputError(
            f"{source.key}={source.path}: is SQL, which only training reads; run it in DuckDB and give the file: "
            "COPY (SELECT …) TO 'new.parquet'"
        )


def suffix_of(path: str | Path) -> str:
    """The ending that tells the kind of file, without that of a compression."""
    name = Path(path)
    return (Path(name.stem) if name.suffix.lower() in COMPRESSED else name).suffix.lower()


def _builtin(source: Source) -> Path:
    path = Path(str(files("seqclf.data.builtin").joinpath(source.path.removeprefix("builtin:"))))
    if not path.is_file():
        raise InputError(f"{source.key}={source.path}: no such built-in file")
    return path


def file_state(path: Path) -> list[int]:
    """What tells one state of a file from another without reading it: its size, its times of change and its inode.

    The time of modification can be set, and is kept by copies; that of the last change of the inode cannot. The device
    is left out: its number is another after each mount of a network drive or a container's disk.
    """
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def source_digest(source: Source) -> str:
    """What tells one state of the files from another, cheaply: path and state of each."""
    states = [(str(path.resolve()), file_state(path)) for path in local_files(source)]
    options = [source.path, source.header, source.encoding, source.quote, source.delimiter, query_text(source)]
    if (folder := class_folder(source)) is not None:
        options.append(str(list_files(folder)))  # the names of refused files are part of the dataset
    return json.dumps([options, states])
