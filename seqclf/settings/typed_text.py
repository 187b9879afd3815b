"""Texts for the user to type: arguments, quoted for Hydra and the shell, and the name most similar to a wrong one."""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

# Pattern of values without quotes. It excludes special characters of Hydra's grammar (such as commas) and non-ASCII
# characters.
PLAIN = re.compile(r"[\w./:@%+*?|&\\-]+( [\w./:@%+*?|&\\-]+)*", re.ASCII)
KEY_MARKS, BACKSLASH = r"[\\()\[\]{}:=,]", r"\\\g<0>"  # mapping keys are escaped, not quoted
QUOTED = re.compile(r"""(['"])((?:\\.|(?!\1)[^\\])*)\1""", re.DOTALL)
WHOLE = re.compile(r"-?(0|[1-9]\d*)")  # pattern of an integer
NEAR_FILE = 0.75  # minimum similarity of a typed file name
FEW = 3  # up to this number of names, an error text lists the names as "a, b or c"


def key_of(override: str) -> str:
    """Return the key of an override, without the characters + and ~ and without the part after @.

    >>> key_of("+model.kernel=5"), key_of("~patience"), key_of("data@other=toy")
    ('model.kernel', 'patience', 'data')
    """
    return override.lstrip("+~").partition("=")[0].partition("@")[0]


def argument(key: str, value: str) -> str:
    """Return the override that sets a key to a string. Quotes for Hydra and the shell are added if needed.

    >>> print(argument("data.positive", "yes"), argument("data.positive", "a,b"), argument("data.label", "my label"))
    data.positive=yes "data.positive='a,b'" 'data.label=my label'
    """
    return shell_word(f"{key}={value if is_plain(value) else quoted(value)}")


def quoted(value: str) -> str:
    r"""Return a string with quotes, which Hydra parses as the same string.

    >>> print(quoted("a, b"), quoted("it's ${x}"))
    'a, b' "it's \${x}"
    """
    mark = '"' if "'" in value else "'"
    text = re.sub(rf"(\\*){mark}", lambda match: f"{match[1] * 2}\\{mark}", value)
    text = re.sub(r"(\\*)\$\{", lambda match: f"{match[1] * 2}\\${{", text)  # OmegaConf would interpolate ${…}
    text = re.sub(r"\\+$", lambda match: match[0] * 2, text)
    return f"{mark}{text}{mark}"


def unquoted(text: str) -> str | None:
    r"""Return the string that `quoted` writes as `text`, None for a text without quotes. `${…}` stands for itself.

    >>> print(unquoted(quoted(r"it's \d, ${x}")), unquoted("'${x}'"), unquoted("a"))
    it's \d, ${x} ${x} None
    """
    if not (parts := QUOTED.fullmatch(text)):
        return None
    return re.sub(rf"(\\+)({parts[1]}|\$\{{|$)", lambda match: "\\" * (len(match[1]) // 2) + match[2], parts[2])


def hydra_value(value: Any) -> str:
    """Convert a scalar, a list or a mapping to a text that Hydra parses as the same value of the same type.

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
    """Return a string with quotes for the shell if needed, so that bash and zsh read it as one word.

    >>> print(shell_word("model.layers=2"), shell_word("data.fields={items: category}"))
    model.layers=2 'data.fields={items: category}'
    """
    if "'" in text and not re.search(r'["$`\\!]', text):
        return f'"{text}"'
    return shlex.quote(text)


def is_plain(value: str) -> bool:
    """Return True if a string needs no quotes, because Hydra does not parse it as a float or null.

    `label_text` converts a parsed integer or lower-case boolean back to the same string.
    """
    if not PLAIN.fullmatch(value) or value.endswith("\\"):
        return False
    if value in ("true", "false") or WHOLE.fullmatch(value):
        return True  # `label_text` converts a parsed boolean or integer back
    if value.lower() in ("true", "false", "null", "nan", "inf", "+inf", "-inf", "+nan", "-nan"):
        return False
    try:
        float(value)
    except ValueError:
        return True
    return False


# Conversion of YAML scalars to the text in data files.


def label_text(value: Any) -> str:
    """Convert a label, id or column name to a string. YAML parses names such as `true` and 3 as other types.

    >>> label_text(True), label_text(3), label_text("spam")
    ('true', '3', 'spam')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)


def did_you_mean(word: object, known: Iterable[str], ignoring: str = "") -> str:
    """Return "did you mean 'name'?" with the most similar name in `known`, or "".

    `ignoring`: common prefix of all names in `known`. The prefix is not compared.

    >>> did_you_mean("recal", ["loss", "recall"])
    "did you mean 'recall'?"
    >>> did_you_mean("colour", ["loss", "recall"])
    ''
    """
    names = [name.removeprefix(ignoring) for name in known]
    near = difflib.get_close_matches(str(word).removeprefix(ignoring), names, 1)
    return f"did you mean '{ignoring}{near[0]}'?" if near else ""


def must_be_one_of(word: object, known: Iterable[object]) -> tuple[str, str]:
    """Return an error text that lists the names in `known`, and a hint, "" if no name is similar.

    >>> must_be_one_of("gpu", ["auto", "cpu", "cuda"])
    ('must be auto, cpu or cuda', "did you mean 'cpu'?")
    """
    names = list(dict.fromkeys(str(name) for name in known))
    if 1 < len(names) <= FEW:
        text = f"must be {', '.join(names[:-1])} or {names[-1]}"
    else:
        text = f"must be one of {', '.join(names)}" if len(names) > 1 else f"must be {names[0]}"
    return text, did_you_mean(word, names)


def similar_file(path: str) -> str:
    """Return "did you mean 'path'?" with the file in the same folder that has the most similar name, or ""."""
    typed = Path(path)
    with suppress(OSError, ValueError):
        names = [entry.name for entry in typed.parent.iterdir() if entry.name != typed.name]  # `path` may be a link
        near = difflib.get_close_matches(typed.name, names, 1, NEAR_FILE)
        return f"did you mean '{typed.with_name(near[0])}'?" if near else ""
    return ""
