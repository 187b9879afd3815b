"""Names for authors of extensions; the modules behind them may move.

- Encoders of a network: `SequenceEncoder`. Types of arguments, checked before training: `Count`, `NonNegative`,
  `Positive`, `Share`.
- Losses: `RowLoss`.
- Field kinds: `NumberColumn`, `ListEncoder` or `Encoder`, with the options, specs, columns and checks that they use.
  `check_encoders` tests a kind.
- File formats: `ArrowFormat`, or `Format` for a scan by DuckDB.
- Report sections: `ReportSection`, which gets a `Report` and returns a `Section`.
- Errors that the user can fix: `InputError`.

Everything is imported when it is first used: a kind or a format loads no PyTorch. See docs/extending.md.

>>> from seqclf.extend import ArrowFormat
>>> class Fasta(ArrowFormat):
...     endings = (".fasta", ".fa")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqclf.config.options import Count as Count
    from seqclf.config.options import NonNegative as NonNegative
    from seqclf.config.options import Positive as Positive
    from seqclf.config.options import Share as Share
    from seqclf.data.encoding.check_encoders import check_encoders as check_encoders
    from seqclf.data.encoding.encoder import EncodedField as EncodedField
    from seqclf.data.encoding.encoder import Encoder as Encoder
    from seqclf.data.encoding.encoder import EncoderState as EncoderState
    from seqclf.data.encoding.encoder import ReadColumns as ReadColumns
    from seqclf.data.encoding.list_columns import list_lengths as list_lengths
    from seqclf.data.encoding.list_columns import list_values as list_values
    from seqclf.data.encoding.list_columns import vector_values as vector_values
    from seqclf.data.encoding.list_encoder import ListEncoder as ListEncoder
    from seqclf.data.encoding.number_column import NumberColumn as NumberColumn
    from seqclf.data.encoding.options import Option as Option
    from seqclf.data.encoding.options import choice_option as choice_option
    from seqclf.data.encoding.options import count_option as count_option
    from seqclf.data.encoding.options import flag_option as flag_option
    from seqclf.data.encoding.options import positive_option as positive_option
    from seqclf.data.encoding.options import text_option as text_option
    from seqclf.data.field_spec import BagSpec as BagSpec
    from seqclf.data.field_spec import CategorySpec as CategorySpec
    from seqclf.data.field_spec import FieldSpec as FieldSpec
    from seqclf.data.field_spec import NumberSpec as NumberSpec
    from seqclf.data.reading.format import ArrowFormat as ArrowFormat
    from seqclf.data.reading.format import Files as Files
    from seqclf.data.reading.format import Format as Format
    from seqclf.data.reading.format import TableSql as TableSql
    from seqclf.data.reading.format import scan as scan
    from seqclf.data.schema.problems import Problems as Problems
    from seqclf.documents.formatting import number as number
    from seqclf.documents.html import Bar as Bar
    from seqclf.documents.html import Section as Section
    from seqclf.documents.html import Table as Table
    from seqclf.documents.html import bar as bar
    from seqclf.errors import InputError as InputError
    from seqclf.models.encoder import SequenceEncoder as SequenceEncoder
    from seqclf.report.report import Report as Report
    from seqclf.report.section import ReportSection as ReportSection
    from seqclf.system.state_validation import Each as Each
    from seqclf.system.state_validation import Where as Where
    from seqclf.system.state_validation import require as require
    from seqclf.training.losses import RowLoss as RowLoss

_NAMES = {
    "config.options": "Count NonNegative Positive Share",
    "data.encoding.check_encoders": "check_encoders",
    "data.encoding.encoder": "EncodedField Encoder EncoderState ReadColumns",
    "data.field_spec": "BagSpec CategorySpec FieldSpec NumberSpec",
    "data.encoding.list_columns": "list_lengths list_values vector_values",
    "data.encoding.list_encoder": "ListEncoder",
    "data.encoding.number_column": "NumberColumn",
    "data.encoding.options": "Option choice_option count_option flag_option positive_option text_option",
    "data.reading.format": "ArrowFormat Files Format TableSql scan",
    "data.schema.problems": "Problems",
    "errors": "InputError",
    "models.encoder": "SequenceEncoder",
    "documents.formatting": "number",
    "documents.html": "Bar Section Table bar",
    "report.report": "Report",
    "report.section": "ReportSection",
    "system.state_validation": "Each Where require",
    "training.losses": "RowLoss",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_MODULES)


if not TYPE_CHECKING:  # type checkers would take any name for one that exists

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'seqclf.extend' has no attribute '{name}'")
        value = getattr(import_module(f"seqclf.{_MODULES[name]}"), name)
        globals()[name] = value  # the next use finds it at once
        return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
