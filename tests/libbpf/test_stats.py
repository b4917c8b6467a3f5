# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hopscope.libbpf import enable_stats


@pytest.mark.root
def test_stats_end_with_the_block() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with enable_stats():
        held = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.exists()]
        assert "anon_inode:bpf-stats" in held
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.root
def test_stats_without_rights_raise_with_the_next_step() -> None:
    code = (
        "import os\nfrom hopscope.errors import LoadError\nfrom hopscope.libbpf import enable_stats\n"
        "os.setuid(65534)\n"
        "try:\n    with enable_stats(): pass\nexcept LoadError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("BPF statistics cannot be enabled: Operation not permitted. Run it as root")
