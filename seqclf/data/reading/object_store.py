"""Mirror of URLs. Each object of S3 or of another store, and each file of the web, is copied once to the cache folder.

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
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from functools import partial
from glob import has_magic
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.error import HTTPError

from seqclf.errors import SECRET, InputError, first_line
from seqclf.system import progress, signals
from seqclf.system.atomic_files import DISK, atomic_replace, private_folder
from seqclf.system.file_locks import one_at_a_time

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

SCHEME = re.compile(r"([a-z][a-z0-9+]*)://", re.IGNORECASE)
WEB = ("http", "https")
AZURE = ("abfs", "abfss")  # in a URL of Azure, the container is before the @
STORES = ("s3", "s3a", "s3n", "gs", "gcs", *AZURE, "hdfs")
MIRROR = "seqclf-objects"
MIRRORED = rf"[^\s'\"]*/{MIRROR}/([a-z0-9]+)/"  # beginning of a mirror path; also used in DuckDB
SECRET_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_KEY")
THREADS = 8
BLOCK = 2**22  # number of bytes per read
CONNECT_S, REQUEST_S = 5.0, 30.0
ATTEMPTS = 2


class Location(NamedTuple):
    """A location in an object store or in the web.

    `where`: name of the location in error messages. `path`: path in the file system of the store, such as BUCKET/KEY.
    """

    where: str
    scheme: str
    path: str


def scheme_of(path: str) -> str | None:
    """Return the scheme of a URL in lower case. Return None for a path and for a `file://` URL.

    >>> scheme_of("S3://bucket/t.parquet"), scheme_of("/data/t.parquet")
    ('s3', None)
    """
    match = SCHEME.match(path)
    return match[1].lower() if match and match[1].lower() != "file" else None


def is_object_url(path: str) -> bool:
    """Return True for the URL of an object store that PyArrow can read.

    >>> is_object_url("s3://bucket/t.parquet"), is_object_url("https://example.org/t.parquet")
    (True, False)
    """
    return scheme_of(path) in STORES


def url_of(text: str) -> str:
    """In a text, replace the path of each mirrored object by the URL of the object.

    >>> url_of("/home/me/.cache/seqclf-objects/s3/bucket/t.csv: line 2")
    's3://bucket/t.csv: line 2'
    """
    return re.sub(MIRRORED, r"\1://", text)


def fetch(url: str, key: str, cache: Path) -> Path:
    """Copy one file of the web, or one object, the objects that match a glob, or the objects in a folder to the mirror.

    Return the path of the mirrored file or folder, or the glob in the mirror. `key`: option that gives the URL, as
    shown in error messages. `cache`: path of the cache folder. An object that has not changed since it was mirrored is
    not copied again. Raises InputError if no object is found, or if the store cannot be read.
    """
    place = _location(url, key)
    root = cache.expanduser().absolute() / MIRROR / place.scheme
    with _explained(place):
        private_folder(root.parent)
    if place.scheme in WEB:
        return _download(url, place, root)
    with _explained(place):
        store = _open_store(url, place)
        found = _list_objects(store, place)
    if not found:
        raise InputError(place.where, "no such object", "check the bucket, the key and AWS_ENDPOINT_URL")
    with one_at_a_time(root / f".seqclf-{place.path.partition('/')[0]}.lock"):
        _delete_vanished(root, place.path, {root / info.path for info in found})
        missing = [info for info in found if not _is_mirrored(root / info.path, info.size, info.mtime_ns)]
        megabytes = sum(info.size for info in missing) / 1e6
        with (
            _explained(place),
            progress.stage(f"fetching {url}", total=megabytes, unit="MB") as stage,
            ThreadPoolExecutor(THREADS) as threads,
        ):
            list(threads.map(partial(_copy, store, root, stage), missing))
    return root / place.path


def _download(url: str, place: Location, root: Path) -> Path:
    """Copy a file of the web to the mirror, unless the mirror has the size and the time that the server tells."""
    file = root / place.path
    with _explained(place), urllib.request.urlopen(url, timeout=REQUEST_S) as response:
        length, changed = response.headers.get("Content-Length"), response.headers.get("Last-Modified")
        size = None if length is None else int(length)
        mtime_ns = None if changed is None else int(parsedate_to_datetime(changed).timestamp()) * 10**9
        if size is None or mtime_ns is None or not _is_mirrored(file, size, mtime_ns):
            total = None if size is None else size / 1e6
            with progress.stage(f"fetching {url}", total=total, unit="MB") as stage:
                _write(response, file, size, mtime_ns, stage)
    return file


def object_states(url: str, key: str) -> dict[str, list[int]]:
    """Return the size and the time in seconds of the object with this URL, or of each object in a folder.

    The keys are URLs. Raises InputError if the store cannot be read.
    """
    place = _location(url, key)
    with _explained(place):
        found = _list_objects(_open_store(url, place), place)
        return {f"{place.scheme}://{info.path}": [info.size, info.mtime_ns // 10**9] for info in found}


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
            "set them in the environment, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or download the file yourself",
        )
    if scheme not in (*STORES, *WEB) or ".." in PurePosixPath(path).parts:
        raise InputError(f"{key}={url}", "no URL that is read", f"name one of {', '.join((*STORES, *WEB))}, without ..")
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

    base, pattern = place.path, None
    if has_magic(place.path):
        parts = PurePosixPath(place.path).parts
        plain = next(index for index, part in enumerate(parts) if has_magic(part))
        base, pattern = "/".join(parts[:plain]), _glob_expression(place.path)
        if not base:
            raise InputError(place.where, "its bucket is a pattern", "name the bucket")
    elif (info := store.get_file_info(base)).type == fs.FileType.File:
        return [info]
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


def _is_mirrored(file: Path, size: int, mtime_ns: int) -> bool:
    """Return True if the mirrored file has the given size and modification time.

    The times are compared in whole seconds, because stores do not report fractions of a second.
    """
    if not file.is_file():
        return False
    status = file.stat()
    return status.st_size == size and int(status.st_mtime) == mtime_ns // 10**9


def _copy(store: FileSystem, root: Path, stage: progress.Stage, info: FileInfo) -> None:
    with store.open_input_stream(info.path, compression=None) as source:
        _write(source, root / info.path, info.size, info.mtime_ns, stage)


def _write(source: Any, file: Path, size: int | None, mtime_ns: int | None, stage: progress.Stage) -> None:
    """Write a stream to a file of the mirror. Raises OSError if the stream has not `size` bytes."""
    with atomic_replace(file) as unfinished, unfinished.open("wb") as target:
        while block := source.read(BLOCK):
            target.write(block)
            stage.advance(len(block) / 1e6)
        if size is not None and target.tell() != size:
            raise OSError(f"it ended after {target.tell()} of {size} bytes")
        target.flush()
        if mtime_ns is not None:
            os.utime(unfinished, ns=(mtime_ns, mtime_ns))


def _delete_vanished(root: Path, path: str, found: set[Path]) -> None:
    """Delete mirrored files whose object is gone from the store, because a glob would still match them."""
    mirrored = root.glob(path if has_magic(path) else f"{path}/**/*")
    for file in [root / path, *mirrored]:
        if file.is_file() and file not in found:
            file.unlink(missing_ok=True)


@contextmanager
def _explained(place: Location) -> Iterator[None]:
    """Convert an error of a store or of a web server to an InputError with a message of one line.

    Secrets from the environment are removed from the message.
    """
    try:
        yield
    except InputError:
        raise
    # PyArrow's errors are derived from the other classes.
    except (OSError, ValueError, NotImplementedError, HTTPException) as error:
        if isinstance(error, OSError) and error.errno in DISK:
            raise
        if isinstance(error, HTTPError):
            error.close()
        reason = first_line(error)
        for name in SECRET_VARIABLES:
            if secret := os.environ.get(name):
                reason = reason.replace(secret, name)
        remedy = "check the URL and the network, and for a store its credentials and AWS_ENDPOINT_URL"
        raise InputError(place.where, f"cannot be reached: {reason}", remedy) from None
