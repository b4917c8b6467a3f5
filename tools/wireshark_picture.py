# SPDX-License-Identifier: Apache-2.0
"""Write docs/wireshark.png and docs/wireshark-events.png: Wireshark's window, of recordings of the tests.

Needs wireshark, xdotool, and Xvfb, which keeps its screen in a file.
"""

from __future__ import annotations

import importlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Final

import numpy as np

ROOT: Final = Path(__file__).resolve().parent.parent
RECORDINGS: Final = ROOT / "tests" / "recordings"
SIZE: Final = (1180, 700)
PATIENCE_S: Final = 90.0
LOOK_S: Final = 0.5
# Looks at which the screen is the same: then it is complete.
STILL: Final = 6
# Of an XWD file's header, in words of 4 bytes.
_HEADER, _BYTES_PER_LINE, _COLOURS = 0, 12, 19
_SETTINGS: Final = {
    "privs.warn_if_elevated": "FALSE",  # root's Wireshark asks whether that is meant
    "gui.update.enabled": "FALSE",
    "gui.layout_content_3": "NONE",
}
# The file, what is shown, and the packet, whose last line of details is unfolded.
PICTURES: Final = (("wireshark.png", "drops", 6), ("wireshark-events.png", "drops.pcap", 11))
# In the window, a line of the details.
DETAILS: Final = (200, 440)


def main() -> None:
    """Show each, and take a picture of it."""
    if missing := [name for name in ("wireshark", "Xvfb", "xdotool") if shutil.which(name) is None]:
        sys.exit(f"{' and '.join(missing)} needed: apt-get install wireshark xvfb xdotool")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        events(place / "drops.pcap", "drops")
        for name, what, packet in PICTURES:
            source = place / what if what.endswith(".pcap") else RECORDINGS / what
            words = [word for setting in _SETTINGS.items() for word in ("-o", ":".join(setting))]
            (ROOT / "docs" / name).write_bytes(picture(place, [str(source), "--", *words, "-g", str(packet)]))


def events(file: Path, recording: str) -> None:
    """Write the events of a recording as `tcpdump -w` of hop0 does."""
    sys.path.insert(0, str(ROOT))
    # Of the checkout; what tests need for their own types need not be here.
    sender = importlib.import_module("tests.live.wired").Sender(recording, follow=True)
    offset_ns = sender.metadata.realtime_ns - sender.metadata.started_ns
    written = importlib.import_module("tests.verbs.wireshark.test_events").written
    written(file, [*sender.first, *sender.frames, *sender.catalogue(0)], offset_ns)


def picture(place: Path, words: list[str]) -> bytes:
    """Return a picture of the window of `hopscope wireshark` with these arguments, as PNG."""
    width, height = SIZE
    display = ["Xvfb", "-displayfd", "1", "-screen", "0", f"{width}x{height}x24", "-fbdir", str(place)]
    with subprocess.Popen(display, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as screen:
        assert screen.stdout  # noqa: S101 # it is a pipe
        number = screen.stdout.readline().strip()
        environment = {**os.environ, "DISPLAY": f":{number}", "QT_QPA_PLATFORM": "xcb", "XDG_RUNTIME_DIR": str(place)}
        argv = [sys.executable, "-m", "hopscope", "wireshark", *words]
        with subprocess.Popen(argv, env=environment, start_new_session=True) as window:
            settled(place / "Xvfb_screen0")
            whole = ["search", "--onlyvisible", "--class", "wireshark", "windowmove", "0", "0", "windowsize", *SIZE]
            unfold = ["mousemove", *DETAILS, "click", "1", "key", "End", "key", "Right", "key", "End"]
            for does in (whole, unfold, ["mousemove", *SIZE]):
                subprocess.run(["xdotool", *map(str, does)], env=environment, check=True)
                settled(place / "Xvfb_screen0")
            shown = settled(place / "Xvfb_screen0")
            os.killpg(window.pid, 15)
        screen.terminate()
    return png(shown)


def settled(file: Path) -> np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]:
    """Return what is on the screen, as RGB, when there is something that does not change any more.

    Raises
    ------
    TimeoutError
        It changes all the time, or stays empty.
    """
    before, still = b"", 0
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        time.sleep(LOOK_S)
        now = file.read_bytes()
        still = still + 1 if now == before else 0
        before = now
        pixels = rgb(now)
        # A window of Wireshark before its file is read has hardly any colour.
        if still >= STILL and len(np.unique(pixels.reshape(-1, 3)[::7], axis=0)) > STILL:
            rows, columns = np.flatnonzero(pixels.any(axis=(1, 2))), np.flatnonzero(pixels.any(axis=(0, 2)))
            return pixels[: rows[-1] + 1, : columns[-1] + 1]
    raise TimeoutError("the window never settled")


def rgb(data: bytes) -> np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]:
    """Return the pixels of an XWD file of 32 bits each."""
    words = struct.unpack_from(">25I", data)
    begin = words[_HEADER] + words[_COLOURS] * 12
    lines = np.frombuffer(data, np.uint8, SIZE[1] * words[_BYTES_PER_LINE], begin)
    return lines.reshape(SIZE[1], -1, 4)[:, : SIZE[0], 2::-1]


def png(pixels: np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]) -> bytes:
    """Return a PNG; of its colours, those nearest to each other are taken for one, so that there are at most 256."""
    height, width = pixels.shape[:2]
    bits = 8
    while True:
        coarse = pixels >> (8 - bits) << (8 - bits)
        colours, places = np.unique(coarse.reshape(-1, 3), axis=0, return_inverse=True)
        if len(colours) <= 256:
            break
        bits -= 1
    rows = np.zeros((height, width + 1), np.uint8)  # each begins with its filter: none
    rows[:, 1:] = places.reshape(height, width)
    spread = (colours.astype(np.int64) * 255 // max(int(colours.max()), 1)).astype(np.uint8)
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)), (b"PLTE", spread.tobytes())]
    parts += [(b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")]
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


if __name__ == "__main__":
    main()
