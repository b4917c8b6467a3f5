# SPDX-License-Identifier: Apache-2.0
"""A channel to a host, whichever way ``--host`` says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from hopscope.agent.channel import HELLO_S, Channel
from hopscope.agent.local import AGENT, explain
from hopscope.agent.process import Process
from hopscope.agent.tls import Tls, client_context
from hopscope.agent.tls_connect import reach

if TYPE_CHECKING:
    from hopscope.agent.ssh import Ssh
    from hopscope.agent.target import Target
    from hopscope.agent.transport import Transport

# Until the hello of an agent that was there already; of one behind a password, for which sshd itself gives so long.
_AGAIN_S: Final = 20.0
_PASSWORD_S: Final = 120.0


def connect(target: Target, ssh: Ssh, tls: Tls | None = None) -> Channel:
    """Start or reach the agent of a host, and return the channel to it.

    Parameters
    ----------
    target
        The host.
    ssh, tls
        How to start an agent through ssh (`ssh.again()` where nobody should be asked), and who we are to one that
        listens; without `tls`, as the environment says.

    Raises
    ------
    UsageError
        A program or a file that it takes cannot be used.
    ConnectionLostError
        The host cannot be reached, or has no agent; ssh has said why.
    RemoteError
        An agent that listens refuses us, or is not the one that is meant.
    HopscopeError
        The agent is of another version.
    """
    return reached(target, ssh, started(target, ssh, tls))


def reached(target: Target, ssh: Ssh, transport: Transport) -> Channel:
    """Return the channel over what leads to the agent of a host; it is closed where there can be none.

    Raises
    ------
    HopscopeError
        As from :func:`connect`.
    """
    hello_s = HELLO_S
    if target.way == "ssh":
        hello_s = _AGAIN_S if ssh.unattended else _PASSWORD_S
    return Channel(transport, "client", target.name, hello_s=hello_s)


def started(target: Target, ssh: Ssh, tls: Tls | None) -> Transport:
    """Return what leads to the agent of a host, before that has said anything.

    Raises
    ------
    HopscopeError
        As from :func:`connect`.
    """
    if target.way == "local":
        return Process(AGENT, explain)
    if target.way == "tls":
        return _reach(target.destination, tls or Tls.of())
    return ssh.start(target)


def _reach(destination: str, tls: Tls) -> Transport:
    parts = urlsplit(f"//{destination}")
    assert parts.hostname is not None  # noqa: S101 - `Target` has seen to that
    assert parts.port is not None  # noqa: S101 - as above
    return reach(parts.hostname, parts.port, client_context(tls.files(f"tls://{destination}")))
