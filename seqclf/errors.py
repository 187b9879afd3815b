"""The error that users can fix themselves, and the errors of libraries in one line."""

from __future__ import annotations

MAX_CHARACTERS = 590


class InputError(ValueError):
    """A file, a row or a setting cannot be used.

    `where`: the file, row or key, None where only the caller knows it (see `within`). `problem`: what is wrong with it.
    `remedy`: what to do. The text is one line of all three. Commands print it and exit with code 2. It may quote names
    and cells that hold anything: control characters are escaped, and the middle of a long text is cut. The attributes
    hold the parts as they were given.

    >>> error = InputError("row 2", "a\\nb is no number", "fix the cell")
    >>> print(error.within("train.csv"))
    train.csv: row 2: a\\nb is no number; fix the cell
    >>> error.within("train.csv").where, error.remedy
    ('train.csv: row 2', 'fix the cell')
    """

    def __init__(self, where: object, problem: object = None, remedy: object = None):
        if problem is None:  # torch's DataLoader rebuilds the error of a worker from its text alone
            where, problem = None, where
        self.where = None if where is None else str(where)
        self.problem = str(problem)
        self.remedy = str(remedy) if remedy else None
        place = "" if self.where is None else f"{self.where}: "
        super().__init__(_one_line(f"{place}{self.problem}{f'; {self.remedy}' if self.remedy else ''}"))

    def __reduce__(self) -> tuple[type[InputError], tuple[str | None, str, str | None]]:
        return type(self), (self.where, self.problem, self.remedy)  # processes pass errors on pickled

    @property
    def reason(self) -> str:
        """The place and the problem, without the remedy."""
        return self.problem if self.where is None else f"{self.where}: {self.problem}"

    def within(self, where: object, remedy: str | None = None) -> InputError:
        """Return this error with what its place is in, such as a file or a group of the config.

        `where`: None leaves the place as it is. `remedy`: added to its own.
        """
        parts = [str(part) for part in (where, self.where) if part is not None]
        return InputError(": ".join(parts) or None, self.problem, "; ".join(filter(None, [self.remedy, remedy])))

    def with_remedy(self, remedy: str | None) -> InputError:
        """Return this error with another remedy."""
        return InputError(self.where, self.problem, remedy)


class RefusedValueError(ValueError):
    """A value is not what it must be, for validators, which do not know its key.

    >>> print(RefusedValueError("must be at most 1", "write 10 % as 0.1").at("data.split.test=10"))
    data.split.test=10: must be at most 1; write 10 % as 0.1
    """

    def __init__(self, problem: str, remedy: str | None = None):
        self.problem, self.remedy = problem, remedy or None
        super().__init__("; ".join(filter(None, [problem, remedy])))

    def at(self, where: object) -> InputError:
        """Return the error of the key that holds the value."""
        return InputError(where, self.problem, self.remedy)


def _one_line(text: str) -> str:
    line = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    half = MAX_CHARACTERS // 2
    return line if len(line) <= MAX_CHARACTERS else f"{line[:half]} … {line[-half:]}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text that is not blank, else the name of its class.

    >>> first_line(ValueError("\\n no such column\\nLINE 1: …")), first_line(KeyError())
    ('no such column', 'KeyError')
    """
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
