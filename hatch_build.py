# SPDX-License-Identifier: Apache-2.0
"""Build hook: compile the BPF programs and, where HOPSCOPE_BUNDLE_LIBBPF=1, bring libbpf along in the wheel."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))

import build_bpf
import bundle_libbpf


class BpfBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles and bundles for the ``wheel`` target; see pyproject.toml."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add to the build what git does not hold.

        Parameters
        ----------
        version
            ``standard`` or ``editable``.
        build_data
            Hatchling's record of the build, changed in place.
        """
        build_bpf.build()
        libraries: list[Path] = []
        if version == "standard" and os.environ.get("HOPSCOPE_BUNDLE_LIBBPF") == "1":
            self._scratch = tempfile.TemporaryDirectory()
            libraries = bundle_libbpf.bundle(Path(self._scratch.name))
            build_data["force_include"][self._scratch.name] = "hopscope/libbpf/_lib"
        # BPF objects are compiled for one machine, and libbpf is a library of one.
        build_data["pure_python"] = False
        build_data["tag"] = bundle_libbpf.wheel_tag(libraries)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove the copies of the libraries."""
        if hasattr(self, "_scratch"):
            self._scratch.cleanup()
