"""Where rows come from: paths, globs, folders, URLs, queries; which files those are, and in which state."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from glob import glob, has_magic
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb

from seqclf.data.reading.class_folders import Listing, list_files
from seqclf.data.reading.queries import QUERY, Named, cte_names, local_path, named_files, named_paths, scheme_of
from seqclf.errors import InputError

COMPRESSED = (".gz", ".zst")
FOLDER_KINDS = ("parquet", "csv", "json")  # of a folder, DuckDB reads **/*.parquet with read_parquet, and so on


@dataclass(frozen=True)
class Source:
    """One place to read from: `path` is a path, a glob, a folder, a URL, a `.sql` file, a query or `builtin:NAME`.

    `key` is what the user set to name it (`data.train`), for error lines. DuckDB keeps to `memory_limit` and spills
    into the folder `spill`. `listing`: the files of a folder, where it is to be listed only once.
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
        if (listing := listing_of(source)) is not None:
            return listing.used
        path = _path(source)
        return [path] if path.exists() else _matches(str(path))
    script = [] if QUERY.match(source.path) else [_path(source)]
    return script + [path for named in named_files(text) for path in _query_files(named)]


def class_folder(source: Source) -> Path | None:
    """The folder of a source that is one: a file, or a folder of files, per class."""
    if source.path.startswith("builtin:") or is_remote(source) or query_text(source) is not None:
        return None
    path = _path(source)
    return path if path.is_dir() else None


def _path(source: Source) -> Path:
    return local_path(source.path).expanduser()


def listing_of(source: Source) -> Listing | None:
    """The files of a class folder; None for other sources."""
    if source.listing is not None:
        return source.listing
    folder = class_folder(source)
    return None if folder is None else list_files(folder)


def listed(source: Source) -> Source:
    """The same source with its folder listed now. For one run only: later changes of the folder go unseen."""
    return replace(source, listing=listing_of(source))


def _matches(pattern: str) -> list[Path]:
    return [Path(path) for path in sorted(glob(pattern, recursive=True))]  # noqa: PTH207 (it may be absolute)


def _query_files(named: Named) -> list[Path]:
    """The files that DuckDB reads for a name in a query; some more where a folder holds files of several kinds."""
    if scheme_of(named.path) is not None:
        return []
    path = local_path(named.path)
    with suppress(OSError, ValueError):  # a name too long for the file system, or with a null byte, is no file
        if path.is_dir():
            return _below(path, named.function)
        if path.is_file() and not has_magic(named.path):
            return [path]
    with suppress(duckdb.Error), duckdb.connect() as connection:  # what cannot be listed cannot be known
        rows = connection.execute("SELECT file FROM glob(?)", [named.path]).fetchall()
        return [Path(file) for (file,) in sorted(rows)]
    return []


def _below(folder: Path, function: str) -> list[Path]:
    """The files of a folder and its sub-folders, hidden ones included, that a table function of DuckDB reads."""
    kinds = [kind for kind in FOLDER_KINDS if kind in function.replace("ndjson", "json")] or FOLDER_KINDS
    endings = tuple(f".{kind}" for kind in kinds)
    walk = os.walk(folder)  # links to folders are not followed, as DuckDB does not either
    return sorted(Path(above, name) for above, _, names in walk for name in names if name.endswith(endings))


def is_remote(source: Source) -> bool:
    text = query_text(source)
    if text is None:
        return scheme_of(source.path) is not None
    return any(scheme_of(name) is not None for name in named_paths(text))


def is_volatile(source: Source) -> bool:
    """Whether what it gives may change without a sign: a URL, or a query with a name whose files are not known."""
    text = query_text(source)
    if text is None:
        return is_remote(source)
    named = [entry for entry in named_files(text) if entry.path.casefold() not in cte_names(text)]
    return not named or not all(_query_files(entry) for entry in named)


def query_text(source: Source) -> str | None:
    if QUERY.match(source.path):
        return source.path
    path = _path(source)
    if source.path.endswith(".sql") and path.is_file():
        try:
            return path.read_text(encoding="utf-8")
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


def resolved(paths: Iterable[Path]) -> list[Path]:
    """Absolute paths without links. Each folder is resolved once: with 20,000 files that takes a tenth of the time."""
    folders: dict[Path, Path] = {}
    real = []
    for path in paths:
        if path.parent not in folders:
            folders[path.parent] = path.parent.resolve()
        file = folders[path.parent] / path.name
        real.append(file.resolve() if path.name == ".." or file.is_symlink() else file)
    return real


def file_state(path: Path) -> list[int]:
    """What tells one state of a file from another without reading it: its size, its times of change and its inode.

    The time of modification can be set, and is kept by copies; that of the last change of the inode cannot. The device
    is left out: its number is another after each mount of a network drive or a container's disk.
    """
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def source_state(source: Source) -> dict[str, Any]:
    """What tells one state of the files from another, cheaply: path and state of each."""
    source = listed(source)
    paths = local_files(source)
    states = [[str(real), file_state(path)] for path, real in zip(paths, resolved(paths), strict=True)]
    options = [source.path, source.header, source.encoding, source.quote, source.delimiter, query_text(source)]
    if source.listing is not None:
        options.append(str(source.listing))  # the names of refused files are part of the dataset
    return {"options": options, "files": states}


def source_digest(source: Source) -> str:
    return json.dumps(source_state(source))
