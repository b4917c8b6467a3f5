# SPDX-License-Identifier: Apache-2.0
"""An agent that waits for clients, from its options to its end."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Final

from hopscope import __version__
from hopscope.agent.allow import AllowList
from hopscope.agent.log import Log
from hopscope.agent.relay import serve_in_process
from hopscope.agent.tls import server_context
from hopscope.agent.tls_listen import Listener, address_of, listen, shown_address
from hopscope.live.stop import stop_on_signal

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.agent.tls import TlsFiles

_HOUR_S: Final = 3600.0


def wait_for_clients(where: str, files: TlsFiles, allowed: tuple[str, ...], allow_file: Path | None) -> int:
    """Serve clients until a signal asks to end.

    Raises
    ------
    UsageError
        An option is wrong, a file is, or nobody can listen there.
    """
    host, port = address_of(where)
    context = server_context(files)
    AllowList.of(allowed, allow_file)
    log = Log(sys.stderr)
    with stop_on_signal() as stop, listen(host, port) as sock:
        listener = Listener(sock, context, lambda: AllowList.of(allowed, allow_file), serve_in_process(log), log)
        thread = threading.Thread(target=listener.run, name="hopscope-listen", daemon=True)
        log.say("", f"hopscope {__version__} is listening at {shown_address(sock.getsockname())}")
        thread.start()
        while not stop.wait(_HOUR_S):
            pass
        listener.close()
        thread.join()
    log.close()
    return 0
