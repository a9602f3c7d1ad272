"""sslyze, a scanner of TLS servers, against the side of andante that intercepts: through a tunnel that andante opens."""

import json
import subprocess
import sys

from api import Api
from world import attempt

SCANS = ["sslv2", "sslv3", "tlsv1", "tlsv1_1", "tlsv1_2", "tlsv1_3", "certinfo", "compression", "early_data"]
SCANS += ["heartbleed", "openssl_ccs", "reneg", "robot", "fallback", "ems"]


def cases(world, everything):
    # andante must reach an API before it shows a certificate.
    with Api(world) as api:
        found = scan(world, api.tls)
    yield from checks(found)


def scan(world, port):
    out = world.folder / "sslyze.json"
    command = [sys.executable, "-m", "sslyze", "--https_tunnel", f"http://{world.proxy}", "--json_out", out]
    command += ["--certinfo_ca_file", world.roots(), "--mozilla_config", "disable"]
    command += [f"--{name}" for name in SCANS]
    scanned = subprocess.run(
        [*map(str, command), f"seen.test:{port}"], capture_output=True, text=True, timeout=120, cwd=world.folder
    )
    if not out.exists():
        raise RuntimeError(f"sslyze wrote nothing: {scanned.stdout[-2000:]}{scanned.stderr[-2000:]}")
    (result,) = json.loads(out.read_text())["server_scan_results"]
    if result["connectivity_status"] != "COMPLETED":
        raise RuntimeError(f"sslyze found no server: {result['connectivity_error_trace']}")
    return result["scan_result"]


def checks(found):
    def result(name):
        scanned = found[name]
        assert scanned["status"] == "COMPLETED", f"{scanned['status']}: {scanned['error_trace']}"
        return scanned["result"]

    def suites(name, wanted):
        accepted = {suite["cipher_suite"]["name"] for suite in result(name)["accepted_cipher_suites"]}
        assert accepted == wanted, f"takes {sorted(accepted)}"

    def flag(name, key, wanted):
        value = result(name)[key]
        assert value == wanted, f"{key} is {value}"

    def certificate():
        (deployment,) = result("certificate_info")["certificate_deployments"]
        ours = [path for path in deployment["path_validation_results"] if path["was_validation_successful"]]
        assert ours, "no store has a root for it, nor the file with andante's CA"
        assert not deployment["verified_chain_has_sha1_signature"], "has a signature by SHA-1"

    for name in ["ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1"]:
        yield attempt(f"{name} is refused", suites, f"{name}_cipher_suites", set())
    strong = {
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    }
    yield attempt(
        "TLS 1.2 has forward secrecy and authenticated ciphers alone", suites, "tls_1_2_cipher_suites", strong
    )
    modern = {"TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"}
    yield attempt("TLS 1.3 has its ciphers", suites, "tls_1_3_cipher_suites", modern)
    yield attempt("the certificate is trusted by whoever trusts the CA", certificate)
    yield attempt("no compression (CRIME)", flag, "tls_compression", "supports_compression", False)
    yield attempt("no early data", flag, "tls_1_3_early_data", "supports_early_data", False)
    yield attempt("no Heartbleed", flag, "heartbleed", "is_vulnerable_to_heartbleed", False)
    yield attempt("no injection of CCS", flag, "openssl_ccs_injection", "is_vulnerable_to_ccs_injection", False)
    renegotiation = "session_renegotiation"
    yield attempt(
        "no renegotiation by clients", flag, renegotiation, "is_vulnerable_to_client_renegotiation_dos", False
    )
    yield attempt("no ROBOT", flag, "robot", "robot_result", "NOT_VULNERABLE_RSA_NOT_SUPPORTED")
    yield attempt("extended master secrets", flag, "tls_extended_master_secret", "supports_ems_extension", True)
    yield attempt("downgrades are noticed", flag, "tls_fallback_scsv", "supports_fallback_scsv", True)
