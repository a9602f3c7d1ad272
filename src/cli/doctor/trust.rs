//! Checks that workers on this machine would trust andante's certificates, if any host is
//! intercepted.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use super::Finding;
use crate::{
    ca::{self, Certificate},
    cli::variables,
    config::Config,
};

/// Remaining time from which on a certificate should be replaced.
const SOON: Duration = Duration::from_secs(30 * 86_400);
const NAME: &str = "CA trust";

/// Checks the trust of workers whose variables `current` reads.
pub(super) fn findings(config: &Config, current: impl Fn(&str) -> Option<OsString>) -> Vec<Finding> {
    if !config.rules.intercepts() {
        let detail = "nothing is intercepted: workers need no certificate of andante's";
        return vec![Finding::ok(NAME, detail)];
    }
    let Some(folder) = config.data.clone().or_else(|| ca::default_dir(&current)) else {
        let detail = "there is no place for the CA that interception needs";
        return vec![Finding::not_ok(NAME, detail, "name a folder with --data DIR, `data` or ANDANTE_DATA")];
    };
    if !folder.join(ca::CERTIFICATE).exists() {
        let detail = format!(
            "there is no CA in {} yet: `andante serve` makes it, and no client trusts it yet",
            folder.display()
        );
        return vec![Finding::not_ok(
            NAME,
            detail,
            "`andante ca init`, and then `eval \"$(andante env)\"` where workers run",
        )];
    }
    let certificate = match Certificate::open(&folder) {
        Ok(certificate) => certificate,
        Err(error) => {
            let detail = format!("could not read the CA in {}: {error}", folder.display());
            let hint = error.hint().unwrap_or_else(|| "`andante ca show` says more".to_owned());
            return vec![Finding::not_ok(NAME, detail, hint)];
        }
    };
    let mut found = Vec::new();
    if certificate.not_after() < SystemTime::now() + SOON {
        let detail = format!("the CA in {} ends within 30 days, or has ended", folder.display());
        found.push(Finding::not_ok(
            NAME,
            detail,
            "move that folder away, `andante ca init`, and have workers trust the new one",
        ));
    }
    found.push(trusted(&certificate, &variables::trusted(current), &folder));
    found
}

/// Checks that the files in the variables, or else the system's store, contain the CA.
fn trusted(certificate: &Certificate, named: &[PathBuf], folder: &Path) -> Finding {
    let hint = "`eval \"$(andante env)\"` in the shell that starts the workers, or `andante ca trust` for the system";
    let without: Vec<String> =
        named.iter().filter(|file| !has(file, certificate)).map(|file| file.display().to_string()).collect();
    if let Some(file) = without.first() {
        let detail = format!("variables name {file} as roots, and the CA of {} is not in it", folder.display());
        return Finding::not_ok(NAME, detail, hint);
    }
    if !named.is_empty() {
        return Finding::ok(NAME, format!("the files that {} variables name have the CA in them", named.len()));
    }
    let system = rustls_native_certs::load_native_certs();
    if system.certs.iter().any(|root| root == certificate.der()) {
        return Finding::ok(
            NAME,
            "the system's store has the CA; clients with roots of their own need variables as well",
        );
    }
    let detail = format!("no variable names roots, and the system's store lacks the CA of {}", folder.display());
    Finding::not_ok(NAME, detail, hint)
}

fn has(file: &Path, certificate: &Certificate) -> bool {
    let blocks = std::fs::read(file).ok().and_then(|text| pem::parse_many(text).ok()).unwrap_or_default();
    blocks.iter().any(|block| block.contents() == certificate.der().as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ca::Ca,
        policy::{Interception, Rules},
    };

    #[test]
    fn roots_without_the_ca_are_not_ok() {
        let folder = tempfile::tempdir().unwrap();
        let interception = Interception { hosts: vec!["a.test".parse().unwrap()], ..Interception::default() };
        let rules = Rules::default().intercepting(interception);
        let config = Config { rules, data: Some(folder.path().to_owned()), ..Config::default() };
        assert!(findings(&Config::default(), |_| None)[0].ok, "nothing is intercepted");
        assert!(findings(&config, |_| None)[0].detail.contains("no CA"), "none was made");
        let ca = Ca::create(folder.path(), &[], SystemTime::now()).unwrap();
        let roots = folder.path().join("roots.pem");
        let with = |name: &str| (name == "SSL_CERT_FILE").then(|| roots.clone().into_os_string());
        std::fs::write(&roots, "").unwrap();
        let found = findings(&config, with);
        assert!(!found[0].ok && found[0].detail.contains("roots.pem"), "{found:?}");
        std::fs::write(&roots, ca.certificate_pem()).unwrap();
        assert!(findings(&config, with)[0].ok);
        assert!(!findings(&config, |_| None)[0].ok, "the system does not know it");
    }
}
