"""A certificate authority of our own: who signs what servers and clients of one installation show each other."""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from broker.private_files import SecretsError, write_private

ORGANIZATION = "Headrace"
CA_DAYS = 3650
DAYS = 825
"""Of all other certificates: the longest that every TLS library takes."""

BACKDATED = timedelta(hours=1)
"""Clocks of machines differ."""


class AuthorityError(SecretsError):
    """What is in the folder is no authority of ours, or not from ours."""


@dataclass(frozen=True)
class Authority:
    """Signs with the key of `certificate`."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def of(cls, certificate: Path, key: Path) -> Self:
        """The one in these files, made where there is none. Raises `AuthorityError` for what is none."""
        if not (certificate.exists() or key.exists()):
            made = _new_authority()
            write_private(key, _key_pem(made[1]))
            write_private(certificate, made[0].public_bytes(serialization.Encoding.PEM))
        return cls.there(certificate, key)

    @classmethod
    def there(cls, certificate: Path, key: Path) -> Self:
        """The one in these files. Raises `AuthorityError` for what is none."""
        found, private = _certificate_in(certificate), _key_in(key)
        if not _belong_together(found, private):
            raise AuthorityError(f"{key} is not the key of {certificate}")
        return cls(found, private)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, certificate: Path, key: Path, name: str, *, days: int, hosts: Sequence[str] = ()) -> None:
        """A new certificate and a new key for `name`; with `hosts` (names, wildcards, addresses) that of a server."""
        private = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        usages += [ExtendedKeyUsageOID.SERVER_AUTH] if hosts else []  # routes of a cluster show it from both ends
        builder = _builder(name, self.certificate.subject, private.public_key(), days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        builder = builder.add_extension(_authority_id(self.certificate, self.key.public_key()), critical=False)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(_names(hosts)), critical=False)
        signed = builder.sign(self.key, hashes.SHA256())
        write_private(key, _key_pem(private))
        write_private(certificate, signed.public_bytes(serialization.Encoding.PEM))

    def issued(self, certificate: Path, key: Path) -> bool:
        """Whether both are there, of this authority. Raises `AuthorityError` for what is there and is anything else."""
        found = _certificate_in(certificate) if certificate.exists() else None
        private = _key_in(key) if key.exists() else None
        if found is not None:
            self._check_issued(certificate, found)
        if found is None or private is None:
            return False
        if not _belong_together(found, private):
            raise AuthorityError(f"{key} is not the key of {certificate}: without both, new ones are made")
        return True

    def _check_issued(self, path: Path, certificate: x509.Certificate) -> None:
        try:
            certificate.verify_directly_issued_by(self.certificate)
        except (ValueError, TypeError, InvalidSignature) as error:
            raise AuthorityError(f"{path} is no certificate of the authority in this folder") from error


def hosts_in(certificate: Path) -> list[str]:
    """The names and addresses for which a server's certificate stands; none where there is no certificate.

    Raises `AuthorityError` for what is no certificate, or none of a server.
    """
    if not certificate.exists():
        return []
    try:
        names = _certificate_in(certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError) as error:
        raise AuthorityError(f"{certificate} names no hosts: {error}") from error
    return [str(name.value) for name in names]


def _certificate_in(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise AuthorityError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise AuthorityError(f"{path} is no certificate: empty, cut off or damaged") from error


def _key_in(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        found = serialization.load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise AuthorityError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise AuthorityError(f"{path} is no private key: empty, cut off, damaged, or with a password") from error
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise AuthorityError(f"{path} is a private key of another kind than ours")
    return found


def _belong_together(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> bool:
    try:
        return certificate.public_key() == key.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return False


def is_host(text: str) -> bool:
    """Whether a certificate can stand for it: a name of ASCII letters, digits, "-" and ".", `*.` before it, or an
    address.
    """
    if _address(text) is not None:
        return True
    labels = text.removeprefix("*.").split(".")
    return len(text) <= 253 and all(0 < len(label) <= 63 and _is_label(label) for label in labels)


def _is_label(label: str) -> bool:
    return label.isascii() and label.replace("-", "").replace("_", "").isalnum() and label.strip("-") == label


def _new_authority() -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    private = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"{ORGANIZATION} CA")
    builder = _builder(f"{ORGANIZATION} CA", name, private.public_key(), CA_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    return builder.sign(private, hashes.SHA256()), private


def _builder(name: str, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(common: str) -> x509.Name:
    return x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION), x509.NameAttribute(NameOID.COMMON_NAME, common)]
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _authority_id(certificate: x509.Certificate, ca_key: ec.EllipticCurvePublicKey) -> x509.AuthorityKeyIdentifier:
    try:
        own = certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:  # an authority that was made elsewhere
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    return [x509.DNSName(host) if (found := _address(host)) is None else x509.IPAddress(found) for host in hosts]


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
