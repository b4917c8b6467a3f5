# SPDX-License-Identifier: Apache-2.0
"""Functions of TLS libraries which take plaintext from a program or give it some, and what libraries are known by."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple


class Count(Enum):
    """Where a function says how many bytes it took or gave."""

    RESULT = "what it returns"
    FOURTH_ARGUMENT = "where its fourth argument points, if it returns 1"
    GO_RESULT = "its first result, in the register that Go has for it"


class Function(NamedTuple):
    """A function of a library."""

    name: str
    libraries: tuple[str, ...]
    writes: bool
    counted: Count


class Known(NamedTuple):
    """What a library is known by.

    Attributes
    ----------
    files
        The names of its files; None: it is linked into programs alone.
    installed
        The same as a pattern for folders; empty: no distribution has it.
    """

    files: re.Pattern[str] | None
    installed: str


_SSL: Final = ("openssl", "boringssl")
FUNCTIONS: Final = (
    Function("SSL_write", _SSL, writes=True, counted=Count.RESULT),
    Function("SSL_write_ex", _SSL, writes=True, counted=Count.FOURTH_ARGUMENT),
    Function("SSL_read", _SSL, writes=False, counted=Count.RESULT),
    Function("SSL_read_ex", _SSL, writes=False, counted=Count.FOURTH_ARGUMENT),
    Function("gnutls_record_send", ("gnutls",), writes=True, counted=Count.RESULT),
    Function("gnutls_record_send2", ("gnutls",), writes=True, counted=Count.RESULT),
    Function("gnutls_record_recv", ("gnutls",), writes=False, counted=Count.RESULT),
    Function("gnutls_record_recv_seq", ("gnutls",), writes=False, counted=Count.RESULT),
    Function("crypto/tls.(*Conn).Write", ("go-tls",), writes=True, counted=Count.GO_RESULT),
    Function("crypto/tls.(*Conn).Read", ("go-tls",), writes=False, counted=Count.GO_RESULT),
)


def _files(name: str) -> re.Pattern[str]:
    """Return how a library's files are called; with a hash in it, as Python packages bundle it."""
    return re.compile(rf"lib{name}(-[0-9a-f]+)?\.so(\.[\w.]+)?")


# All of them may be linked into programs, too.
LIBRARIES: Final = {
    "openssl": Known(_files("ssl"), "libssl.so*"),
    "gnutls": Known(_files("gnutls"), "libgnutls.so*"),
    "boringssl": Known(_files("(boring)?ssl"), ""),
    "go-tls": Known(None, ""),
}
# In every file into which OpenSSL or BoringSSL is linked, stripped or not: where errors come from.
SSL_SOURCE: Final = b"ssl/ssl_lib.c"
# Functions of these are in no table: plaintext of NSS goes through functions that files go through, too.
OTHERS: Final = re.compile(r"lib(nss3|ssl3|mbedtls|wolfssl|s2n|botan-\d)\.so(\.[\w.]+)?")
# QUIC encrypts packets and not a stream of bytes: its libraries, and what is in programs into which they are linked.
QUIC_FILES: Final = re.compile(r"lib(quiche|ngtcp2|msquic|lsquic)(_[\w]+)?\.so(\.[\w.]+)?")
QUIC_NAMES: Final = {
    "quiche": b"quiche_conn_recv",
    "ngtcp2": b"ngtcp2_conn_read_pkt",
    "msquic": b"MsQuicOpenVersion",
    "lsquic": b"lsquic_engine_packet_in",
    "quic-go": b"quic-go/quic-go.",
}
