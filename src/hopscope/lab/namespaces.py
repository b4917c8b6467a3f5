# SPDX-License-Identifier: Apache-2.0
"""Network namespaces of our own that cannot outlive us.

A namespace exists as long as something refers to it. Here that is a file descriptor and a thread of this process, and
a child (the *holder*, which gives it a pid) that ends when this process does. So the kernel itself removes the
namespace with its devices and qdiscs, also after SIGKILL.
"""

from __future__ import annotations

import contextlib
import errno as errnos
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from hopscope.errors import HopscopeError, KernelError, PrivilegeError, UsageError
from hopscope.lab import launch
from hopscope.lab._libc import unshare_net
from hopscope.lab.links import set_up
from hopscope.setns import setns_net

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

P = ParamSpec("P")
T = TypeVar("T")

_HOLDER_EXIT_S = 5.0
# Reno is in every kernel. Probes for a lost tail (RFC 8985) come within milliseconds where a reader lacks a CPU.
_TCP_SETTINGS = {"tcp_congestion_control": "reno", "tcp_early_retrans": "0"}


class Namespace:
    """A network namespace with `lo` up, removed on exit.

    Its TCP has Reno's congestion control and sends no tail loss probes, so that traffic behaves the same on every host;
    where /proc/sys cannot be written, it has the host's settings.

    Parameters
    ----------
    name
        Also bind it to /run/netns under this name, as ``ip netns`` does.

    Attributes
    ----------
    pid
        A process inside it that does nothing.
    fd
        An open descriptor of the namespace, for setns and netlink.
    inode
        Its number, as in ``/proc/PID/ns/net`` and as the kernel's ``net->ns.inum``.

    Raises
    ------
    PrivilegeError
        CAP_SYS_ADMIN is missing.
    UsageError
        The name is taken or is not a file name.
    KernelError
        The kernel refuses for another reason.
    """

    pid: int
    fd: int
    inode: int

    def __init__(self, name: str | None = None) -> None:
        if name is not None and (not name or "/" in name or name in {".", ".."}):
            msg = f"{name!r} cannot be the name of a network namespace"
            raise UsageError(msg, "Use a plain file name.")
        self.name = name
        self._children: list[subprocess.Popen[Any]] = []
        self._cleanup = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            worker = _Worker()
            stack.callback(worker.stop)
            self._worker = worker
            self.fd = self._enter_new(worker)
            stack.callback(os.close, self.fd)
            self.inode = os.fstat(self.fd).st_ino
            stack.callback(self._end_holder)
            self._holder = worker.do(_start_holder, name)
            self.pid = self._holder.pid
            stack.callback(self._end_children)
            worker.do(set_up, "lo")
            worker.do(_make_tcp_known)
            self._cleanup = stack.pop_all()

    def __enter__(self) -> Self:
        """Return the namespace."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """End the processes that were started in it and let go of it; idempotent.

        Sockets created by `call` keep the kernel's part of it alive until they are closed.
        """
        self._cleanup.close()
        self.fd = -1

    def call(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` in a new thread inside the namespace and return its result.

        Sockets, netlink and TUN devices made there belong to the namespace for good and can be used outside. Files
        under /proc/sys/net are those of the namespace.
        """
        future: Future[T] = Future()

        def inside() -> None:
            try:
                setns_net(self.fd)
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - handed to the caller
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=inside, name="lab-call", daemon=True).start()
        return future.result()

    def popen(self, argv: Sequence[str | os.PathLike[str]], **kwargs: Any) -> subprocess.Popen[Any]:  # noqa: ANN401
        """Start a process inside the namespace; it is killed when the namespace closes or this process dies.

        Parameters
        ----------
        argv
            Program and arguments; no shell.
        kwargs
            As for `subprocess.Popen`.

        Raises
        ------
        FileNotFoundError
            There is no such program.
        """
        words = [os.fspath(word) for word in argv]
        if shutil.which(words[0]) is None:
            raise FileNotFoundError(errnos.ENOENT, os.strerror(errnos.ENOENT), words[0])
        # From the worker thread: the child starts in the worker's namespace, and the parent-death signal is sent when
        # the *thread* that forked ends, so that thread has to live as long as the namespace.
        child: subprocess.Popen[Any] = self._worker.do(lambda: subprocess.Popen([*_launcher("run"), *words], **kwargs))
        self._children = [other for other in self._children if other.poll() is None]
        self._children.append(child)
        return child

    def run(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        input: str | bytes | None = None,  # noqa: A002 - subprocess.run calls it so
        capture_output: bool = False,
        timeout: float | None = None,
        check: bool = False,
        **kwargs: Any,  # noqa: ANN401
    ) -> subprocess.CompletedProcess[Any]:
        """Run a process inside the namespace to its end, as `subprocess.run` does.

        Raises
        ------
        FileNotFoundError
            There is no such program.
        subprocess.TimeoutExpired, subprocess.CalledProcessError
            As from `subprocess.run`.
        """
        if input is not None:
            kwargs["stdin"] = subprocess.PIPE
        if capture_output:
            kwargs["stdout"] = kwargs["stderr"] = subprocess.PIPE
        with self.popen(argv, **kwargs) as child:
            try:
                stdout, stderr = child.communicate(input, timeout)
            except BaseException:
                child.kill()
                raise
        if check and child.returncode:
            raise subprocess.CalledProcessError(child.returncode, list(argv), stdout, stderr)
        return subprocess.CompletedProcess(list(argv), child.returncode, stdout, stderr)

    def sysctl(self, name: str, value: str | int) -> None:
        """Set a setting of the namespace, such as ``net.ipv4.tcp_rmem``.

        Raises
        ------
        OSError
            The kernel has no such setting, or refuses the value.
        """
        path = Path("/proc/sys") / name.replace(".", "/")
        self.call(path.write_text, f"{value}\n")

    @staticmethod
    def _enter_new(worker: _Worker) -> int:
        try:
            worker.do(unshare_net)
        except PermissionError as error:
            msg = "A network namespace cannot be created: operation not permitted"
            raise PrivilegeError(msg, "Run it as root, or with CAP_SYS_ADMIN.") from error
        except OSError as error:
            msg = f"A network namespace cannot be created: {error.strerror}"
            raise KernelError(msg, "See the sysctl user.max_net_namespaces.") from error
        return worker.do(os.open, "/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    def _end_holder(self) -> None:
        holder: subprocess.Popen[bytes] | None = getattr(self, "_holder", None)
        if holder is None:
            return
        for pipe in (holder.stdin, holder.stdout):
            if pipe is not None:
                pipe.close()
        try:
            status = holder.wait(_HOLDER_EXIT_S)
        except subprocess.TimeoutExpired:
            holder.kill()
            status = holder.wait()
        if status != 0 and self.name is not None:
            launch.unbind_name(self.name)

    def _end_children(self) -> None:
        for child in self._children:
            child.kill()
        for child in self._children:
            child.wait()


class _Worker:
    # A thread with one network namespace for its whole life, which does one thing after the other.

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name="lab-namespace", daemon=True)
        self._thread.start()

    def do(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        future: Future[T] = Future()

        def job() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - handed to the caller
                future.set_exception(error)

        self._jobs.put(job)
        return future.result()

    def stop(self) -> None:
        self._jobs.put(None)
        self._thread.join()

    def _loop(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def _launcher(verb: str) -> list[str]:
    return [sys.executable, "-IS", launch.__file__, verb, str(os.getpid())]


def _make_tcp_known() -> None:
    for name, value in _TCP_SETTINGS.items():
        with contextlib.suppress(OSError):
            Path("/proc/sys/net/ipv4", name).write_text(f"{value}\n")


def _start_holder(name: str | None) -> subprocess.Popen[bytes]:
    holder = subprocess.Popen(
        [*_launcher("hold"), *([] if name is None else [name])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the owner, which then ends it in order
    )
    assert holder.stdout is not None  # noqa: S101 - for the type checker
    answer = holder.stdout.readline().split()
    if answer == [b"ready"]:
        return holder
    with holder:
        pass
    raise _refusal(name, answer)


def _refusal(name: str | None, answer: list[bytes]) -> HopscopeError:
    errno = int(answer[1]) if len(answer) > 1 else 0
    if errno == errnos.EEXIST:
        return UsageError(f"A network namespace named {name} exists already", "Choose another name.")
    reason = os.strerror(errno) if errno else "its holder process ended"
    return KernelError(f"The network namespace cannot be set up: {reason}", f"See {launch.NETNS_DIR} and dmesg.")
