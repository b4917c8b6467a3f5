# SPDX-License-Identifier: Apache-2.0
"""What is put where Wireshark looks: a stub that captures, and the script that shows events.

The stub answers what Wireshark asks, and starts us to capture.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

from hopscope.errors import UsageError
from hopscope.live.subscribing import SOCKET
from hopscope.verbs.wireshark.events import script
from hopscope.verbs.wireshark.extcap import EVENTS, PACKETS

_NAME, _SCRIPT_NAME = "hopscope", "hopscope_events.lua"
_MARK: Final = "written by `hopscope wireshark --install`"
# A shell: Wireshark asks four or five times before each capture, and waits.
_STUB: Final = """#!/bin/sh
# {mark}
for word; do
  case $word in
    --extcap-interfaces) cat <<'END'; exit ;;
extcap {{version=1}}{{display=hopscope}}
interface {{value={packets}}}{{display=hopscope: packets with their hops}}
interface {{value={events}}}{{display=hopscope: events}}
END
    --extcap-dlts) cat <<'END'; exit ;;
dlt {{number=1}}{{name=EN10MB}}{{display=Ethernet}}
END
    --extcap-config)
      case " $* " in
        *" {events} "*) cat <<'END' ;;
arg {{number=4}}{{call=--events}}{{display=Tracepoints}}{{tooltip=As record -e has them}}{{type=string}}
END
      esac
      cat <<'END'; exit ;;
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
        stub, lua = put()
        sys.stdout.write(f"{stub}: Wireshark lists the interfaces of hopscope when it is started anew\n")
        sys.stdout.write(f"{lua}: it shows events then, whatever interface or file they come from\n")
    else:
        for path in remove():
            sys.stdout.write(f"removed {path}\n")
    return 0


def put() -> tuple[Path, Path]:
    """Put the stub and the script where Wireshark looks, and return where that is.

    Raises
    ------
    UsageError
        There is no Wireshark, or its folder cannot be written to.
    """
    paths = _paths()
    python = shlex.quote(sys.executable)
    stub = _STUB.format(mark=_MARK, python=python, socket=SOCKET, packets=PACKETS, events=EVENTS)
    for path in paths:
        _check(path)
    for path, text, mode in zip(paths, (stub, f"-- {_MARK}\n{script()}"), (0o755, 0o644), strict=True):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(mode)
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    return paths


def remove() -> list[Path]:
    """Remove what is there of both, and return where it was.

    Raises
    ------
    UsageError
        There is nothing.
    """
    paths = _paths()
    there = [path for path in paths if path.exists()]
    if not there:
        raise UsageError(f"There is no {paths[0]}", "`hopscope wireshark --install` puts it there")
    for path in there:
        _check(path)
    for path in there:
        try:
            path.unlink()
        except OSError as error:
            raise UsageError(f"{path} cannot be removed: {error.strerror}") from error
    return there


def _check(path: Path) -> None:
    """Leave what others have put there alone."""
    if path.exists() and _MARK not in path.read_text(errors="replace"):
        raise UsageError(f"{path} was not written by hopscope", "Move it away")


def _paths() -> tuple[Path, Path]:
    """Return where this user's Wireshark looks for stubs and for scripts, as it says itself, with their names."""
    try:
        done = subprocess.run(["tshark", "-G", "folders"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise UsageError("tshark, which knows the folder, is not installed", "Install it, on Debian: tshark") from error
    found = {name: text.strip() for name, _, text in (line.partition(":") for line in done.stdout.splitlines())}
    if "Extcap path" not in found and "Global Extcap path" not in found:
        raise UsageError("This Wireshark was built without extcap, so that it starts no programs to capture")
    if "Personal Lua Plugins" not in found:
        raise UsageError("This Wireshark was built without Lua, so that it cannot show events")
    # Root's Wireshark runs no scripts but the system's.
    is_root = os.geteuid() == 0
    scripts = Path(found["Global Lua Plugins" if is_root else "Personal Lua Plugins"])
    # Before 4.2, the user's own folder is not told, and root's Wireshark looks into none.
    if personal := found.get("Personal Extcap path"):
        stubs = Path(personal)
    elif is_root:
        stubs = Path(found["Extcap path"])
    else:
        stubs = Path(found["Personal configuration"]) / "extcap"
    return stubs / _NAME, scripts / _SCRIPT_NAME
