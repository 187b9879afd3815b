"""Exceptions for errors that the user can fix."""

from __future__ import annotations

import re

MAX_CHARACTERS = 590
SECRET = re.compile(r"[?&#;][^=&]*(key|secret|token|sig|credential|pass|pwd)[^=&]*=", re.IGNORECASE)  # name in a query
HERE = r"(?:(?!,\w+://)[^\s'\"])*"  # text up to the next URL of a list
USER = rf"((?:[^\s/?#'\":@]*:(?!\d+/){HERE}|[^\s/?#'\"]*)@)?"  # a password may hold any character
URL = re.compile(rf"\b(\w+)://{USER}((?:(?!,\w+://)[^\s?#'\"])*)([?#]{HERE}(?<![:;,.)]))?")
STORE = re.compile("s3[an]?|gc?s", re.IGNORECASE)  # schemes of stores, in whose URLs ? is a pattern


def without_credentials(text: str) -> str:
    """Return a text in which each URL has `***` for its user, for the values of its query and for its fragment.

    A pattern of a store is kept.

    >>> without_credentials("https://me:word@host/t.csv?X-Amz-Signature=ab&x=1: no file")
    'https://***@host/t.csv?X-Amz-Signature=***&x=***: no file'
    """

    def masked(url: re.Match[str]) -> str:
        scheme, user, place, query = (part or "" for part in url.groups())
        if SECRET.search(query) or not STORE.fullmatch(scheme):
            query = re.sub("=[^&#]*", "=***", query) if "=" in query else query[:1] and f"{query[0]}***"
        return f"{scheme}://{user and '***@'}{place}{query}"

    return URL.sub(masked, text)


class InputError(ValueError):
    """Error for a file, a row or a setting that cannot be used.

    `where`: place of the error, such as a file, a row or a config key; None if the caller adds it later (see `within`).
    `problem`: description. `remedy`: how to fix it. The error text is one line with the three, which a command prints
    before it exits with `exit_code`. As it may contain text from data files, control characters are escaped, and a long
    line is shortened in the middle. The attributes are as given, except that URLs are without credentials.

    >>> error = InputError("row 2", "a\\nb is no number", "fix the cell")
    >>> print(error.within("train.csv"))
    train.csv: row 2: a\\nb is no number; fix the cell
    >>> error.within("train.csv").where, error.remedy
    ('train.csv: row 2', 'fix the cell')
    """

    exit_code = 2

    def __init__(self, where: object, problem: object = None, remedy: object = None):
        if problem is None:  # torch's DataLoader re-creates the error of a worker process from the error text only
            where, problem = None, where
        self.where = None if where is None else without_credentials(str(where))
        self.problem = without_credentials(str(problem))
        self.remedy = without_credentials(str(remedy)) if remedy else None
        place = "" if self.where is None else f"{self.where}: "
        super().__init__(_one_line(f"{place}{self.problem}{f'; {self.remedy}' if self.remedy else ''}"))

    def __reduce__(self) -> tuple[type[InputError], tuple[str | None, str, str | None]]:
        return type(self), (self.where, self.problem, self.remedy)  # errors are pickled to send them to another process

    @property
    def reason(self) -> str:
        """Error text without the remedy."""
        return self.problem if self.where is None else f"{self.where}: {self.problem}"

    def within(self, where: object, remedy: str | None = None) -> InputError:
        """Return a copy of this error with an additional place, such as "train.csv" before "row 2", and remedy."""
        parts = [str(part) for part in (where, self.where) if part is not None]
        return type(self)(": ".join(parts) or None, self.problem, "; ".join(filter(None, [self.remedy, remedy])))

    def with_remedy(self, remedy: str | None) -> InputError:
        """Return a copy of this error whose remedy is replaced by `remedy`."""
        return InputError(self.where, self.problem, remedy)


class RefusedValueError(ValueError):
    """Error that a validator of config values raises for a wrong value, without the config key, which it does not know.

    >>> print(RefusedValueError("must be at most 1", "write 10 % as 0.1").at("data.split.test=10"))
    data.split.test=10: must be at most 1; write 10 % as 0.1
    """

    def __init__(self, problem: str, remedy: str | None = None):
        self.problem, self.remedy = problem, remedy or None
        super().__init__("; ".join(filter(None, [problem, remedy])))

    def at(self, where: object) -> InputError:
        """Convert this error to an InputError. `where`: place of the wrong value, such as its config key."""
        return InputError(where, self.problem, self.remedy)


def _one_line(text: str) -> str:
    line = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    half = MAX_CHARACTERS // 2
    return line if len(line) <= MAX_CHARACTERS else f"{line[:half]} … {line[-half:]}"


def first_line(error: BaseException) -> str:
    """Return the first non-blank line of an error text, or the name of the error class.

    >>> first_line(ValueError("\\n no such column\\nLINE 1: …")), first_line(KeyError())
    ('no such column', 'KeyError')
    """
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
