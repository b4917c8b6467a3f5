# SPDX-License-Identifier: Apache-2.0
"""A stub where Wireshark looks for programs that capture: it answers what Wireshark asks, and starts us to capture."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

from hopscope.errors import UsageError
from hopscope.live.subscribing import SOCKET

_NAME: Final = "hopscope"
_MARK: Final = "# written by `hopscope wireshark --install`"
# A shell: Wireshark asks four or five times before each capture, and waits.
_STUB: Final = """#!/bin/sh
{mark}
for word; do
  case $word in
    --extcap-interfaces) cat <<'END'; exit ;;
extcap {{version=1}}{{display=hopscope}}
interface {{value=hopscope}}{{display=hopscope: packets with their hops}}
END
    --extcap-dlts) cat <<'END'; exit ;;
dlt {{number=1}}{{name=EN10MB}}{{display=Ethernet}}
END
    --extcap-config) cat <<'END'; exit ;;
arg {{number=0}}{{call=--where}}{{display=Only events with}}{{tooltip=A condition}}{{type=string}}
arg {{number=1}}{{call=--points}}{{display=Probe points}}{{tooltip=Or profiles}}{{type=string}}{{default=packets}}
arg {{number=2}}{{call=--since}}{{display=Seconds before}}{{tooltip=Of serve --keep}}{{type=double}}{{default=0}}
arg {{number=3}}{{call=--socket}}{{display=Socket}}{{tooltip=Of serve --socket}}{{type=string}}{{default={socket}}}
END
  esac
done
exec {python} -P -m hopscope.verbs.wireshark.extcap "$@"
"""


def change(*, install: bool, uninstall: bool) -> int:
    """Put the stub there, or remove it, and say so.

    Raises
    ------
    UsageError
        It cannot be done, or both are asked for.
    """
    if install and uninstall:
        raise UsageError("--install and --uninstall exclude each other")
    if install:
        sys.stdout.write(f"{put()}: Wireshark lists the interface hopscope when it is started anew\n")
    else:
        sys.stdout.write(f"removed {remove()}\n")
    return 0


def put() -> Path:
    """Put the stub where Wireshark looks, and return where that is.

    Raises
    ------
    UsageError
        There is no Wireshark, or its folder cannot be written to.
    """
    path = _folder() / _NAME
    text = _STUB.format(mark=_MARK, python=shlex.quote(sys.executable), socket=SOCKET)
    _check(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    return path


def remove() -> Path:
    """Remove the stub, and return where it was.

    Raises
    ------
    UsageError
        There is none.
    """
    path = _folder() / _NAME
    _check(path)
    try:
        path.unlink()
    except FileNotFoundError as error:
        raise UsageError(f"There is no {path}", "`hopscope wireshark --install` puts it there") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be removed: {error.strerror}") from error
    return path


def _check(path: Path) -> None:
    """Leave what others have put there alone."""
    if path.exists() and _MARK not in path.read_text(errors="replace"):
        raise UsageError(f"{path} was not written by hopscope", "Move it away")


def _folder() -> Path:
    """Return the folder in which this user's Wireshark looks, as it says itself."""
    try:
        done = subprocess.run(["tshark", "-G", "folders"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise UsageError("tshark, which knows the folder, is not installed", "Install it, on Debian: tshark") from error
    found = {name: text.strip() for name, _, text in (line.partition(":") for line in done.stdout.splitlines())}
    if "Extcap path" not in found and "Global Extcap path" not in found:
        raise UsageError("This Wireshark was built without extcap, so that it starts no programs to capture")
    # Before 4.2, the user's own folder is not told, and root's Wireshark looks into none.
    if personal := found.get("Personal Extcap path"):
        return Path(personal)
    if os.geteuid() == 0:
        return Path(found["Extcap path"])
    return Path(found["Personal configuration"]) / "extcap"
