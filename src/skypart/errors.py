"""The one exception for anything the user can mend."""


class SkyPartError(Exception):
    """Bad input, in one sentence that names the file and the cure.

    The command line prints it without a traceback and exits with `exit_code`.
    """

    exit_code = 2
