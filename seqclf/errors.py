"""The error that users can fix themselves, and the errors of libraries in one line."""

MAX_CHARACTERS = 590


class InputError(ValueError):
    """A file, a row or a setting cannot be used.

    The text is one line that names the file, row or key and the remedy. Commands print it and exit with code 2. It may
    quote names and cells that hold anything: control characters are escaped, and the middle of a long text is cut.

    >>> print(InputError("train.csv: row 2: a\\nb is no number; fix the cell"))
    train.csv: row 2: a\\nb is no number; fix the cell
    """

    def __init__(self, text: str):
        line = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
        half = MAX_CHARACTERS // 2
        super().__init__(line if len(line) <= MAX_CHARACTERS else f"{line[:half]} … {line[-half:]}")


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text that is not blank, else the name of its class.

    >>> first_line(ValueError("\\n no such column\\nLINE 1: …")), first_line(KeyError())
    ('no such column', 'KeyError')
    """
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
