# SPDX-License-Identifier: Apache-2.0
"""A network of our own, and the paths through it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hopscope.lab import Lab, Namespace
from hopscope.model.snapshot import MethodStatus, PointStatus
from hopscope.probes.trial import try_everything
from tests.lab.measure import PATH_NAMES, NetworkPath, way
from tests.verbs.record.measure import Seen, recording

if TYPE_CHECKING:
    from collections.abc import Iterator


# Both kinds of device and both versions of IP once.
EITHER = ("veth-4", "lo-6")


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab() as made:
        yield made


@pytest.fixture
def quiet() -> Iterator[Namespace]:
    """A namespace in which nothing happens by itself."""
    with Namespace() as made:
        yield made


@pytest.fixture(scope="module")
def kept_lab() -> Iterator[Lab]:
    """One network for a module's tests: under emulation each takes seconds to make and to remove."""
    with Lab() as made:
        yield made


@pytest.fixture(scope="module")
def recorder(kept_lab: Lab) -> Iterator[Seen]:
    """To load the programs takes long: the tests of a module share a recording of its network."""
    with recording(kept_lab) as seen:
        yield seen


@pytest.fixture
def seen(recorder: Seen) -> Seen:
    """Return the module's recording, with nothing in it but names."""
    return recorder.forget()


@pytest.fixture(params=[name if name in EITHER else pytest.param(name, marks=pytest.mark.slow) for name in PATH_NAMES])
def path(request: pytest.FixtureRequest, lab: Lab) -> NetworkPath:
    """Each way that packets can go in the lab: veth and lo, IPv4 and IPv6."""
    return way(lab, request.param)


@pytest.fixture(params=EITHER)
def either(request: pytest.FixtureRequest, lab: Lab) -> NetworkPath:
    """Both kinds of device and both versions of IP once, for what the two do not decide together."""
    return way(lab, request.param)


@pytest.fixture
def veth(lab: Lab) -> NetworkPath:
    return way(lab, "veth-4")


@pytest.fixture(scope="session")
def points() -> dict[str, PointStatus]:
    """What `hopscope probes` says of this kernel. Under emulation it takes minutes: vmtest's guests ask once."""
    said = os.environ.get("HOPSCOPE_PROBES")
    return {point.point: point for point in (_points_of(Path(said).read_text()) if said else try_everything())}


def _points_of(text: str) -> Iterator[PointStatus]:
    for point in json.loads(text)["points"]:
        yield PointStatus(**{**point, "ways": [MethodStatus(**way) for way in point["ways"]]})
