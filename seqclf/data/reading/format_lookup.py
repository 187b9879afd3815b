"""Lookup of file formats by the ending of a file: those of this package first, then those of installed packages."""

from __future__ import annotations

import sys
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path

from seqclf.data.reading import formats as own_formats
from seqclf.data.reading.format import Format
from seqclf.data.reading.sources import Source, suffix_of
from seqclf.errors import InputError
from seqclf.system.plugins import FORMATS, defined_class, installed_plugins, load_plugin, module_names


def find_format(source: Source, path: Path | str, in_class_folder: bool = False) -> Format:
    """Return the format of a file. Raises InputError, which lists the known endings, if there is none.

    >>> type(find_format(Source("new.tsv", "input"), "new.tsv")).__name__
    'Delimited'
    """
    ending = suffix_of(path)
    if builtin_format := _taking(builtin_formats(), ending, in_class_folder):
        return builtin_format
    formats, errors = plugin_formats()
    if plugin := _taking(formats, ending, in_class_folder):
        return plugin
    if errors:
        raise errors[0]  # that plugin may be the one that reads the file
    raise InputError(
        f"{source.key}={source.path}",
        f"unknown kind of file '{ending}'",
        f"give {', '.join(_endings())} (text also as .gz), a folder with a file per class, a .sql file or a query",
    )


def plugin_format(ending: str) -> Format | None:
    """Return the format of an installed package that takes an ending, None if a format of this package does."""
    if any(ending in candidate.endings for candidate in builtin_formats()):
        return None
    return _taking(plugin_formats()[0], ending, in_class_folder=True)


@cache
def builtin_formats() -> tuple[Format, ...]:
    """Return the formats of this package."""
    modules = [import_module(f"{own_formats.__name__}.{name}") for name in module_names(own_formats.__name__)]
    return tuple(defined_class(module, Format)() for module in modules)


def plugin_formats() -> tuple[tuple[Format, ...], tuple[InputError, ...]]:
    """Return the formats of installed packages, and the errors of those that cannot be loaded."""
    return _plugin_formats(tuple(sys.path))


@lru_cache(maxsize=4)
def _plugin_formats(search_path: tuple[str, ...]) -> tuple[tuple[Format, ...], tuple[InputError, ...]]:
    """`search_path`: that of Python, in which packages are looked up. It takes some 20 ms."""
    formats, errors = [], []
    for entry in installed_plugins(FORMATS).values():
        try:
            loaded = load_plugin(entry)
            if not (isinstance(loaded, type) and issubclass(loaded, Format)):
                raise InputError(entry.name, f"the plugin {entry.value} is no {Format.__module__}.{Format.__name__}")
            formats.append(loaded())
        except InputError as error:
            errors.append(error)
        except Exception as error:  # code of another package may fail at import as it likes
            errors.append(InputError(entry.name, f"the plugin {entry.value} cannot be imported ({error!r})"))
    return tuple(formats), tuple(errors)


def _taking(formats: tuple[Format, ...], ending: str, in_class_folder: bool) -> Format | None:
    candidates = [
        candidate
        for candidate in formats
        if ending in candidate.endings and (in_class_folder or not candidate.only_in_class_folders)
    ]
    return max(candidates, key=lambda candidate: candidate.only_in_class_folders, default=None)


def _endings() -> list[str]:
    """Endings of the files that are read alone, without a class folder."""
    formats = [entry for entry in (*builtin_formats(), *plugin_formats()[0]) if not entry.only_in_class_folders]
    return sorted({ending for entry in formats for ending in entry.endings})
