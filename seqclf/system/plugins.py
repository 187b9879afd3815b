"""Extension points: the modules of a folder of this package, and entry points of other installed packages.

A new field kind, file format or report section is one module in its folder. Another package declares its own in
`pyproject.toml`:

    [project.entry-points."seqclf.field_kinds"]
    point = "mypackage.points:PointEncoder"

Code of another package is loaded only if that package is installed and declares it, so a bundle or a checkpoint cannot
name anything else. A package whose metadata lie in the working folder is not installed: that folder may be a bundle.
"""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module
from importlib.metadata import EntryPoint, distributions
from types import ModuleType
from typing import Any

from seqclf.errors import InputError
from seqclf.system.search_path import is_working_folder

FIELD_KINDS, FORMATS, REPORT_SECTIONS = "seqclf.field_kinds", "seqclf.formats", "seqclf.report_sections"


def module_names(package: str) -> list[str]:
    """Return the sorted names of the modules in a package. None of them is imported.

    >>> "plugins" in module_names("seqclf.system")
    True
    """
    return sorted(module.name for module in pkgutil.iter_modules(import_module(package).__path__))


def defined_class(module: ModuleType, base: type) -> type:
    """Return the only public subclass of `base` that a module defines."""
    classes = [
        value
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, base)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    ]
    assert len(classes) == 1, f"{module.__name__} must define one {base.__name__}, not {len(classes)}"
    return classes[0]


def installed_plugins(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, those of all installed packages."""
    entries: dict[str, EntryPoint] = {}
    for package in distributions(path=[folder for folder in sys.path if not is_working_folder(folder)]):
        for entry in package.entry_points.select(group=group):
            entries.setdefault(entry.name, entry)  # as Python's imports, which take the first on the path
    return dict(sorted(entries.items()))


def load_plugin(entry: EntryPoint) -> Any:
    """Return the object that an entry point names. Raises InputError if it cannot be imported."""
    try:
        return entry.load()
    except Exception as error:  # code of somebody else, which may raise anything
        package = f" of {entry.dist.name} {entry.dist.version}" if entry.dist is not None else ""
        problem = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
        raise InputError(entry.name, f"the plugin {entry.value}{package} cannot be imported ({problem})") from error
