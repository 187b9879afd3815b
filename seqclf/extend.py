"""Public names for authors of extensions. Import these names from `seqclf.extend`, because other modules may be moved.

- Networks: `SequenceNetwork` is the base class. `Head` is the base class of the heads of `model=auto`. The base class
  for the encoder of a network is `SequenceEncoder`. `MaskedLSTM` and `MaskedGRU` are layers of an encoder that ignore
  padding and that can be exported. A recurrent cell derives from `RecurrentCell`, and the encoder
  `CellEncoder` runs it over sequences. A cell, and an encoder of a model that reads chunks, has a `State` for each
  recurrent state. `sort_nodes` sorts the nodes of trees. Arguments with the types `Count`, `NonNegative`, `Positive`
  and `Share` are checked before training, and so is the class of a part, by the mark `TargetOf`. `build` makes the
  part from its config.
- Losses: `RowLoss` is the base class.
- Custom training loops: `StructureSchedule` is a callback, and `write_bundle` exports a trained task.
- Test data: `write_transactions` generates the dataset of `data=transactions`.
- Errors: raise `InputError` if the user can fix the error.

There is no base class for loggers, metrics and splits. A Lightning callback can log to any place. To add a metric or a
split, see the sections "A metric" and "A split" of docs/extending.md.

>>> from seqclf.extend import RowLoss
>>> class Zero(RowLoss):
...     def forward(self, logits, labels):
...         return logits.sum(dim=1) * 0
"""

from seqclf.config.build import TargetOf as TargetOf
from seqclf.config.build import build as build
from seqclf.data.builtin.transactions import write as write_transactions  # noqa: F401
from seqclf.data.field_spec import BagSpec as BagSpec
from seqclf.data.field_spec import CategorySpec as CategorySpec
from seqclf.data.field_spec import NumberSpec as NumberSpec
from seqclf.data.field_spec import ParentsSpec as ParentsSpec
from seqclf.errors import InputError as InputError
from seqclf.models.auto.head import Head as Head
from seqclf.models.classifier import SequenceEncoder as SequenceEncoder
from seqclf.models.network import SequenceNetwork as SequenceNetwork
from seqclf.models.rnn.cell_encoder import CellEncoder as CellEncoder
from seqclf.models.rnn.recurrent import MaskedGRU as MaskedGRU
from seqclf.models.rnn.recurrent import MaskedLSTM as MaskedLSTM
from seqclf.models.rnn.recurrent_cell import RecurrentCell as RecurrentCell
from seqclf.models.streaming import State as State
from seqclf.models.tree_lstm import sort_nodes as sort_nodes
from seqclf.runs.bundle_export import write_bundle as write_bundle
from seqclf.settings.base import Count as Count
from seqclf.settings.base import NonNegative as NonNegative
from seqclf.settings.base import Positive as Positive
from seqclf.settings.base import Share as Share
from seqclf.training.change_structure import StructureSchedule as StructureSchedule
from seqclf.training.losses import RowLoss as RowLoss
