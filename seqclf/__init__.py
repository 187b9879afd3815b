"""seqclf: train classifiers on sequences of different lengths and serve them without PyTorch.

A name of this package is imported at its first use, so that prediction does not import PyTorch.

>>> import seqclf
>>> sorted(set(seqclf.__all__) - {"InputError"})[:4]
['Classifier', 'Run', 'SequenceClassifier', 'SequenceDataModule']
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqclf.api.estimator import SequenceClassifier as SequenceClassifier
    from seqclf.api.fit import fit as fit
    from seqclf.api.fit import load_config as load_config
    from seqclf.api.fit import load_data as load_data
    from seqclf.api.run import Run as Run
    from seqclf.batching.datamodule import SequenceDataModule as SequenceDataModule
    from seqclf.bundle.runtime import Classifier as Classifier
    from seqclf.errors import InputError as InputError
    from seqclf.system.version import __version__ as __version__
    from seqclf.training.change_structure import change_structure as change_structure
    from seqclf.training.task import SequenceTask as SequenceTask
    from seqclf.training.task import load_task as load_task

_MODULES = {
    "__version__": "system.version",
    "Classifier": "bundle.runtime",
    "InputError": "errors",
    "Run": "api.run",
    "SequenceClassifier": "api.estimator",
    "SequenceDataModule": "batching.datamodule",
    "SequenceTask": "training.task",
    "change_structure": "training.change_structure",
    "fit": "api.fit",
    "load_config": "api.fit",
    "load_data": "api.fit",
    "load_task": "training.task",
}
__all__ = sorted(_MODULES.keys() - {"__version__"})

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # ONNX Runtime would send and store figures about its use


if not TYPE_CHECKING:  # if type checkers saw `__getattr__`, they would accept any name

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'seqclf' has no attribute '{name}'")
        try:
            value = getattr(import_module(f"seqclf.{_MODULES[name]}"), name)
        except ModuleNotFoundError as error:
            raise import_module("seqclf.config.hints").missing_package(error) or error from None
        globals()[name] = value  # later uses of the name do not call `__getattr__`
        return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
