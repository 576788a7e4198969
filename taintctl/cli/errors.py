"""How the command line fails: one line that says what and where and the next step, and an exit status."""

from __future__ import annotations

from taintctl.ports.errors import ClusterError, Forbidden, NotFound, Unavailable

DONE, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130


class Failure(Exception):
    """Refused or failed: exit status 1, and its text is the one line that people read."""


def sentence(error: BaseException) -> str:
    """One line for any error that may end a command, with the next step where the kind of error has one."""
    if isinstance(error, Failure):
        return str(error)
    if isinstance(error, Forbidden):
        if error.status == 401:
            return f"{error.message}; the API server does not know you: check the credentials in your kubeconfig"
        return f"{error.message}; ask for that right, or use --context with an account that has it"
    if isinstance(error, Unavailable):
        return f"{error.message}; check that the cluster of `kubectl config current-context` is up, then try again"
    if isinstance(error, NotFound):
        return f"{error.message}; `taintctl status` lists what there is"
    if isinstance(error, ClusterError):
        return error.message
    text = str(error) or type(error).__name__
    if isinstance(error, OSError):
        return text
    return f"internal error, {type(error).__name__}: {text}; run it again with TAINTCTL_TRACEBACK=1 and report it"
