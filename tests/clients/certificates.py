"""A certificate authority of the test's own, and one leaf for all its servers."""

import subprocess

NAMES = ["api.test", "h2.test", "ws.test", "grpc.test"]

# Complete enough for clients that check strictly (Python from 3.13 on).
AUTHORITY = """
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
"""
LEAF = """
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {names}
"""


def make(folder, names=NAMES):
    """Writes ca.pem, leaf.pem and leaf.key, the leaf for all `names`."""
    (folder / "ca.ext").write_text(AUTHORITY)
    (folder / "leaf.ext").write_text(LEAF.format(names=",".join(f"DNS:{name}" for name in names)))
    for name, subject in [("ca", "/CN=authority of andante's tests"), ("leaf", f"/CN={names[0]}")]:
        openssl(folder, f"ecparam -name prime256v1 -genkey -noout -out {name}.key")
        openssl(folder, f"req -new -key {name}.key -out {name}.csr -subj", subject)
    openssl(folder, "x509 -req -in ca.csr -signkey ca.key -days 30 -extfile ca.ext -out ca.pem")
    signed = "-CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile leaf.ext"
    openssl(folder, f"x509 -req -in leaf.csr {signed} -out leaf.pem")


def openssl(folder, arguments, *more):
    command = ["openssl", *arguments.split(), *more]
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if made.returncode:
        raise RuntimeError(f"{' '.join(command)}: {made.stderr.strip()}")
