# SPDX-License-Identifier: Apache-2.0
"""What is used where the user says nothing; apart from what uses it, so that help need not import that."""

from __future__ import annotations

from typing import Final

SSH: Final = "ssh"
REMOTE_COMMAND: Final = "hopscope agent"
CERTIFICATE: Final = "HOPSCOPE_TLS_CERT"
KEY: Final = "HOPSCOPE_TLS_KEY"
AUTHORITY: Final = "HOPSCOPE_TLS_CA"
