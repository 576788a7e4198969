"""How the command line fails: one line that says what and where and the next step, and an exit status."""

from __future__ import annotations

from taintctl.ports.errors import ClusterError, Conflict, Forbidden, NotFound, Unavailable

DONE, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130


class Failure(Exception):
    """Refused or failed: exit status 1, and its text is the one line that people read."""

    status = FAILED


class BadFile(Failure):
    """What a file that the command was given holds can't be meant: wrong use, as a bad option is."""

    status = WRONG_USE


def sentence(error: BaseException) -> str:
    """One line for any error that may end a command, with the next step where the kind of error has one."""
    if isinstance(error, Failure):
        return str(error)
    if isinstance(error, ClusterError):
        said = error.message.rstrip(".")
        if isinstance(error, Forbidden) and error.status == 403:
            return f"{said}; ask for that right, or use --context with an account that has it"
        if isinstance(error, Unavailable):
            return f"{said}; check that the cluster of this kubeconfig is up, then try again"
        if isinstance(error, NotFound):
            return f"{said}; it was deleted meanwhile, or this cluster does not serve it"
        if isinstance(error, Conflict):
            return f"{said}; somebody changed it meanwhile: look again, then repeat the command"
        return said
    text = str(error) or type(error).__name__
    if isinstance(error, OSError):
        return text
    return f"internal error, {type(error).__name__}: {text}; run it again with TAINTCTL_TRACEBACK=1 and report it"
