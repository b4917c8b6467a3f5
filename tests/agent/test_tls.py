# SPDX-License-Identifier: Apache-2.0
"""The files that mutual TLS rests on: which are refused, and what to do then."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hopscope.agent.tls import TlsFiles, client_context, server_context
from hopscope.errors import UsageError
from tests.agent.certificates import agent_files, client_files

if TYPE_CHECKING:
    from tests.agent.certificates import Authority


@pytest.fixture
def files(ours: Authority, tmp_path: Path) -> TlsFiles:
    made = agent_files(ours)
    return TlsFiles(*(Path(shutil.copy(path, tmp_path)) for path in (made.certificate, made.key, made.authority)))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_key_that_others_can_read_is_refused_with_the_command_that_helps(files: TlsFiles, mode: int) -> None:
    files.key.chmod(mode)
    for context in (server_context, client_context):
        with pytest.raises(UsageError) as refused:
            context(files)
        _, _, command = str(refused.value).rpartition("Run: ")
    subprocess.run(command.split(), check=True)
    server_context(files)


@pytest.mark.parametrize("which", ["certificate", "authority"])
def test_file_that_others_can_write_is_refused_with_the_command_that_helps(files: TlsFiles, which: str) -> None:
    path: Path = getattr(files, which)
    path.chmod(0o664)
    with pytest.raises(UsageError, match="users other than its owner can write it") as refused:
        server_context(files)
    subprocess.run(str(refused.value).rpartition("Run: ")[2].split(), check=True)
    server_context(files)


def test_key_with_a_passphrase_is_refused_rather_than_asked_for(files: TlsFiles) -> None:
    locked = files.key.with_name("locked.key")
    words = ["openssl", "pkey", "-in", files.key, "-out", locked, "-aes256", "-passout", "pass:secret"]
    subprocess.run(words, check=True)
    with pytest.raises(UsageError, match=r"locked\.key is protected by a passphrase"):
        server_context(replace(files, key=locked))


def test_key_of_another_certificate_is_refused(files: TlsFiles, ours: Authority) -> None:
    with pytest.raises(UsageError, match=r"oncall\d*\.key is not the key of the certificate in .*agent\d*\.pem"):
        server_context(replace(files, key=client_files(ours).key))


@pytest.mark.parametrize("which", ["certificate", "key", "authority"])
@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "No such file"), (b"", "PEM"), (b"-----BEGIN CERTIFICATE-----\n\xff\n", "PEM"), (bytes(9999), "PEM")],
    ids=["missing", "empty", "cut", "zeros"],
)
def test_file_that_is_none_is_named(files: TlsFiles, which: str, content: bytes | None, words: str) -> None:
    path: Path = getattr(files, which)
    path.unlink()
    if content is not None:
        path.touch(0o600)
        path.write_bytes(content)
    with pytest.raises(UsageError, match=words) as refused:
        client_context(files)
    assert path.name in str(refused.value)


def test_folder_is_no_key(files: TlsFiles, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(UsageError, match="is not a file"):
        server_context(replace(files, key=tmp_path))


def test_a_certificate_that_may_sign_nothing_is_no_authority(files: TlsFiles) -> None:
    with pytest.raises(UsageError, match="holds no certificate of a CA"):
        server_context(replace(files, authority=files.certificate))
