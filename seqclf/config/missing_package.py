"""Errors about packages that an installation without dependencies left out."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires

from seqclf.errors import InputError

DISTRIBUTIONS = {"sklearn": "scikit-learn"}  # of modules with another name


def missing_package(error: ModuleNotFoundError) -> InputError | None:
    """Return the error line of a missing module, None if it is of no package that seqclf requires.

    >>> missing_package(ModuleNotFoundError("No module named 'sklearn'", name="sklearn.metrics"))
    InputError('scikit-learn is not installed, which this needs; pip install scikit-learn')
    >>> missing_package(ModuleNotFoundError("No module named 'mine'", name="mine"))
    """
    module = (error.name or "").partition(".")[0]
    package = DISTRIBUTIONS.get(module, module.replace("_", "-"))
    try:
        required = {re.split(r"[\s<>=!~;\[]", text, maxsplit=1)[0] for text in requires("seqclf") or []}
    except PackageNotFoundError:  # run from the sources, without an installation that could lack something
        return None
    if not module or package not in required:
        return None
    return InputError(None, f"{package} is not installed, which this needs", f"pip install {package}")
