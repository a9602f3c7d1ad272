//! Variables by which common clients find their proxy and the roots to trust: one list, for `run`, `env` and `ca env`.
//! Pure.

pub(super) mod java;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// Variables with the proxy. Both spellings, because curl reads only `http_proxy` in small letters, others only
/// capitals.
const PROXIES: [&str; 6] = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// Variables with the hosts that need no proxy.
pub(super) const EXCEPTIONS: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// Node reads the proxy variables only if this is 1 (22.21, 24.5 and later).
const NODE_PROXY: &str = "NODE_USE_ENV_PROXY";

/// perl's LWP reads the proxy variables only if this is 1.
const PERL_PROXY: &str = "PERL_LWP_ENV_PROXY";

/// Yarn 2 and later has names of its own.
const YARN_PROXIES: [&str; 2] = ["YARN_HTTP_PROXY", "YARN_HTTPS_PROXY"];

/// Folders in which PHP looks for configurations besides `php.ini`; an empty entry means its built-in folder.
const PHP_FOLDERS: &str = "PHP_INI_SCAN_DIR";

/// Configuration for PHP, which has no variable for roots: takes the roots from variables of other clients.
pub(super) const PHP_INI: &str = "\
; So that PHP trusts the CA of andante, where `andante run` or `andante env` has set these variables.
curl.cainfo = \"${CURL_CA_BUNDLE}\"
openssl.cafile = \"${SSL_CERT_FILE}\"
";

/// Variables with certificates that a client trusts besides its own roots: Node, Deno.
const ADDING: [&str; 2] = ["NODE_EXTRA_CA_CERTS", "DENO_CERT"];

/// Variables with a client's only roots: OpenSSL (so Python, Ruby) and Go; requests; curl; AWS; git; pip; cargo; gRPC;
/// httplib2; perl's LWP; npm, pnpm and Yarn 1; Yarn from 2 on.
const REPLACING: [&str; 12] = [
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "AWS_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "HTTPLIB2_CA_CERTS",
    "PERL_LWP_SSL_CA_FILE",
    "npm_config_cafile",
    "YARN_HTTPS_CA_FILE_PATH",
];

/// Folders of roots, besides the one file: OpenSSL, Go.
const FOLDERS: &str = "SSL_CERT_DIR";

/// Variables that lead clients to the proxy at `url`.
pub(super) fn proxy(url: &str) -> Vec<(&'static str, OsString)> {
    let named = PROXIES.into_iter().chain(YARN_PROXIES).map(|name| (name, url.into()));
    named.chain([NODE_PROXY, PERL_PROXY].map(|name| (name, "1".into()))).collect()
}

/// The hosts for which clients use no proxy: the first non-empty list, if there is one.
pub(super) fn exceptions(current: impl Fn(&str) -> Option<OsString>) -> Option<String> {
    let lists = EXCEPTIONS.iter().filter_map(|name| current(name));
    lists.map(|hosts| hosts.to_string_lossy().into_owned()).find(|hosts| !hosts.is_empty())
}

/// Variables that make clients trust the certificates of `ca` besides their own, or only those of `bundle`.
pub(super) fn trust(ca: &Path, bundle: &Path) -> Vec<(&'static str, OsString)> {
    let adding = ADDING.map(|name| (name, OsString::from(ca)));
    adding.into_iter().chain(REPLACING.map(|name| (name, OsString::from(bundle)))).collect()
}

/// Variable that leads Java to the proxy at `url` and to the roots in `store`, except for the hosts in `direct`. Keeps
/// the present options.
pub(super) fn java(
    url: &str,
    store: Option<&Path>,
    direct: Option<&str>,
    current: impl Fn(&str) -> Option<OsString>,
) -> Option<(&'static str, OsString)> {
    let now = current(java::VARIABLE).unwrap_or_default();
    let options = java::options(url, store, direct, now.to_str()?)?;
    Some((java::VARIABLE, options.into()))
}

/// Variable that makes PHP read [`PHP_INI`] in `folder`, besides its present configurations.
pub(super) fn php(folder: &Path, current: impl Fn(&str) -> Option<OsString>) -> (&'static str, OsString) {
    let mut folders = current(PHP_FOLDERS).unwrap_or_default();
    if !std::env::split_paths(&folders).any(|found| found == folder) {
        folders.push(":");
        folders.push(folder);
    }
    (PHP_FOLDERS, folders)
}

/// The files that such variables name now.
pub(super) fn trusted(current: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let set = REPLACING.iter().chain(&ADDING).filter_map(|name| current(name));
    set.filter(|value| !value.is_empty()).map(PathBuf::from).collect()
}

/// The folders that such a variable names now.
pub(super) fn trusted_folders(current: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let folders = current(FOLDERS).unwrap_or_default();
    std::env::split_paths(&folders).filter(|folder| !folder.as_os_str().is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn php_reads_our_folder_besides_its_own_once() {
        let with = |now: Option<&str>| php(Path::new("/t"), |_| now.map(OsString::from)).1;
        assert_eq!(with(None), ":/t");
        assert_eq!(with(Some("")), ":/t");
        assert_eq!(with(Some("/own:/etc/php")), "/own:/etc/php:/t");
        assert_eq!(with(Some(":/t")), ":/t");
    }
}
