"""Certificate authorities for servers: those of this machine, or those of a file."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

__all__ = ["tls_context"]

_USUAL_FILES = (
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/ca-bundle.pem",
)
"""Where distributions store them, if this Python's OpenSSL was built with another path."""


def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """The TLS context for a server; reads files, imports nothing.

    Args:
        ca_file: certificates, PEM; those of this machine if None. SSL_CERT_FILE and SSL_CERT_DIR are ignored.
    """
    if ca_file is not None:
        context = ssl.create_default_context(cafile=str(ca_file))
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _load_usual(context)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _load_usual(context: ssl.SSLContext) -> None:
    # set_default_verify_paths() would read the environment.
    paths = ssl.get_default_verify_paths()
    file = paths.openssl_cafile if os.path.isfile(paths.openssl_cafile) else None
    folder = paths.openssl_capath if os.path.isdir(paths.openssl_capath) else None
    if file is None:
        file = next(filter(os.path.isfile, _USUAL_FILES), None)
    if file is not None or folder is not None:
        context.load_verify_locations(file, folder)
