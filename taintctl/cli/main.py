"""The command tree. Commands are imported only when they are called, so that `taintctl --help` and simple commands
start fast; every error ends here as one line on stderr."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click

COMMANDS: dict[str, dict[str, str]] = {
    "Look": {
        "status": "Where runs and windows are; --watch follows one run.",
        "explain": "Why nothing happens, what it waits for, and the next command.",
        "plan": "What a target would hit. Changes nothing.",
        "schedule": "The next starts of a window.",
        "devices": "The fleet: device, node, user, taints and who set them.",
    },
    "Decide": {
        "start": "Start a run now, from a window or a target.",
        "approve": "Show a run's plan and approve it.",
        "deny": "Deny a run's plan; this ends the run.",
        "pause": "No further step; under NoExecute back to NoSchedule.",
        "resume": "Go on, with a new dry run and approval check.",
        "complete": "Say that the work on the devices is done.",
        "release": "Give the devices back without waiting for the work.",
        "cancel": "End a run; --now takes the taints off with your own rights.",
    },
    "Run": {
        "run": "The controller.",
        "sandbox": "A cluster to try on, in this process.",
        "demo": "A whole maintenance window on a sandbox, in about a minute.",
    },
}
MODULES = {"approve": "approval", "deny": "approval"} | dict.fromkeys(
    ("pause", "resume", "complete", "release", "cancel"), "hand"
)


class Commands(click.Group):
    """A group whose commands are modules of taintctl.cli.commands, imported when called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for section in COMMANDS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"taintctl.cli.commands.{MODULES.get(cmd_name, cmd_name)}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, section in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl(list(section.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--kubeconfig", type=click.Path(), help="Default: $KUBECONFIG, then ~/.kube/config.")
@click.option("--context", "context_name", help="The kubeconfig's context; default: its current one.")
@click.version_option(package_name="taintctl", prog_name="taintctl")
@click.pass_context
def cli(ctx: click.Context, kubeconfig: str | None, context_name: str | None) -> None:
    """Takes GPUs and other DRA devices out of service without hurting anybody by surprise.

    Exit status: 0 done, 1 refused or failed, 2 wrong use (a bad option or file), 130 interrupted.
    """
    ctx.obj = {"kubeconfig": kubeconfig, "context": context_name}


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and gives the exit status. Never raises, never prints a traceback unless TAINTCTL_TRACEBACK
    is set."""
    from taintctl.cli.errors import DONE, INTERRUPTED, WRONG_USE

    name = os.path.basename(sys.argv[0] or "taintctl")
    prog = "kubectl taintctl" if name.startswith("kubectl-") else "taintctl"
    try:
        result = cli.main(
            args=list(arguments) if arguments is not None else None, prog_name=prog, standalone_mode=False
        )
        return result if isinstance(result, int) else DONE
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "")
        return WRONG_USE
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else prog
        _complain(f"{path}: {error.format_message().rstrip('.')} (see `{path} --help`)")
        return WRONG_USE
    except click.ClickException as error:
        _complain(f"{prog}: {error.format_message()}")
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        _complain(f"{prog}: interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`| head`): nothing is wrong, and nobody is there to be told.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as error:
        return _failed(prog, error)


def _failed(prog: str, error: Exception) -> int:
    from taintctl.cli.errors import FAILED, Failure, sentence

    if os.environ.get("TAINTCTL_TRACEBACK"):
        traceback.print_exc()
    _complain(f"{prog}: {sentence(error)}")
    return error.status if isinstance(error, Failure) else FAILED


def _complain(message: str) -> None:
    from taintctl.cli.text import say

    say(message.replace("\n", " "), stderr=True)


def main() -> NoReturn:
    """The entry point of `taintctl` and `kubectl-taintctl`."""
    sys.exit(run())


if __name__ == "__main__":
    main()
