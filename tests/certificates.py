"""Certificates for the processes of a test."""

import datetime as dt
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        builder = self._builder(self._name, self._key.public_key()).add_extension(constraints, critical=True)
        self.certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str, *, expired: bool = False, host: str = "127.0.0.1") -> tuple[bytes, bytes]:
        """Return a certificate for a process on this machine, and its key. `expired`: a minute ago; `host`: its address."""
        key = ec.generate_private_key(ec.SECP256R1())
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._builder(subject, key.public_key(), expired=expired).add_extension(address, critical=False)
        pkcs8 = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return certificate.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), pkcs8

    def keystore(self, name: str, password: str) -> bytes:
        """Return a certificate for a process on this machine and its key, as Java reads them (PKCS 12)."""
        certificate, key = self.issue(name)
        private = serialization.load_pem_private_key(key, None)
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        encryption = serialization.BestAvailableEncryption(password.encode())
        authority = x509.load_pem_x509_certificate(self.certificate)
        return pkcs12.serialize_key_and_certificates(
            name.encode(),
            private,
            x509.load_pem_x509_certificate(certificate),
            [authority],
            encryption,
        )

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, expired: bool = False) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + (dt.timedelta(minutes=-1) if expired else dt.timedelta(days=2)))
        )
