"""Sources of rows, which are paths, globs, folders and URLs, with their files and the state of these."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from glob import glob
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from seqclf.data.reading.object_store import fetch, scheme_of, url_of
from seqclf.documents.terminal import show_note
from seqclf.errors import InputError
from seqclf.settings.typed_text import similar_file

if TYPE_CHECKING:
    from seqclf.settings.data_settings import DataOptions


class Listing(NamedTuple):
    """Files in a folder with one file or one sub-folder for each label (`per_class`: sub-folders).

    `used`: files that are read. `refused`: files that are rejected, with the reasons.
    """

    per_class: bool
    used: list[Path]
    refused: list[tuple[Path, str]]


def list_files(folder: Path) -> Listing:
    """List the files in a folder that has one file or one sub-folder for each label, named by it, as in torchvision.

    Deeper sub-folders and links to folders are included, names that begin with a dot are not. Raises InputError if the
    sub-folder of a label has no files.
    """
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    listing = Listing(bool(classes), [], [])
    classes_with_files = set()
    for below, is_file in _walk(folder):
        path, parts = folder / below, below.split("/")
        if any(part.startswith(".") for part in parts):
            continue
        if not is_file:
            listing.refused.append((path, "is no regular file; remove it"))
        elif classes and len(parts) == 1:
            listing.refused.append((path, "is in none of the folders of the classes; move it into one"))
        elif not classes and path.stat().st_size == 0:
            listing.refused.append((path, "is empty; give it a line per sequence"))
        else:
            listing.used.append(path)
            classes_with_files.add(parts[0])
    for path in classes:
        if path.name not in classes_with_files:
            raise InputError(path, "the folder of a class holds no file that can be read", "fill it, or remove it")
    return listing


def _walk(folder: Path) -> list[tuple[str, bool]]:
    """Return the relative paths of all files, sorted, each with True if it is a regular file.

    A link to a folder above the link is not followed, because the search would never end.
    """
    files: list[tuple[str, bool]] = []
    waiting = [("", frozenset({folder.resolve()}))]
    while waiting:
        current, above = waiting.pop()
        for entry in os.scandir(folder / current):  # `scandir` gets the type of each file without a further system call
            below = f"{current}/{entry.name}" if current else entry.name
            if not entry.is_dir():
                files.append((below, entry.is_file()))
            elif (real := Path(entry.path).resolve()) not in above:
                waiting.append((below, above | {real}))
    return sorted(files)


IN_HOME = "~/.cache/seqclf"
COMPRESSED = (".gz", ".zst")
FILE_URL = re.compile(r"file:(//(localhost)?)?(?=/)")  # like DuckDB, accept lower case only and do not decode %20
SQL = re.compile(r"\s*(select|with|from|pivot|unpivot)\s|.*\.sql$", re.IGNORECASE | re.DOTALL)


class ReaderOptions(TypedDict):
    """Options for reading files, in training and in prediction (see `DataOptions`)."""

    header: bool
    encoding: str
    quote: str | None
    delimiter: str | None
    query: str | None


@dataclass(frozen=True)
class Source:
    """Files from which rows are read, with the options for reading them.

    `path`: a path, a glob, a folder, a URL or `builtin:NAME`. `key`: option that gives it, such as `data.train`, for
    errors. `memory_limit`: most memory of DuckDB, such as 2GB. `spill`: folder for large temporary files. `listing`:
    files of a folder with a file or sub-folder for each label, once it is listed. `query`: a SELECT from the table
    `input`, whose result replaces the rows. `mirror`: local copy of a URL (see `fetched`). `table`: rows in memory (see
    `tables.to_arrow`), for which `path` is only a name in errors.
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
        return self.path

    @property
    def short_name(self) -> str:
        """Name of the source in progress messages: the last part of its path."""
        return Path(str(self)).name or str(self)


def source_of(options: DataOptions, split: str) -> Source | None:
    """Return the source of a split or of the label table (`labels`), or None if its option is not set."""
    path = getattr(options, split)
    if not path:
        return None
    reader = reader_of(options)
    if split == "labels":
        reader["query"] = None
    spill = str(Path(options.cache_dir).expanduser())
    source = Source(path, f"data.{split}", **reader, memory_limit=options.memory_limit, spill=spill)
    return fetched(source, options.cache_dir)


def reader_of(options: DataOptions) -> ReaderOptions:
    """Return the options for reading files, which also apply to new files at prediction."""
    return {key: getattr(options, key) for key in ReaderOptions.__annotations__}  # type: ignore[return-value]


def fetched(source: Source, cache: str | Path | None = None) -> Source:
    """Mirror the files of a URL in the folder `cache`, by default the cache, and return the source with the mirror."""
    if source.table is not None or scheme_of(source.path) is None:
        return source
    return replace(source, mirror=str(fetch(source.path, source.key, Path(cache_folder(cache)))))


def cache_folder(folder: str | Path | None = None) -> str | Path:
    """Return the folder of prepared data and fetched files, for None the default one."""
    return os.environ.get("SEQCLF_CACHE") or _default_cache() if folder is None else folder


@cache
def _default_cache() -> str:
    """Return the cache in the home folder, or without one that can be written to (a container), a temporary one."""
    with suppress(RuntimeError):  # the home folder is unknown
        home = Path(IN_HOME).expanduser()
        if home.exists() or os.access(next(path for path in home.parents if path.exists()), os.W_OK):
            return IN_HOME
    folder = Path(tempfile.gettempdir(), f"seqclf-{os.getuid()}")
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
    if not folder.is_dir() or folder.lstat().st_uid != os.getuid() or folder.lstat().st_mode & 0o022:
        folder = Path(tempfile.mkdtemp(prefix="seqclf-"))  # others could write to the first one
    show_note(f"no home folder can be written to: takes data.cache_dir={folder}; name another, or set SEQCLF_CACHE")
    return str(folder)


def local_files(source: Source) -> list[Path]:
    """Return the paths of the files that a source consists of. Rows in memory have no files."""
    if source.table is not None:
        return []
    if source.path.startswith("builtin:"):
        return [_builtin(source)]
    if (listing := listing_of(source)) is not None:
        return listing.used
    path = _path(source)
    return [path] if path.exists() else [Path(name) for name in sorted(glob(str(path), recursive=True))]  # noqa: PTH207


def readable_files(source: Source) -> list[Path]:
    """Return the files of a source that is a path, a glob or a folder.

    Raises InputError if there are none, if one is empty, or if they have different endings.
    """
    paths = local_files(source)
    if not paths:
        if SQL.match(source.path):
            remedy = 'give files, and the SELECT over their rows as data.query="SELECT … FROM input"'
            raise InputError(f"{source.key}={source.path}", "is SQL, not a file", remedy)
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
            problem = url_of(f"{paths[0]} and {path} are of two kinds")
            raise InputError(f"{source.key}={source.path}", problem, "name one kind of file")
    return paths


def class_folder(source: Source) -> Path | None:
    """Return the folder of a source that has one file or one sub-folder for each label, else None."""
    path = None if source.path.startswith("builtin:") or source.table is not None else _path(source)
    return path if path is not None and path.is_dir() else None


def _path(source: Source) -> Path:
    """Return the local path as DuckDB reads it: without `file://`, and with the home folder for `~`."""
    path = source.mirror or source.path
    return Path(FILE_URL.sub("", path)).expanduser() if path.startswith(("file:/", "~")) else Path(path)


def listing_of(source: Source) -> Listing | None:
    """Return the files of a source that is a folder with one file or one sub-folder for each label, else None."""
    if source.listing is not None:
        return source.listing
    folder = class_folder(source)
    return None if folder is None else list_files(folder)


def listed(source: Source) -> Source:
    """Return the source with the files of its folder in `listing`, for one run, because the folder may change."""
    return replace(source, listing=listing_of(source))


def suffix_of(path: str | Path) -> str:
    """Return the ending of a file name in lower case. A compression ending such as `.gz` is ignored.

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
    """Convert paths to absolute paths in which links are replaced by their targets."""
    # Each folder is resolved once, because each path of 20,000 files would take ten times as long.
    folders: dict[Path, Path] = {}
    real = []
    for path in paths:
        if path.parent not in folders:
            folders[path.parent] = path.parent.resolve()
        file = folders[path.parent] / path.name
        real.append(file.resolve() if path.name == ".." or file.is_symlink() else file)
    return real


class FileState(NamedTuple):
    """State of a file. Unlike the modification time, the inode change time cannot be set.

    The device number changes when a drive is mounted again, so it is left out.
    """

    path: str
    size: int
    modified_ns: int
    inode_changed_ns: int
    inode: int


class SourceState(NamedTuple):
    """Options of a source, together with the state of each of its files."""

    options: tuple[Any, ...]
    files: tuple[FileState, ...]


def file_state(path: Path, name: str) -> FileState:
    """Return the state of a file, whose content is not read. `name`: its path in the state."""
    status = path.stat()
    return FileState(name, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def source_state(source: Source) -> SourceState:
    """Return the state of a source, which changes with its options and files. Contents are not read."""
    source = listed(source)
    paths = local_files(source)
    states = tuple(file_state(path, str(real)) for path, real in zip(paths, resolved(paths), strict=True))
    options = [source.path, source.header, source.encoding, source.quote, source.delimiter, source.query]
    if source.listing is not None:
        options.append(str(source.listing))  # the report of a dataset names rejected and hidden files
    return SourceState(tuple(options), states)
