"""Find the format of a file by the ending of its name.

Built-in formats are preferred to formats of other installed packages.
"""

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
    """Return the format of a file. Raises InputError if no format has the ending of the file.

    The error lists the known endings. `in_class_folder`: True if the file is in a folder with one file or one
    sub-folder for each label.

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
        raise errors[0]  # a plugin that cannot be loaded may define the format of this file
    raise InputError(
        f"{source.key}={source.path}",
        f"unknown kind of file '{ending}'",
        f"give {', '.join(_endings())} (text also as .gz), or a folder with a file per class",
    )


def plugin_format(ending: str) -> Format | None:
    """Return the format of a third-party package that has the given ending.

    Returns None for the ending of a built-in format and for an unknown ending.
    """
    if any(ending in candidate.endings for candidate in builtin_formats()):
        return None
    return _taking(plugin_formats()[0], ending, in_class_folder=True)


@cache
def builtin_formats() -> tuple[Format, ...]:
    """Return the built-in formats."""
    modules = [import_module(f"{own_formats.__name__}.{name}") for name in module_names(own_formats.__name__)]
    return tuple(defined_class(module, Format)() for module in modules)


def plugin_formats() -> tuple[tuple[Format, ...], tuple[InputError, ...]]:
    """Return the formats of other installed packages. Also return an error for each format that cannot be loaded."""
    return _plugin_formats(tuple(sys.path))


@lru_cache(maxsize=4)
def _plugin_formats(search_path: tuple[str, ...]) -> tuple[tuple[Format, ...], tuple[InputError, ...]]:
    """Find the formats of other installed packages. The search takes about 20 ms.

    `search_path`: value of Python's `sys.path`, used only as the key of the cached result.
    """
    formats, errors = [], []
    for entry in installed_plugins(FORMATS).values():
        try:
            loaded = load_plugin(entry)
            if not (isinstance(loaded, type) and issubclass(loaded, Format)):
                raise InputError(entry.name, f"the plugin {entry.value} is no {Format.__module__}.{Format.__name__}")
            formats.append(loaded())
        except InputError as error:
            errors.append(error)
        except Exception as error:  # importing third-party code may raise any exception
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
    """Return the endings of files that need not be in a folder with one file or sub-folder for each label."""
    formats = [entry for entry in (*builtin_formats(), *plugin_formats()[0]) if not entry.only_in_class_folders]
    return sorted({ending for entry in formats for ending in entry.endings})
