"""The errors Headway raises on purpose: each says where, what is wrong and what to do."""


class HeadwayError(Exception):
    """A failure at run time that was foreseen; the command line prints its one line and exits with `exit_code`."""

    exit_code = 1


class UserError(HeadwayError):
    """A mistake in what the user gave: nothing was changed, the line says what to do."""

    exit_code = 2


class DataError(UserError):
    """A corpus, a line of it or a token store that cannot be used."""


class ConfigError(UserError):
    """A recipe, an override or an option that cannot be used."""


class FolderError(UserError):
    """A model, run or checkpoint folder that cannot be used."""


SIGNS = (
    "out of memory", "can't allocate memory", "Cannot allocate memory", "not enough memory", "bad_alloc",
    "CUBLAS_STATUS_ALLOC_FAILED", "failed to map segment", "can't start new thread", "without exception set",
)  # fmt: skip
"""What the messages of errors hold that mean memory: only some have a class of their own."""


def out_of_memory(error: BaseException) -> bool:
    """Whether an error, or one that it came of, says that memory ran out."""
    told = isinstance(error, MemoryError) or any(sign in str(error) for sign in SIGNS)
    return told or (error.__context__ is not None and out_of_memory(error.__context__))


class Interrupted(HeadwayError):  # noqa: N818  # not a fault: the user asked
    """The user or the system asked the process to stop; `exit_code` follows the shell's convention of 128 + signal."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number
