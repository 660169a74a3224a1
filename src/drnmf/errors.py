"""What can go wrong, in words for the person who caused it or has to deal with it."""


class InputError(ValueError):
    """The caller's mistake, told in one line that names the file or value and, where there is one, the remedy."""


class DivergedError(ArithmeticError):
    """Training that turned to NaN or infinity, or whose loss left all bounds."""
