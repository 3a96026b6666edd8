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


class Interrupted(HeadwayError):  # noqa: N818  # not a fault: the user asked
    """The user or the system asked the process to stop; `exit_code` follows the shell's convention of 128 + signal."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number
