"""A certificate authority for tests, using the openssl program."""

import pathlib
import subprocess


def _openssl(*arguments):
    result = subprocess.run(["openssl", *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                            text=True, check=False)
    assert result.returncode == 0, result.stderr


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Authority:
    """A CA with its files in `directory`; `certificate` is the CA certificate that others must trust."""

    def __init__(self, directory, name="muster test authority"):
        self._directory = pathlib.Path(directory)
        self._directory.mkdir(parents=True)
        self.certificate = self._directory / "ca.pem"
        self._key = self._directory / "ca.key"
        _openssl("req", "-x509", *_NEW_KEY, "-keyout", self._key, "-out", self.certificate, "-days", 2,
                 "-subj", f"/CN={name}")

    def issue(self, name, *addresses, days=2):
        """Paths (certificate, key) for a program that is reached at the given IP addresses."""
        certificate, key, request, extensions = (self._directory / f"{name}.{end}"
                                                 for end in ("pem", "key", "csr", "ext"))
        _openssl("req", "-new", *_NEW_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        extensions.write_text("subjectAltName=" + ",".join([f"DNS:{name}", *(f"IP:{a}" for a in addresses)]))
        _openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial",
                 "-days", days, "-extfile", extensions, "-out", certificate)
        return certificate, key
