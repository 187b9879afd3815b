"""Objects of S3 and other stores: fetched once into the cache folder, whose files are then read like any others.

An object `s3://BUCKET/KEY` is mirrored at `CACHE/seqclf-objects/s3/BUCKET/KEY`, with its size and time of modification,
by which a changed one is known. The path holds the URL, so that errors and refusals can name it (`url_of`). Credentials
come from the environment, as PyArrow finds them, and are neither stored nor printed.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from glob import has_magic
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from seqclf.data.reading.queries import scheme_of
from seqclf.errors import InputError, first_line
from seqclf.system import progress, signals
from seqclf.system.atomic_files import DISK, atomic_replace
from seqclf.system.file_locks import one_at_a_time

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

SCHEMES = ("s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "hdfs")
AZURE = ("abfs", "abfss")  # whose container stands before an @
MIRROR = "seqclf-objects"
MIRRORED = rf"[^\s'\"]*/{MIRROR}/([a-z0-9]+)/"  # becomes SCHEME://; must be a regular expression for DuckDB too
SECRET = re.compile(r"[?&][^=&]*(key|secret|token|sig|credential|password)[^=&]*=", re.IGNORECASE)
SECRET_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_KEY")
THREADS = 8
BLOCK = 2**22  # bytes
CONNECT_S, REQUEST_S = 5.0, 30.0
ATTEMPTS = 2


class Location(NamedTuple):
    """A place in a store: `path` is that of its file system, such as BUCKET/KEY. `where`: names it in errors."""

    where: str
    scheme: str
    path: str


def is_object_url(path: str) -> bool:
    """Return True for a URL of a store that is read through PyArrow.

    >>> is_object_url("s3://bucket/t.parquet"), is_object_url("https://example.org/t.parquet")
    (True, False)
    """
    return scheme_of(path) in SCHEMES


def url_of(text: str) -> str:
    """Replace the paths of mirrored objects in a text by their URLs.

    >>> url_of("/home/me/.cache/seqclf-objects/s3/bucket/t.csv: line 2")
    's3://bucket/t.csv: line 2'
    """
    return re.sub(MIRRORED, r"\1://", text)


def fetch(url: str, key: str, cache: Path) -> Path:
    """Mirror an object, the objects of a glob, or those of a folder. Return the path or glob of the mirror.

    `key`: the option that names the URL. Objects that are mirrored already are not fetched again. Raises InputError if
    nothing is there, or the store cannot be read.
    """
    place = _location(url, key)
    root = cache.expanduser().absolute() / MIRROR / place.scheme
    with _explained(place):
        store = _open_store(url, place)
        found = _list_objects(store, place)
    if not found:
        raise InputError(place.where, "no such object", "check the bucket, the key and AWS_ENDPOINT_URL")
    with one_at_a_time(root / f".seqclf-{place.path.partition('/')[0]}.lock"):
        _delete_vanished(root, place.path, {root / info.path for info in found})
        missing = [info for info in found if not _is_mirrored(root / info.path, info)]
        megabytes = sum(info.size for info in missing) / 1e6
        with (
            _explained(place),
            progress.stage(f"fetching {url}", total=megabytes, unit="MB") as stage,
            ThreadPoolExecutor(THREADS) as threads,
        ):
            list(threads.map(partial(_copy, store, root, stage), missing))
    return root / place.path


def has_objects(url: str, key: str) -> bool:
    """Return True if a URL names an object, or a folder of some. Raises InputError if the store cannot be read."""
    place = _location(url, key)
    with _explained(place):
        return bool(_list_objects(_open_store(url, place), place))


def delete_object(url: str, key: str) -> None:
    """Delete an object. In S3, an empty object with a slash at the end of its name is left for its folder."""
    place = _location(url, key)
    with _explained(place):
        _open_store(url, place).delete_file(place.path)


def store_object(file: Path, url: str, key: str) -> None:
    """Write a local file to a URL. Raises InputError if the store refuses it.

    A signal is handled after it, because a stream that is closed early leaves an object that is cut off.
    """
    place = _location(url, key)
    with _explained(place), signals.deferred_signals():
        store = _open_store(url, place)
        with file.open("rb") as source, store.open_output_stream(place.path, compression=None) as target:
            shutil.copyfileobj(source, target, BLOCK)


def _location(url: str, key: str) -> Location:
    scheme, _, path = url.partition("://")
    scheme, user = scheme.lower(), path.partition("/")[0].rpartition("@")[0]
    if SECRET.search(path) or (":" in user if scheme in AZURE else user):
        raise InputError(
            key,
            "its URL holds credentials, which would be stored with the settings",
            "set them in the environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )
    scheme = "s3" if scheme in ("s3a", "s3n") else scheme
    return Location(f"{key}={url}", scheme, re.sub("/+", "/", path).strip("/"))


def _open_store(url: str, place: Location) -> FileSystem:
    from pyarrow import fs

    if place.scheme != "s3":
        scheme = "gs" if place.scheme == "gcs" else place.scheme
        store, _ = fs.FileSystem.from_uri(f"{scheme}://{place.path.partition('/')[0]}")
        return store
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    options: dict[str, Any] = {}
    if endpoint:
        scheme, _, host = endpoint.rpartition("://")
        options = {"endpoint_override": host.strip("/"), "scheme": scheme or "https"}
    return fs.S3FileSystem(
        region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
        connect_timeout=CONNECT_S,
        request_timeout=REQUEST_S,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        **options,
    )


def _list_objects(store: FileSystem, place: Location) -> list[FileInfo]:
    """Return the objects of a location: one, those that match a glob, or those of a folder."""
    from pyarrow import fs

    if not has_magic(place.path):
        info = store.get_file_info(place.path)
        if info.type == fs.FileType.File:
            return [info]
        base, pattern = place.path, None
    else:
        parts = PurePosixPath(place.path).parts
        plain = next(index for index, part in enumerate(parts) if has_magic(part))
        base, pattern = "/".join(parts[:plain]), _glob_expression(place.path)
    if not base:
        raise InputError(place.where, "its bucket is a pattern", "name the bucket")
    infos = store.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True))
    files = [info for info in infos if info.type == fs.FileType.File and ".." not in PurePosixPath(info.path).parts]
    return [info for info in files if pattern is None or pattern.fullmatch(info.path)]


def _glob_expression(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a glob whose `**` stands for any folders.

    >>> found = _glob_expression("b/**/day=*/*.csv").fullmatch
    >>> [bool(found(path)) for path in ("b/day=1/t.csv", "b/x/y/day=2/t.csv", "b/day=1/x/t.csv")]
    [True, True, False]
    """
    parts = []
    for part in pattern.split("/"):
        if part == "**":
            parts.append("(?:[^/]+/)*")
        else:
            parts.append(re.sub(r"(?<!\\)\.\*", "[^/]*", fnmatch.translate(part)[4:-3]) + "/")
    return re.compile("".join(parts).removesuffix("/"))


def _is_mirrored(path: Path, info: FileInfo) -> bool:
    """Return True if the mirror has the object in its present state. Stores tell times in seconds."""
    if not path.is_file():
        return False
    status = path.stat()
    return status.st_size == info.size and int(status.st_mtime) == info.mtime_ns // 10**9


def _copy(store: FileSystem, root: Path, stage: progress.Stage, info: FileInfo) -> None:
    with (
        atomic_replace(root / info.path) as unfinished,
        unfinished.open("wb") as target,
        store.open_input_stream(info.path, compression=None) as source,
    ):
        while block := source.read(BLOCK):
            target.write(block)
            stage.advance(len(block) / 1e6)
        target.flush()
        os.utime(unfinished, ns=(info.mtime_ns, info.mtime_ns))


def _delete_vanished(root: Path, path: str, found: set[Path]) -> None:
    """Delete the mirrored objects of a location that are no longer there: its glob or its folder would hold them."""
    mirrored = (
        [root / path] if (root / path).is_file() else list(root.glob(path if has_magic(path) else f"{path}/**/*"))
    )
    for file in mirrored:
        if file.is_file() and file not in found:
            file.unlink(missing_ok=True)


@contextmanager
def _explained(place: Location) -> Iterator[None]:
    """Turn an error of a store into one line without the secrets of the environment."""
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, NotImplementedError) as error:  # PyArrow's errors are among them
        if isinstance(error, OSError) and error.errno in DISK:
            raise
        reason = first_line(error)
        for name in SECRET_VARIABLES:
            if secret := os.environ.get(name):
                reason = reason.replace(secret, name)
        remedy = "check the network, the credentials of the environment and AWS_ENDPOINT_URL"
        raise InputError(place.where, f"cannot be reached: {reason}", remedy) from None
