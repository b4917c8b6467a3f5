# SPDX-License-Identifier: Apache-2.0
"""Who is on the list, and which names a certificate gives."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.agent.allow import AllowList, described
from hopscope.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

DER = b"the whole certificate"
DIGEST = hashlib.sha256(DER).hexdigest()


def certificate(*names: tuple[str, str], common: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return one as ssl describes it."""
    return {"subject": tuple((("commonName", name),) for name in common), "subjectAltName": names}


ONCALL = certificate(("DNS", "oncall.example.org"))


@pytest.mark.parametrize(
    ("entry", "held"),
    [
        ("oncall.example.org", ONCALL),
        ("Oncall.Example.ORG", ONCALL),
        ("oncall@example.org", certificate(("DNS", "x"), ("email", "oncall@example.org"))),
        ("spiffe://example.org/oncall", certificate(("URI", "spiffe://example.org/oncall"))),
        ("oncall", certificate(common=("oncall",))),
        (f"sha256:{DIGEST}", certificate()),
        (f"SHA256={DIGEST.upper()}", certificate()),
        ("sha256 Fingerprint=" + ":".join(DIGEST[at : at + 2] for at in range(0, 64, 2)), certificate()),
    ],
)
def test_who_is_named_may_come_in(entry: str, held: dict[str, Any]) -> None:
    assert AllowList.of([entry, "guest"]).admits(held, DER)


@pytest.mark.parametrize(
    "held",
    [
        certificate(),
        certificate(("DNS", "*.example.org")),
        certificate(("DNS", "*")),
        certificate(("DNS", "oncall.example.org\0.evil.org")),
        certificate(("DNS", "oncall.example.org.")),
        certificate(("DNS", "xoncall.example.org")),
        certificate(("DNS", "stranger"), common=("oncall.example.org",)),
        certificate(("IP Address", "oncall.example.org")),
        certificate(("DirName", "oncall.example.org")),
        certificate(common=("oncall.example.org", "stranger")),
        certificate(common=(DIGEST,)),
    ],
)
def test_who_is_not_named_may_not(held: dict[str, Any]) -> None:
    assert not AllowList.of(["oncall.example.org", f"sha256:{'0' * 64}"]).admits(held, DER)


def test_a_name_that_looks_like_a_fingerprint_is_none() -> None:
    held = certificate(("DNS", f"sha256:{DIGEST}"))
    assert not AllowList.of([f"sha256:{DIGEST}"]).admits(held, b"another certificate")


def test_a_file_holds_names_fingerprints_and_comments(tmp_path: Path) -> None:
    file = tmp_path / "clients"
    file.write_text(f"# who may record\n\noncall.example.org  # the one on call\nsha256:{DIGEST}\n")
    listed = AllowList.of([], file)
    assert listed == AllowList(frozenset({"oncall.example.org"}), frozenset({DIGEST}))


@pytest.mark.parametrize("entry", ["", "two words", "sha256:12", f"sha256:{'g' * 64}", "bell\a", f"sha1:{'0' * 40} "])
def test_an_entry_that_is_neither_is_refused_printably(entry: str) -> None:
    with pytest.raises(UsageError, match="neither a client's name nor") as refused:
        AllowList.of([entry])
    assert str(refused.value).isprintable()


def test_nobody_at_all_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "clients"
    file.write_text("# nobody yet\n")
    with pytest.raises(UsageError, match="No client is allowed to connect"):
        AllowList.of([], file)


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [(b"oncall", 0o666, "chmod go-w"), (b"\xff", 0o600, "it is no text"), (b"a\n" * 600_000, 0o600, "longer than")],
)
def test_a_file_that_cannot_be_trusted_or_read_is_refused(
    tmp_path: Path, content: bytes, mode: int, words: str
) -> None:
    file = tmp_path / "clients"
    file.write_bytes(content)
    file.chmod(mode)
    with pytest.raises(UsageError, match=words):
        AllowList.of([], file)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="clients cannot be read: No such file"):
        AllowList.of([], tmp_path / "clients")


@given(st.lists(st.tuples(st.sampled_from(["DNS", "email", "URI"]), st.text(max_size=300)), max_size=9), st.binary())
def test_whatever_a_certificate_says_is_shown_printably_and_short(names: list[tuple[str, str]], der: bytes) -> None:
    shown = described(certificate(*names), der)
    assert shown.isprintable()
    assert len(shown) < 300
    assert hashlib.sha256(der).hexdigest() in shown
