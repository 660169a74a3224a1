"""The caller's mistakes."""


class InputError(ValueError):
    """The caller's mistake, told in one line that names the file or value and, where there is one, the remedy."""
