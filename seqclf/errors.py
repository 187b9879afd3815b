"""The one kind of error that is the user's to mend."""

LONGEST = 590  # characters


class InputError(ValueError):
    """Something the user gave cannot be used.

    The text is one line that names the file, row or key and the remedy. Commands print it and exit with code 2.
    Names and cells it quotes may hold anything: control characters are shown escaped, the middle of a long text is cut.
    """

    def __init__(self, text: str):
        line = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
        super().__init__(line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}")
