"""The one kind of error that is the user's to mend."""


class InputError(ValueError):
    """Something the user gave cannot be used.

    The text is one line that names the file, row or key and the remedy. Commands print it and exit with code 2.
    """
