"""The exception for everything that the user can fix."""


class SkyPartError(Exception):
    """Bad input. The message is one line: the file, what is wrong with it, and what to do.

    The command line prints the message without a traceback and exits with `exit_code`.
    """

    exit_code = 2
