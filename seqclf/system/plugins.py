"""Loading of extensions: modules of this package, and plugins from other installed packages.

Field kinds, file formats and report sections are extensible. Each field kind, file format and report section of this
package is one module. Another package declares its extensions as entry points in its `pyproject.toml`:

    [project.entry-points."seqclf.field_kinds"]
    point = "mypackage.points:PointEncoder"

Only code that an installed package declares as an entry point is loaded as a plugin. A bundle or a checkpoint can
therefore not make this package load any other code. Packages in the working folder are ignored, because the working
folder may be a bundle from an untrusted source.
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
    """Return the sorted names of the modules in a package. The modules are not imported.

    >>> "plugins" in module_names("seqclf.system")
    True
    """
    return sorted(module.name for module in pkgutil.iter_modules(import_module(package).__path__))


def defined_class(module: ModuleType, base: type) -> type:
    """Return the public subclass of `base` that a module defines.

    The module must define exactly one public subclass of `base`.
    """
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
    """Return a dict name → entry point, for the entry points in `group` of all installed packages."""
    entries: dict[str, EntryPoint] = {}
    for package in distributions(path=[folder for folder in sys.path if not is_working_folder(folder)]):
        for entry in package.entry_points.select(group=group):
            entries.setdefault(entry.name, entry)  # if two packages use one name, keep the first package on `sys.path`
    return dict(sorted(entries.items()))


def load_plugin(entry: EntryPoint) -> Any:
    """Import and return the object that an entry point names. Raises InputError if the import fails."""
    try:
        return entry.load()
    except Exception as error:  # third-party code may raise any exception
        package = f" of {entry.dist.name} {entry.dist.version}" if entry.dist is not None else ""
        problem = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
        raise InputError(entry.name, f"the plugin {entry.value}{package} cannot be imported ({problem})") from error
