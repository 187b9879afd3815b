"""Arguments as a user can type them: quoted for Hydra's grammar and for the shell."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Mapping
from typing import Any

# Values that Hydra reads as the same text. Others hold its grammar (commas, brackets, quotes) or letters outside ASCII.
PLAIN = re.compile(r"[\w./:@%+*?|&\\-]+( [\w./:@%+*?|&\\-]+)*", re.ASCII)
KEY_MARKS, BACKSLASH = r"[\\()\[\]{}:=,]", r"\\\g<0>"  # keys in braces cannot be quoted
WHOLE = re.compile(r"-?(0|[1-9]\d*)")


def argument(key: str, value: str) -> str:
    """Return an argument that sets a key to a text, quoted for bash and zsh where that is needed.

    >>> print(argument("data.positive", "yes"), argument("data.positive", "a,b"), argument("data.label", "my label"))
    data.positive=yes "data.positive='a,b'" 'data.label=my label'
    """
    return shell_word(f"{key}={value if is_plain(value) else quoted(value)}")


def quoted(value: str) -> str:
    r"""Return a text in quotes, as Hydra's grammar reads it back unchanged.

    >>> print(quoted("a, b"), quoted("it's ${x}"))
    'a, b' "it's \${x}"
    """
    mark = '"' if "'" in value else "'"
    text = re.sub(rf"(\\*){mark}", lambda match: f"{match[1] * 2}\\{mark}", value)
    text = re.sub(r"(\\*)\$\{", lambda match: f"{match[1] * 2}\\${{", text)  # or OmegaConf would look a key up
    text = re.sub(r"\\+$", lambda match: match[0] * 2, text)
    return f"{mark}{text}{mark}"


def hydra_value(value: Any) -> str:
    """Return a plain value (scalar, list or mapping) as Hydra's grammar reads it back, with its type.

    >>> print(hydra_value([1, None, "a, b", {"x:y": "3"}]))
    [1, null, 'a, b', {x\\:y: '3'}]
    """
    if isinstance(value, Mapping):
        pairs = (f"{re.sub(KEY_MARKS, BACKSLASH, str(key))}: {hydra_value(part)}" for key, part in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(hydra_value, value))}]"
    if isinstance(value, str):
        is_text = is_plain(value) and value not in ("true", "false") and not WHOLE.fullmatch(value)
        return value if is_text else quoted(value)
    return json.dumps(value)


def shell_word(text: str) -> str:
    """Return a text as one word of bash and zsh.

    >>> print(shell_word("model.layers=2"), shell_word("data.fields={items: category}"))
    model.layers=2 'data.fields={items: category}'
    """
    if "'" in text and not re.search(r'["$`\\!]', text):
        return f'"{text}"'
    return shlex.quote(text)


def is_plain(value: str) -> bool:
    """Return True for a text that Hydra reads as itself, not as a number, a boolean or null."""
    if not PLAIN.fullmatch(value) or value.endswith("\\"):
        return False
    if value in ("true", "false") or WHOLE.fullmatch(value):
        return True  # a label, whatever its type
    if value.lower() in ("true", "false", "null", "nan", "inf", "+inf", "-inf", "+nan", "-nan"):
        return False
    try:
        float(value)
    except ValueError:
        return True
    return False


def quote_values(arguments: list[str], keys: Collection[str]) -> list[str]:
    """Return arguments in which the values of `keys` are quoted, so that Hydra reads no grammar in them.

    A sequence holds commas, brackets and question marks. Values that are quoted already stay as they are.

    >>> quote_values(["sequence=[1, 2]", "rows=3"], ["sequence"])
    ["sequence='[1, 2]'", 'rows=3']
    """
    return [
        f"{key}={quoted(value)}" if key in keys and not _is_quoted(value) else argument
        for argument in arguments
        for key, _, value in [argument.partition("=")]
    ]


def _is_quoted(value: str) -> bool:
    return len(value) > 1 and value[0] == value[-1] and value[0] in "'\""


# Text of YAML scalars, as data files have it.


def label_text(value: Any) -> str:
    """Return a label, id or column name as the data has it: YAML reads `true` as a boolean and 3 as a number.

    >>> label_text(True), label_text(3), label_text("spam")
    ('true', '3', 'spam')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)
