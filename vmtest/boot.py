# SPDX-License-Identifier: Apache-2.0
"""Boot one kernel under QEMU with this machine's file system, run a script in it as root, and end it for sure.

virtme-ng makes the early file system and the command line. The guest sees this machine's root read-only over 9p, which
without a cache reads every library anew at each start of a program; so the folders that programs come from are mounted
once more with one (``cache=loose`` is right for what nobody changes); ``/usr`` and the source tree get a writable layer
in memory.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vmtest import VmtestError, setup

if TYPE_CHECKING:
    from typing import BinaryIO

    from vmtest.emulator import Machine
    from vmtest.kernels import Unpacked

REPOSITORY: Final = Path(__file__).resolve().parent.parent
GUEST_FOLDER: Final = "/run/vmtest"  # where the guest finds what it shares with the host, writable
CPU_COUNT: Final = 2
MEMORY: Final = "1536M"
LOST_EXIT_CODE: Final = 255  # the guest panicked or was ended before the script said anything

# X86_FEATURE_REP_GOOD. With it, or what goes by `erms` and `fsrm`, the kernel clears and copies by one instruction,
# which QEMU before 10 emulates as a loop: it took a third of the time.
_REP_GOOD: Final = 3 * 32 + 16
# Time that emulation would spend on what no test is about; the counter of the emulated CPU is the one clock that needs
# no exit to the emulator to be read. Mitigations cost most of all and change no result.
_KERNEL_OPTIONS: Final = (
    "mitigations=off",
    "tsc=reliable",
    "no_timer_check",
    "nowatchdog",
    "audit=0",
    "apparmor=0",
    "cryptomgr.notests",
    f"clearcpuid={_REP_GOOD}",
)
_QEMU_OPTIONS: Final = (
    # One thread for both CPUs: with a thread each, QEMU 7.2 now and then lets one run the int3 that the other has
    # taken away again while it patched a tracepoint's jump label, and the guest panics.
    *("-accel", "tcg,thread=single,tb-size=512"),
    *("-cpu", "max,svm=off,la57=off,xlevel=0x80000008,erms=off,fsrm=off"),
    "-nodefaults",
    *("-machine", "q35,usb=off,sata=off,smbus=off,vmport=off"),
    *("-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap"),
    *("-device", "virtio-9p-pci,fsdev=host,mount_tag=vmtest.host"),
)


@dataclass(frozen=True)
class Outcome:
    """What a boot came to.

    Attributes
    ----------
    exit_code
        Of the script; None if the guest ended, or was ended, before the script did.
    timed_out
        It was ended because its time was over.
    boot_s, total_s
        Seconds until the script began (None if it never did), and in all.
    """

    exit_code: int | None
    timed_out: bool
    boot_s: float | None
    total_s: float


def guest_script(kernel: Unpacked, script: str) -> str:
    """Return what the guest runs: file systems put right, then `script` in the source tree, then its exit code kept."""
    repository = shlex.quote(str(REPOSITORY))
    modules = shlex.quote(str(kernel.modules))
    programs = [folder for folder in dict.fromkeys((sys.base_prefix, sys.prefix)) if not folder.startswith("/usr")]
    cached = "\n".join(_cached(folder) for folder in programs)
    return f"""
cd /
date +%s.%N >{GUEST_FOLDER}/began
mkdir -p /run/host /run/layer/usr /run/layer/usr-work /run/layer/tree /run/layer/tree-work
mount -t 9p -o ro,cache=loose,version=9p2000.L,trans=virtio,msize=1048576 vmtest.host /run/host
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t overlay -o lowerdir=/run/host/usr,upperdir=/run/layer/usr,workdir=/run/layer/usr-work layer /usr
mkdir -p /usr/lib/modules/{kernel.release}
mount --bind /run/host{modules} /usr/lib/modules/{kernel.release}
{cached}
mkdir -p {repository}
layer=upperdir=/run/layer/tree,workdir=/run/layer/tree-work
mount -t overlay -o lowerdir=/run/host{repository},$layer layer {repository}
mount -t bpf bpf /sys/fs/bpf
ulimit -l unlimited
export HOME=/tmp/home PATH="$PATH:/usr/sbin:/sbin" LANG=C.UTF-8 HOPSCOPE_VM=1 OUT={GUEST_FOLDER}
mkdir $HOME
cd {repository}
(
{script}
)
code=$?
dmesg >{GUEST_FOLDER}/dmesg.txt
echo $code >{GUEST_FOLDER}/exit-code
exit $code
"""


def _cached(folder: str) -> str:
    quoted = shlex.quote(folder)
    return f"mkdir -p {quoted}; mount --bind /run/host{quoted} {quoted}"


def command_line(kernel: Unpacked, shared: Path, timeout_s: float, machine: Machine | None = None) -> list[str]:
    """Return the command that boots `kernel` and runs ``guest.sh`` of the folder `shared` in it.

    Without a `machine`, this machine's own QEMU gives the guest one without NICs.

    It ends by itself after `timeout_s` seconds, and when the process that started it ends, however that ends.

    Raises
    ------
    VmtestError
        virtme-ng is not installed beside this Python.
    """
    virtme = Path(sys.executable).with_name("virtme-run")
    if not virtme.exists():
        raise VmtestError("virtme-ng is not installed beside this Python. Run: tools/setup vmtest")
    command = ["setpriv", "--pdeathsig", "TERM", "timeout", "--kill-after=5", f"{timeout_s:.0f}", str(virtme)]
    command += ["--disable-kvm", "--force-9p", "--mods", "auto", "--kimg", str(kernel.image)]
    command += ["--cpus", str(CPU_COUNT), "--memory", MEMORY, "--show-boot-console", "--overlay-rwdir=/etc"]
    folders = ((GUEST_FOLDER, shared), *(machine.shared if machine else ()))
    command += [f"--rwdir={there}={here}" for there, here in folders]
    kernel_options = (*_KERNEL_OPTIONS, *(machine.kernel_options if machine else ()))
    command += [text for option in kernel_options for text in ("-a", option)]
    command += ["--qemu-bin", str(machine.qemu)] if machine else []
    command += ["--script-sh", f"bash {GUEST_FOLDER}/guest.sh"]
    return [*command, "--qemu-opts", *_QEMU_OPTIONS, *(machine.options if machine else ())]


def boot(  # noqa: PLR0913 - what differs between boots
    kernel: Unpacked,
    script: str,
    folder: Path,
    *,
    timeout_s: float,
    show: bool = False,
    machine: Machine | None = None,
) -> Outcome:
    """Boot a kernel, run a shell script in it as root, and wait until it is over.

    The script runs in the source tree, which it may write to without a trace. What it leaves in ``$OUT`` is in `folder`
    afterwards, beside ``output.txt`` (what it printed), ``console.txt`` and ``dmesg.txt`` (what the kernel did).

    Parameters
    ----------
    kernel
        What to boot.
    script
        For ``bash``.
    folder
        Shared with the guest; made if missing.
    timeout_s
        Seconds after which the guest is ended.
    show
        Copy what the script prints to standard output as well.
    machine
        As for `command_line`.

    Raises
    ------
    VmtestError
        virtme-ng or one of the packages it needs is missing.
    """
    wanted = setup.missing()
    if wanted:
        raise VmtestError(f"missing here: {', '.join(wanted)}. Run: sudo python -m vmtest --setup")
    folder.mkdir(parents=True, exist_ok=True)
    for stale in ("began", "exit-code"):
        (folder / stale).unlink(missing_ok=True)
    (folder / "guest.sh").write_text(guest_script(kernel, script))
    command = command_line(kernel, folder.resolve(), timeout_s, machine)
    began_s = time.time()
    status = _run(command, folder, show=show)
    text = _read(folder / "began")
    code = _read(folder / "exit-code")
    return Outcome(
        exit_code=int(code) if code else None,
        timed_out=status in {124, 137},  # as timeout(1) has it
        boot_s=round(float(text) - began_s, 1) if text else None,
        total_s=round(time.time() - began_s, 1),
    )


def _run(command: list[str], folder: Path, *, show: bool) -> int:
    environment = {**os.environ, "PATH": setup.search_path()}
    with (
        (folder / "output.txt").open("wb") as output,
        (folder / "console.txt").open("wb") as console,
        # Pipes, for QEMU opens its standard streams several times over and would overwrite a file's beginning.
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        ) as process,
    ):
        pumps = [
            threading.Thread(target=_pump, args=(process.stdout, output, show)),
            threading.Thread(target=_pump, args=(process.stderr, console, False)),
        ]
        for pump in pumps:
            pump.start()
        try:
            return process.wait()
        finally:
            _end(process)
            for pump in pumps:
                pump.join()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End QEMU and all between; it is a session of its own, so nothing else is in the group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            continue


def _pump(source: BinaryIO, target: BinaryIO, show: bool) -> None:  # noqa: FBT001 - a thread's positional argument
    for line in source:
        target.write(line)
        target.flush()
        if show:
            sys.stdout.write(line.decode(errors="replace"))
            sys.stdout.flush()


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
