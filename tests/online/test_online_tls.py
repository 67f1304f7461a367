"""TLS and certificates of clients, with throw-away authorities."""

from __future__ import annotations

import datetime
import ipaddress
import json
import ssl
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from test_online_serve import home, start, stop  # noqa: F401 - home is a fixture

from online.client import RecallClient, RecallUnavailableError
from online.server import check_host
from online.tls import CA, CERT, KEY, Tls, client_context, read_tls
from schemas.errors import BeforehandError


class Authority:
    """Signs certificates for a day."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(self._sign(self._name, self._key.public_key(), ca=True))

    def issue(self, name: str) -> tuple[Path, Path]:
        """Files of a certificate for 127.0.0.1 and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        cert_path, key_path = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        cert_path.write_bytes(self._sign(subject, key.public_key(), ca=False))
        pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        key_path.write_bytes(key.private_bytes(*pem))
        return cert_path, key_path

    def _sign(self, subject, public_key, *, ca: bool) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder(self._name, subject, public_key, x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
            )
        )
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.fixture
def ours(tmp_path):
    return Authority(tmp_path, "ours")


def test_without_flags_there_is_no_tls():
    assert read_tls(None, None, None) is None
    assert client_context({}) is client_context({CA: ""}) is None


def test_a_flag_or_a_file_that_is_wrong_is_named(ours, tmp_path):
    cert, key = ours.issue("service")
    _, other_key = ours.issue("other")
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")
    for given, named in (
        ((cert, None, None), "--tls-key"),
        ((None, key, None), "--tls-cert"),
        ((None, None, ours.path), "--tls-cert"),
        ((cert, other_key, None), "other.key"),
        ((tmp_path / "none", key, None), "none"),
        ((cert, key, bad), "bad.pem"),
    ):
        with pytest.raises(BeforehandError, match=named):
            read_tls(*given)
    assert read_tls(cert, key, ours.path) == Tls(cert, key, ours.path)
    for environ in ({CA: str(bad)}, {CERT: str(cert)}, {KEY: str(key)}, {CERT: str(cert), KEY: str(other_key)}):
        with pytest.raises(BeforehandError):
            client_context(environ)


def test_only_certificates_of_clients_stand_in_for_the_key(ours):
    cert, key = ours.issue("service")
    check_host("0.0.0.0", None, read_tls(cert, key, ours.path))
    with pytest.raises(BeforehandError, match="--client-ca"):
        check_host("0.0.0.0", None, read_tls(cert, key, None))


@pytest.mark.slow
@pytest.mark.parametrize("asks_for_certificates", [False, True])
def test_who_may_ask(ours, tmp_path, home, asks_for_certificates):  # noqa: F811
    cert, key = ours.issue("service")
    stranger = Authority(tmp_path, "stranger").issue("somebody")
    friend = ours.issue("friend")
    flags = ["--tls-cert", str(cert), "--tls-key", str(key)]
    process = start(home, *flags, *(["--client-ca", str(ours.path)] if asks_for_certificates else []))
    try:
        url = json.loads((home / "run" / "online" / "address.json").read_text())["url"]
        assert url.startswith("https://")

        def answers(*shown: Path) -> bool:
            names = dict(zip((CERT, KEY), map(str, shown), strict=False))
            with RecallClient(url, timeout_s=20, tls=client_context({CA: str(ours.path), **names})) as client:
                try:
                    return client.recall("u1").user_id == "u1"
                except RecallUnavailableError:
                    return False

        assert answers(*friend)
        assert answers() is not asks_for_certificates
        assert answers(*stranger) is not asks_for_certificates
        with RecallClient(url, timeout_s=20) as client, pytest.raises(RecallUnavailableError):
            client.recall("u1")  # the system's authorities have not signed it
        with pytest.raises(httpx.TransportError):
            httpx.get(url.replace("https", "http") + "/healthz")
        old = ssl.create_default_context(cafile=ours.path)
        old.load_cert_chain(*friend)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        assert httpx.get(f"{url}/healthz", verify=old).status_code == 200
    finally:
        assert stop(process) == 0
