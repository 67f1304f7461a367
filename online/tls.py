"""TLS, and certificates of clients: which files, whether they can be used, and what a server and a client need."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.errors import BeforehandError

CA, CERT, KEY = "BEFOREHAND_TLS_CA", "BEFOREHAND_TLS_CERT", "BEFOREHAND_TLS_KEY"


@dataclass(frozen=True, slots=True)
class Tls:
    """The service's certificate and key, PEM. With ``client_ca``, who has no certificate of it gets no connection."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    def options(self) -> dict[str, Any]:
        """For ``uvicorn.Config``."""
        options: dict[str, Any] = {"ssl_certfile": str(self.cert), "ssl_keyfile": str(self.key)}
        if self.client_ca is not None:
            options |= {"ssl_ca_certs": str(self.client_ca), "ssl_cert_reqs": ssl.CERT_REQUIRED}
        return options


def read_tls(cert: Path | None, key: Path | None, client_ca: Path | None) -> Tls | None:
    """What the flags ask for; None without them. Raises BeforehandError: one is missing, or its file can't be used."""
    if cert is None and key is None and client_ca is None:
        return None
    if cert is None or key is None:
        missing = "--tls-cert" if cert is None else "--tls-key"
        raise BeforehandError("a certificate and its key are needed", where=missing, mend="Name both, PEM files.")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        mend = "PEM, the key without a passphrase, and the one that the certificate was made for."
        where = f"--tls-cert {cert}, --tls-key {key}"
        raise BeforehandError(f"they can't be used: {error}", where=where, mend=mend) from None
    if client_ca is not None:
        _check_ca(context, client_ca, "--client-ca")
    return Tls(cert, key, client_ca)


def client_context(environ: Mapping[str, str] = os.environ) -> ssl.SSLContext | None:
    """What a client trusts and shows: ``$BEFOREHAND_TLS_CA``, ``_CERT`` and ``_KEY``; None without them: the system's.

    Raises:
        BeforehandError: a file can't be used, or the certificate has no key.
    """
    ca, cert, key = (environ.get(name) or None for name in (CA, CERT, KEY))
    if ca is None and cert is None and key is None:
        return None
    context = ssl.create_default_context()
    if ca is not None:
        _check_ca(context, Path(ca), CA)
    if cert is not None or key is not None:
        if cert is None or key is None:
            raise BeforehandError("a certificate and its key are needed", where=CERT if cert is None else KEY)
        try:
            context.load_cert_chain(cert, key)
        except (OSError, ValueError) as error:
            where = f"{CERT} {cert}, {KEY} {key}"
            raise BeforehandError(f"they can't be used: {error}", where=where) from None
    return context


def _check_ca(context: ssl.SSLContext, path: Path, where: str) -> None:
    try:
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:
        mend = "A PEM file of the certificates that may sign."
        raise BeforehandError(f"it can't be used: {error}", where=where, value=str(path), mend=mend) from None
