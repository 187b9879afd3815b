"""Mirror of objects: those of a URL of S3 or another store are copied once to the cache folder, and read there.

An object `s3://BUCKET/KEY` is `CACHE/seqclf-objects/URL/LISTING/s3/BUCKET/KEY`. URL and LISTING are digests: of the
URL, and of the names, sizes and times of its objects, so that a change is detected. Errors show the URL (`url_of`).
PyArrow reads the credentials from the environment; they are neither stored nor printed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from glob import has_magic
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from seqclf.errors import SECRET, InputError, first_line
from seqclf.system import progress, signals
from seqclf.system.atomic_files import DISK, one_at_a_time, private_folder, scratch_folder

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

SCHEME = re.compile(r"([a-z][a-z0-9+]*)://", re.IGNORECASE)
STORES = ("s3", "s3a", "s3n", "gs", "gcs")
MIRROR = "seqclf-objects"
MIRRORED = rf"[^\s'\"]*/{MIRROR}/[0-9a-f]+/[0-9a-f]+/([a-z0-9]+)/"  # beginning of a mirror path; also used in DuckDB
SECRET_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
CONNECT_S, REQUEST_S = 5.0, 30.0
ATTEMPTS = 2
UNUSED_S = 86_400  # seconds after which the objects of an earlier listing are removed, which a process may read


class Location(NamedTuple):
    """A location in an object store. `where`: its name in errors. `path`: path in the store, such as BUCKET/KEY."""

    where: str
    scheme: str
    path: str


def scheme_of(path: str) -> str | None:
    """Return the scheme of a URL in lower case, or None for a path and for a `file://` URL.

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

    >>> url_of("/home/me/.cache/seqclf-objects/0a/1b/s3/bucket/t.csv: line 2")
    's3://bucket/t.csv: line 2'
    """
    return re.sub(MIRRORED, r"\1://", text)


def fetch(url: str, key: str, cache: Path) -> Path:
    """Mirror an object, or those of a glob or a folder, anew if one has changed, and return their path or glob.

    `key`: option that gives the URL. Raises InputError if no object is found, or if the store cannot be read.
    """
    place = location(url, key)
    root = cache.expanduser().absolute() / MIRROR
    with _explained(place):
        private_folder(root)
        store = _open_store(url, place)
        found = _list_objects(store, place)
        if not found:
            raise InputError(place.where, "no such object", "check the bucket, the key and AWS_ENDPOINT_URL")
        states = sorted((info.path, info.size, info.mtime_ns) for info in found)
        mirror = root / _digest((place.scheme, place.path)) / _digest(states)
        with one_at_a_time(mirror.parent / ".seqclf.lock"):
            if not _is_whole(mirror / place.scheme, found):
                with progress.stage(f"fetching {url}"):
                    _copy(store, place, found, mirror)
            os.utime(mirror)
    return mirror / place.scheme / place.path


def _digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode(errors="surrogatepass")).hexdigest()[:16]


def _is_whole(root: Path, found: list[FileInfo]) -> bool:
    try:
        return all((root / info.path).stat().st_size == info.size for info in found)
    except OSError:
        return False


def _copy(store: FileSystem, place: Location, found: list[FileInfo], mirror: Path) -> None:
    """Copy the objects that were found to a new folder, and remove those of earlier listings."""
    from pyarrow import fs

    with scratch_folder(mirror.parent, "fetching-") as scratch:
        root = scratch / "objects" / place.scheme

        def copy(info: FileInfo) -> None:
            (root / info.path).parent.mkdir(parents=True, exist_ok=True)
            fs.copy_files(info.path, str(root / info.path), store, fs.LocalFileSystem())
            if (root / info.path).stat().st_size != info.size:
                raise InputError(place.where, "changed while it was fetched", "start the command again")

        threads = ThreadPoolExecutor()
        try:  # a folder as a whole would be listed again, with keys that hold ..
            list(threads.map(copy, found))
        finally:  # without the running copies, which a signal would wait for
            threads.shutdown(wait=False, cancel_futures=True)
        for earlier in mirror.parent.glob("[0-9a-f]*"):
            if earlier == mirror or earlier.stat().st_mtime < time.time() - UNUSED_S:
                shutil.rmtree(earlier)
        (scratch / "objects").replace(mirror)


def has_objects(url: str, key: str) -> bool:
    """Return True if there is an object with this URL, or in this folder."""
    place = location(url, key)
    with _explained(place):
        return bool(_list_objects(_open_store(url, place), place))


def delete_object(url: str, key: str) -> None:
    """Delete an object. In S3, an empty object with the name of its folder is left."""
    place = location(url, key)
    with _explained(place):
        _open_store(url, place).delete_file(place.path)


def store_object(file: Path, url: str, key: str) -> None:
    """Write a local file to an object. Raises InputError if the store does not accept it.

    A signal is handled after the write, so that it leaves no truncated object.
    """
    place = location(url, key)
    with _explained(place), signals.deferred_signals():
        from pyarrow import fs

        fs.copy_files(str(file.absolute()), place.path, fs.LocalFileSystem(), _open_store(url, place))


def location(url: str, key: str) -> Location:
    """Return the location that a URL names. Raises InputError for another URL than those that are read."""
    scheme, _, path = url.partition("://")
    scheme = scheme.lower()
    if scheme in ("http", "https"):
        raise InputError(f"{key}={url}", "files of the web are not read", "download it with curl, and name the file")
    if scheme not in STORES or {"..", "**"} & {*PurePosixPath(path).parts}:
        raise InputError(f"{key}={url}", "no URL that is read", f"name one of {', '.join(STORES)}, without .. and **")
    if SECRET.search(path) or "@" in path.partition("/")[0]:
        variables = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        remedy = f"set them in the environment, {variables}, or download the file yourself"
        raise InputError(key, "its URL holds credentials, which would be stored with the settings", remedy)
    scheme = "s3" if scheme in ("s3a", "s3n") else scheme
    return Location(f"{key}={url}", scheme, re.sub("/+", "/", path).strip("/"))


def _open_store(url: str, place: Location) -> FileSystem:
    from pyarrow import fs

    if place.scheme != "s3":
        store, _ = fs.FileSystem.from_uri(f"gs://{place.path.partition('/')[0]}")
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
    """Return the objects of one object's name, a glob or a folder."""
    from pyarrow import fs

    base = place.path
    if has_magic(base):
        parts = PurePosixPath(base).parts
        base = "/".join(parts[: next(index for index, part in enumerate(parts) if has_magic(part))])
        if not base:
            raise InputError(place.where, "its bucket is a pattern", "name the bucket")
    elif (info := store.get_file_info(base)).type == fs.FileType.File:
        return [info]
    infos = store.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True))
    files = [info for info in infos if info.type == fs.FileType.File and ".." not in PurePosixPath(info.path).parts]
    is_glob, pattern = has_magic(place.path), f"/{place.path}"
    return [info for info in files if not is_glob or PurePosixPath(f"/{info.path}").match(pattern)]


@contextmanager
def _explained(place: Location) -> Iterator[None]:
    """Convert an error of a store to an InputError of one line, without the secrets of the environment."""
    try:
        yield
    except InputError:
        raise
    # PyArrow's errors are derived from the other classes.
    except (OSError, ValueError, NotImplementedError) as error:
        if isinstance(error, OSError) and error.errno in DISK:
            raise
        reason = first_line(error)
        for name in SECRET_VARIABLES:
            if secret := os.environ.get(name):
                reason = reason.replace(secret, name)
        remedy = "check the URL, the network, the credentials and AWS_ENDPOINT_URL"
        raise InputError(place.where, f"cannot be reached: {reason}", remedy) from None
