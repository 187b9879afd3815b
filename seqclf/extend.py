"""Public names for authors of extensions. Import these names from `seqclf.extend`, because other modules may be moved.

- Networks: `SequenceNetwork` is the base class. `Head` is the base class of the heads of `model=auto`. The base class
  for the encoder of a network is `SequenceEncoder`. `MaskedLSTM` and `MaskedGRU` are layers of an encoder that ignore
  padding and that can be exported. A recurrent cell derives from `RecurrentCell`, and the encoder
  `CellEncoder` runs it over sequences. A cell, and an encoder of a model that reads chunks, has a `State` for each
  recurrent state. `sort_nodes` sorts the nodes of trees. Arguments with the types `Count`, `NonNegative`, `Positive`
  and `Share` are checked before training, and so is the class of a part, by the mark `TargetOf`. `build` makes the
  part from its config.
- Losses: `RowLoss` is the base class.
- Custom training loops: `FiniteCheck` and `StructureSchedule` are callbacks, and `write_bundle` exports a trained task.
- Test data: `write_transactions` generates the dataset of `data=transactions`.
- Errors: raise `InputError` if the user can fix the error.

There is no base class for loggers, metrics and splits. A Lightning callback can log to any place. To add a metric or a
split, see the sections "A metric" and "A split" of docs/extending.md. A name of this module is imported at its first
use, so that a script that only reads data does not import PyTorch.

>>> from seqclf.extend import RowLoss
>>> class Zero(RowLoss):
...     def forward(self, logits, labels):
...         return logits.sum(dim=1) * 0
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqclf.config.argument_types import TargetOf as TargetOf
    from seqclf.config.options import Count as Count
    from seqclf.config.options import NonNegative as NonNegative
    from seqclf.config.options import Positive as Positive
    from seqclf.config.options import Share as Share
    from seqclf.config.targets import build as build
    from seqclf.data.builtin.transactions import write as write_transactions  # noqa: F401
    from seqclf.data.field_spec import BagSpec as BagSpec
    from seqclf.data.field_spec import CategorySpec as CategorySpec
    from seqclf.data.field_spec import NumberSpec as NumberSpec
    from seqclf.data.field_spec import ParentsSpec as ParentsSpec
    from seqclf.errors import InputError as InputError
    from seqclf.models.encoder import SequenceEncoder as SequenceEncoder
    from seqclf.models.heads.head import Head as Head
    from seqclf.models.network import SequenceNetwork as SequenceNetwork
    from seqclf.models.rnn.cell_encoder import CellEncoder as CellEncoder
    from seqclf.models.rnn.masked_recurrent import MaskedGRU as MaskedGRU
    from seqclf.models.rnn.masked_recurrent import MaskedLSTM as MaskedLSTM
    from seqclf.models.rnn.recurrent_cell import RecurrentCell as RecurrentCell
    from seqclf.models.running_state import State as State
    from seqclf.models.trees.tree_levels import sort_nodes as sort_nodes
    from seqclf.runs.export import write_bundle as write_bundle
    from seqclf.training.debugging.finite_check import FiniteCheck as FiniteCheck
    from seqclf.training.losses import RowLoss as RowLoss
    from seqclf.training.structure_schedule import StructureSchedule as StructureSchedule

_NAMES = {
    "config.argument_types": "TargetOf",
    "config.options": "Count NonNegative Positive Share",
    "config.targets": "build",
    "data.builtin.transactions": "write_transactions",
    "data.field_spec": "BagSpec CategorySpec NumberSpec ParentsSpec",
    "errors": "InputError",
    "models.rnn.cell_encoder": "CellEncoder",
    "models.encoder": "SequenceEncoder",
    "models.heads.head": "Head",
    "models.rnn.masked_recurrent": "MaskedGRU MaskedLSTM",
    "models.network": "SequenceNetwork",
    "models.rnn.recurrent_cell": "RecurrentCell",
    "models.running_state": "State",
    "models.trees.tree_levels": "sort_nodes",
    "runs.export": "write_bundle",
    "training.debugging.finite_check": "FiniteCheck",
    "training.losses": "RowLoss",
    "training.structure_schedule": "StructureSchedule",
}
_INNER = {"write_transactions": "write"}  # dict public name → name in its module, if different
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_MODULES)


if not TYPE_CHECKING:  # if type checkers saw `__getattr__`, they would accept any name

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'seqclf.extend' has no attribute '{name}'")
        value = getattr(import_module(f"seqclf.{_MODULES[name]}"), _INNER.get(name, name))
        globals()[name] = value  # later uses of the name do not call `__getattr__`
        return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
