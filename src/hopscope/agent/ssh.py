# SPDX-License-Identifier: Apache-2.0
"""An agent that ssh starts on another host: the user's configuration, keys and known hosts, no port of ours."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from hopscope.agent.defaults import REMOTE_COMMAND, SSH
from hopscope.agent.process import Process
from hopscope.errors import UsageError

if TYPE_CHECKING:
    from hopscope.agent.target import Target

# A terminal would change bytes, and what the user's own sessions to the host forward or run is not for ours.
# Blocks are compressed as they are.
_OPTIONS: Final = ("-T", "-x", "-a", "-oClearAllForwardings=yes", "-oRemoteCommand=none", "-oCompression=no")
_UNATTENDED: Final = ("-q", "-oBatchMode=yes", "-oConnectTimeout=10")
_FAILED: Final = 255
_NOT_EXECUTABLE: Final = 126
_NOT_FOUND: Final = 127


def failed_itself(process: Process) -> bool:
    """Tell whether ssh failed, rather than what it was to run there."""
    return process.exit_code == _FAILED


@dataclass(frozen=True, slots=True)
class Ssh:
    """How to start an agent on another host.

    Attributes
    ----------
    command
        The program and its arguments before ours.
    remote_command
        What is run there, by the user's shell.
    unattended
        Nobody is there to type a password or to read what ssh says.
    """

    command: tuple[str, ...]
    remote_command: str
    unattended: bool = False

    @classmethod
    def of(cls, command: str | None = None, remote_command: str | None = None) -> Ssh:
        """Return what the options say, where they are silent the environment, and else what is usual.

        Raises
        ------
        UsageError
            A command is empty, or its quotes are not closed.
        """
        text = command or os.environ.get("HOPSCOPE_SSH") or SSH
        remote = remote_command or os.environ.get("HOPSCOPE_REMOTE_COMMAND") or REMOTE_COMMAND
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            raise UsageError(
                f"{text!r} is not a command: {error}", "Close the quotation marks, as in a shell"
            ) from None
        if not words:
            raise UsageError(f"{text!r} is not a command", "Give --ssh a program and its arguments")
        return cls(words, remote)

    def again(self) -> Ssh:
        """Return how to reach a host once more whose connection was lost: ssh asks nobody, and does not wait long."""
        return replace(self, unattended=True)

    def start(self, target: Target) -> Process:
        """Start the agent of a host.

        Raises
        ------
        UsageError
            ssh cannot be started.
        """
        options = [*_OPTIONS, *(_UNATTENDED if self.unattended else ())]
        words = [*self.command, *options, "--", target.destination, self.remote_command]
        return Process(words, lambda code: self._explain(code, target))

    def _explain(self, code: int, target: Target) -> str:
        ours = self.remote_command
        if code == _FAILED:
            return (
                f"ssh failed{' and could not ask for a password' if self.unattended else ', see its message above'}. "
                f"Try {shlex.join([*self.command, target.destination, 'true'])}, which has to work first"
            )
        if code == _NOT_FOUND:
            return (
                f"its shell cannot find {shlex.split(ours)[0]!r}. "
                "Install hopscope there, or give its path: --remote-command '/path/to/hopscope agent'"
            )
        if code == _NOT_EXECUTABLE:
            return f"its shell is not allowed to run {ours!r}. Give another --remote-command"
        if code < 0:
            return f"ssh was killed by signal {-code}"
        return f"{ours!r} ended there with exit code {code}" if code else ""
