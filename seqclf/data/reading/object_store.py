"""Mirror of objects in S3 and in other object stores. Each object is copied once to the cache folder.

The copy is read like a local file. An object `s3://BUCKET/KEY` is mirrored at `CACHE/seqclf-objects/s3/BUCKET/KEY`. The
mirrored file has the size and the modification time of its object, so that a change of the object is detected. Error
messages show the URL of an object instead of the path of its mirror (`url_of`). PyArrow reads the credentials from the
environment. Credentials are neither stored nor printed.
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
AZURE = ("abfs", "abfss")  # in a URL of Azure, the container is before the @
MIRROR = "seqclf-objects"
MIRRORED = rf"[^\s'\"]*/{MIRROR}/([a-z0-9]+)/"  # beginning of a mirror path; also used in DuckDB
SECRET = re.compile(r"[?&][^=&]*(key|secret|token|sig|credential|password)[^=&]*=", re.IGNORECASE)
SECRET_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_KEY")
THREADS = 8
BLOCK = 2**22  # number of bytes per read
CONNECT_S, REQUEST_S = 5.0, 30.0
ATTEMPTS = 2


class Location(NamedTuple):
    """A location in an object store.

    `where`: name of the location in error messages. `path`: path in the file system of the store, such as BUCKET/KEY.
    """

    where: str
    scheme: str
    path: str


def is_object_url(path: str) -> bool:
    """Return True for the URL of an object store that PyArrow can read.

    >>> is_object_url("s3://bucket/t.parquet"), is_object_url("https://example.org/t.parquet")
    (True, False)
    """
    return scheme_of(path) in SCHEMES


def url_of(text: str) -> str:
    """In a text, replace the path of each mirrored object by the URL of the object.

    >>> url_of("/home/me/.cache/seqclf-objects/s3/bucket/t.csv: line 2")
    's3://bucket/t.csv: line 2'
    """
    return re.sub(MIRRORED, r"\1://", text)


def fetch(url: str, key: str, cache: Path) -> Path:
    """Copy one object, the objects that match a glob, or the objects in a folder to the mirror.

    Return the path of the mirrored object or folder, or the glob in the mirror. `key`: option that gives the URL, as
    shown in error messages. `cache`: path of the cache folder. An object that has not changed since it was mirrored is
    not copied again. Raises InputError if no object is found, or if the store cannot be read.
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
    """Return True if there is an object with this URL, or a folder with objects.

    Raises InputError if the store cannot be read.
    """
    place = _location(url, key)
    with _explained(place):
        return bool(_list_objects(_open_store(url, place), place))


def delete_object(url: str, key: str) -> None:
    """Delete an object.

    In S3, an empty object with the name `FOLDER/` is left, where FOLDER is the folder of the deleted object.
    """
    place = _location(url, key)
    with _explained(place):
        _open_store(url, place).delete_file(place.path)


def store_object(file: Path, url: str, key: str) -> None:
    """Write the content of a local file to an object with the given URL.

    Raises InputError if the store does not accept the object. A signal is handled only after the write. If a signal
    ended the write, the store would hold a truncated object.
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
    """Return the objects of a location. The location is one object, a glob or a folder."""
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
    """Return the regular expression that matches the same paths as a glob.

    The part `**` of a glob matches any number of folders.

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
    """Return True if the mirrored file has the same size and modification time as the object.

    The times are compared in whole seconds, because stores do not report fractions of a second.
    """
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
    """Delete mirrored files whose object is gone from the store, because a glob would still match them."""
    mirrored = (
        [root / path] if (root / path).is_file() else list(root.glob(path if has_magic(path) else f"{path}/**/*"))
    )
    for file in mirrored:
        if file.is_file() and file not in found:
            file.unlink(missing_ok=True)


@contextmanager
def _explained(place: Location) -> Iterator[None]:
    """Convert an error of a store to an InputError with a message of one line.

    Secrets from the environment are removed from the message.
    """
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, NotImplementedError) as error:  # PyArrow's errors are derived from these classes
        if isinstance(error, OSError) and error.errno in DISK:
            raise
        reason = first_line(error)
        for name in SECRET_VARIABLES:
            if secret := os.environ.get(name):
                reason = reason.replace(secret, name)
        remedy = "check the network, the credentials of the environment and AWS_ENDPOINT_URL"
        raise InputError(place.where, f"cannot be reached: {reason}", remedy) from None
