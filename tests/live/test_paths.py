# SPDX-License-Identifier: Apache-2.0
"""Files that options name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from hopscope.live.paths import OUTPUT_FILE

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TextIO


@click.command()
@click.argument("out", type=OUTPUT_FILE)
def write(out: TextIO) -> None:
    out.write("new")


@pytest.mark.parametrize("there", [True, False])
def test_output_does_not_follow_a_link_to_a_file(there: bool, tmp_path: Path) -> None:  # noqa: FBT001 # pytest's
    kept = tmp_path / "kept"
    if there:
        kept.write_text("old")
    link = tmp_path / "link"
    link.symlink_to(kept)
    done = CliRunner().invoke(write, [str(link)])
    assert done.exit_code == 2
    assert "is a symbolic link, which is not followed" in done.output
    assert kept.exists() == there
    assert not there or kept.read_text() == "old"


def test_output_is_written_to_files_devices_and_the_standard_output(tmp_path: Path) -> None:
    own, device = tmp_path / "own", tmp_path / "device"
    device.symlink_to("/dev/null")
    for path in (own, device, "/dev/null"):
        assert CliRunner().invoke(write, [str(path)]).exit_code == 0
    assert own.read_text() == "new"
    assert CliRunner().invoke(write, ["-"]).output == "new"
