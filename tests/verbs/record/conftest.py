# SPDX-License-Identifier: Apache-2.0
"""What tests of recordings share."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a certificate of localhost and its key."""
    folder = tmp_path_factory.mktemp("certificate")
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    made = ("-newkey", "rsa:2048", "-nodes", "-keyout", folder / "key", "-out", folder / "certificate")
    subprocess.run(["openssl", "req", "-x509", *subject, *made], check=True, capture_output=True)
    return folder
