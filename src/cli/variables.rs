//! The variables by which common clients find their proxy, and whom to trust: the one list, for `run` and `ca env`. Pure.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// Where clients look for the proxy. Both spellings: curl reads only `http_proxy` in small letters, others only capitals.
const PROXIES: [&str; 6] = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// Node looks at those only if this is 1 (22.21, 24.5 and later).
const NODE_PROXY: &str = "NODE_USE_ENV_PROXY";

/// What names certificates that a client trusts besides its own roots: Node, Deno.
const ADDING: [&str; 2] = ["NODE_EXTRA_CA_CERTS", "DENO_CERT"];

/// What names a client's only roots: OpenSSL (so Python, Ruby, PHP) and Go; requests; curl; AWS; git; pip; cargo; gRPC.
const REPLACING: [&str; 8] = [
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "AWS_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
];

/// What leads clients to the proxy at `url`.
pub(super) fn proxy(url: &str) -> Vec<(&'static str, OsString)> {
    let mut variables: Vec<_> = PROXIES.map(|name| (name, url.into())).into();
    variables.push((NODE_PROXY, "1".into()));
    variables
}

/// What makes clients trust the certificates of `ca` besides their own, or those of `bundle` alone.
pub(super) fn trust(ca: &Path, bundle: &Path) -> Vec<(&'static str, OsString)> {
    let adding = ADDING.map(|name| (name, OsString::from(ca)));
    adding.into_iter().chain(REPLACING.map(|name| (name, OsString::from(bundle)))).collect()
}

/// The files that such variables name already.
pub(super) fn trusted(current: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let set = REPLACING.iter().chain(&ADDING).filter_map(|name| current(name));
    set.filter(|value| !value.is_empty()).map(PathBuf::from).collect()
}
