# SPDX-License-Identifier: Apache-2.0
"""Why TLS came to nothing, in a sentence.

OpenSSL tells a side what it found wrong itself (a verify code, ``openssl-verification-options(1)``), or which alert the
other side sent (RFC 8446, 6.2). An alert tells less: *bad_certificate* stands for a wrong name and for a date to come.
"""

from __future__ import annotations

import ssl
from typing import Final

from hopscope.agent.message import printable

_OTHER_CA: Final = "was issued by a CA other than those given"
_VERIFY: Final = {
    2: _OTHER_CA,  # X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT
    9: "is not valid yet; is a clock wrong?",
    10: "has expired",
    18: _OTHER_CA,  # signed by itself
    19: _OTHER_CA,  # by a CA that signed itself and is not known
    20: _OTHER_CA,  # no issuer found
    21: _OTHER_CA,  # X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE
    24: "was signed by a certificate that is no CA's",
    26: "is for another purpose (extendedKeyUsage)",
    62: "is for another host name",
    64: "is for another address",
}
# What the other side made of our certificate.
_ALERTS: Final = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "requires a certificate and received none",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "rejects the certificate: it has expired",
    "TLSV1_ALERT_UNKNOWN_CA": "rejects the certificate: it was issued by an unknown CA",
    "SSLV3_ALERT_BAD_CERTIFICATE": "rejects the certificate: it is not valid yet, or for another name",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "rejects the certificate: it is for another purpose (extendedKeyUsage)",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "rejects the certificate",
    "TLSV1_ALERT_ACCESS_DENIED": "rejects the certificate",
    "TLSV1_ALERT_PROTOCOL_VERSION": "does not speak TLS 1.3",
    "TLSV1_ALERT_NO_APPLICATION_PROTOCOL": "is not hopscope",
    "SSLV3_ALERT_BAD_RECORD_MAC": "received corrupted data",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "does not support the TLS settings that hopscope uses",
}
_NO_TLS: Final = "does not speak TLS"
_OWN: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "presents no certificate",
    "UNSUPPORTED_PROTOCOL": "does not speak TLS 1.3",
    "NO_SHARED_CIPHER": "does not support the TLS settings that hopscope uses",
    "HTTP_REQUEST": _NO_TLS,
    "HTTPS_PROXY_REQUEST": _NO_TLS,
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "DECRYPTION_FAILED_OR_BAD_RECORD_MAC": "sent corrupted data",
}


def hung_up(error: OSError) -> bool:
    """Return whether the connection has ended, in order or not."""
    # The latter is what some Pythons (3.11.2 is one) make of it.
    return isinstance(error, ssl.SSLZeroReturnError | ssl.SSLEOFError) or (
        isinstance(error, ssl.SSLError) and error.reason == "UNEXPECTED_EOF_WHILE_READING"
    )


def what_failed(error: ssl.SSLError) -> str:
    """Return a sentence's predicate whose subject is the other side."""
    if isinstance(error, ssl.SSLCertVerificationError):
        said = _VERIFY.get(error.verify_code)
        return f"presents a certificate that {said or f'is refused: {printable(error.verify_message, 100)}'}"
    reason = str(error.reason)
    return _ALERTS.get(reason) or _OWN.get(reason) or f"breaks TLS ({printable(reason, 60)})"
