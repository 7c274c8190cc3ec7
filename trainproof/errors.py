"""The only exceptions that cross the public API. Each message is one line: what was found, expected, and what to type."""


class TrainproofError(Exception):
    """Base of every error that trainproof raises on purpose; the command line turns it into exit 2."""


class InputError(TrainproofError):
    """The input is missing, unreadable, over a bound, or empty."""


class FormatError(TrainproofError):
    """No reader recognises the input, or the reader that was asked for cannot read it."""


class UsageError(TrainproofError):
    """An option, selector, fact or threshold is unknown or malformed."""
