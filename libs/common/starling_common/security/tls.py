"""Adapter: a TLS context from the files of a client, for drivers in Python."""

import ssl

from pydantic import SecretStr


def tls_context(
    ca_file: str | None, certificate: tuple[str, str | None, SecretStr | None] | None, *, check_hostname: bool
) -> ssl.SSLContext:
    """Return the context. `ca_file`: None for the authorities of the system. `certificate`: files of certificate and key, password.

    Raises: OSError for a file that cannot be read, SSLError for one that is no certificate or key.
    """
    context = ssl.create_default_context(cafile=ca_file)
    context.check_hostname = check_hostname
    if certificate is not None:
        path, key, password = certificate
        context.load_cert_chain(path, key, None if password is None else password.get_secret_value())
    return context
