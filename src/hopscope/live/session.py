# SPDX-License-Identifier: Apache-2.0
"""Load and attach the programs of a plan; what the kernel refuses gives way to the next best."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Self

from hopscope.bpf import object_path
from hopscope.errors import HopscopeError, KernelError, LoadError
from hopscope.kernel.capabilities import require_rights, unseen_namespaces
from hopscope.libbpf import BpfObject
from hopscope.libbpf.capabilities import NEEDED
from hopscope.probes.attach import NETFILTER_KINDS, EveryNamespace, attach, prepare
from hopscope.probes.grants import refusal
from hopscope.probes.point import LIBRARY_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from types import TracebackType

    from hopscope.libbpf import Link
    from hopscope.probes.resolve import Plan


class Session:
    """The loaded and attached programs of a plan.

    Parameters
    ----------
    name
        Of the object.
    plan
        Is told of refusals, so that afterwards it says what is really attached.
    configure
        Called with each freshly opened object to set constants and sizes of maps.
    adapt
        Asked first when the kernel refuses; True if `configure` will do differently now and trying again makes sense.
    later
        Programs of the plan that the collector attaches itself.
    functions
        As :meth:`~hopscope.libbpf.BpfObject.open` takes them: C functions that get other instructions.
    needed
        The capabilities that its programs take.
    """

    def __init__(  # noqa: PLR0913 # what a collector may decide
        self,
        name: str,
        plan: Plan,
        configure: Callable[[BpfObject], None],
        adapt: Callable[[LoadError], bool] = lambda _: False,
        later: Callable[[], Collection[str]] = tuple,
        *,
        functions: Mapping[str, Callable[[int], bytes]] | None = None,
        needed: Sequence[str] = NEEDED,
    ) -> None:
        require_rights(needed)
        self._name = name
        self._plan = plan
        self._configure = configure
        self._adapt = adapt
        self._later = later
        self._functions = functions
        self._everywhere: EveryNamespace | None = None
        self._links: list[Link] = []
        self._paused = False
        self.bpf = self._started()

    def refresh(self) -> None:
        """Reach what has come into being since: new network namespaces, and rules of netfilter."""
        if self._everywhere and not self._paused:
            self._everywhere.refresh()

    def pause(self) -> None:
        """Detach all programs, which stay loaded: nothing of them runs until :meth:`resume`."""
        for link in self._links:
            link.close()
        self._links.clear()
        if self._everywhere:
            self._everywhere.pause()
        self._paused = True

    def resume(self) -> None:
        """Attach again what :meth:`pause` detached.

        Raises
        ------
        LoadError
            The kernel refuses what it has granted before.
        """
        self._attach(self.bpf)
        if self._everywhere:
            self._everywhere.resume()
        self._paused = False

    def require_resumable(self) -> None:
        """Attach a second time, while nothing is lost by it.

        Raises
        ------
        KernelError
            The kernel does not attach programs a second time.
        """
        self.pause()
        try:
            self.resume()
        except LoadError as error:
            raise KernelError(
                "This kernel attaches a function's program only once (Linux 5.13 does again), and --budget detaches "
                "programs for a while",
                "Omit --budget; --sample measures fewer packets",
            ) from error

    def notes(self) -> list[str]:
        """Return a sentence on what is not attached for want of a capability."""
        unseen = unseen_namespaces() if self._everywhere else ""
        return [f"netfilter hooks: {unseen}"] if unseen else []

    @contextlib.contextmanager
    def refreshed(self, every_s: float) -> Iterator[None]:
        """Call :meth:`refresh` so often, in a thread of its own, as long as the context lasts."""
        over = threading.Event()

        def refresh() -> None:
            while not over.wait(every_s):
                # No more descriptors, say: what is attached stays, and the next look may succeed.
                with contextlib.suppress(HopscopeError, OSError):
                    self.refresh()

        thread = threading.Thread(target=refresh, name="hopscope-refresh", daemon=True)
        if self._everywhere:
            thread.start()
        try:
            yield
        finally:
            over.set()
            if self._everywhere:
                thread.join()

    def close(self) -> None:
        """Detach and free everything."""
        self.bpf.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _started(self) -> BpfObject:
        while True:
            bpf = BpfObject.open(object_path(self._name), self._functions)
            try:
                self._start(bpf)
            except LoadError as error:
                self._links.clear()
                bpf.close()
                if not self._adapt(error):
                    self._give_way(error)
            except BaseException:
                bpf.close()
                raise
            else:
                return bpf

    def _start(self, bpf: BpfObject) -> None:
        kinds = self._plan.programs()
        if not kinds:
            raise KernelError("This kernel supports none of the probe points", "`hopscope probes` says why")
        for program in bpf.programs.values():
            program.autoload = program.name in kinds
        for name, kind in kinds.items():
            prepare(bpf.programs[name], kind)
        self._configure(bpf)
        bpf.load()
        self._attach(bpf)
        everywhere = [(bpf.programs[name], kind) for name, kind in kinds.items() if kind in NETFILTER_KINDS]
        self._everywhere = EveryNamespace(everywhere) if everywhere else None
        self.refresh()

    def _attach(self, bpf: BpfObject) -> None:
        """Attach all programs but those of netfilter."""
        later = self._later()
        for name, kind in self._plan.programs().items():
            # Those are run, or attached at a rate or to libraries, by the collector.
            if name not in later and kind not in {"iter", "perf_event"} | LIBRARY_KINDS | NETFILTER_KINDS:
                self._links += attach(bpf.programs[name], kind)

    def _give_way(self, error: LoadError) -> None:
        if error.program is None or not self._plan.refuse(error.program, refusal(error)):
            raise error
