//! Files that a start reads: the admin token, the certificate authority, and the certificates and keys for upstreams.
//! `andante check` and `andante doctor` read them in the same way, and create none.

use std::{
    path::{Path, PathBuf},
    time::SystemTime,
};

use tracing::{info, warn};

use super::StartError;
use crate::{
    admin::Token,
    ca::{self, Ca, CaError, Constraints},
    config::{Config, token_file},
    policy::{HostPattern, Https, Rules},
    tls::Tls,
};

/// Errors in the files that `config` names with which andante would not start. Changes nothing.
pub fn unusable_files(config: &Config) -> Vec<StartError> {
    let token = config.admin_token.as_deref().map(admin_token).transpose().err();
    let tls = Tls::new(&config.upstream_ca, &config.upstream_crl, &config.rules).err().map(StartError::from);
    let ca = config.rules.intercepts().then(|| existing_authority(config)).and_then(Result::err);
    token.into_iter().chain(tls).chain(ca).collect()
}

/// The token in this file.
pub(super) fn admin_token(file: &Path) -> Result<Token, StartError> {
    let unusable = |source| StartError::Token { file: file.to_owned(), source };
    let text = token_file::read(file).map_err(|error| unusable(error.into()))?;
    if let Some(problem) = token_file::exposed(file) {
        warn!(problem, hint = "chmod 600, or 640 with a group of its own", "others can read the admin token");
    }
    Token::new(&text).map_err(|error| unusable(error.into()))
}

/// This installation's certificate authority, which is created if it is missing.
pub(super) fn authority(config: &Config) -> Result<Ca, StartError> {
    let place = authority_place(config)?;
    let ca = Ca::find_or_create(&place, SystemTime::now())?;
    may_sign(ca.certificate().constraints(), &config.rules)?;
    let place = place.display();
    info!(%place, fingerprint = ca.fingerprint(), "intercepting HTTPS; workers have to trust this CA (andante env)");
    Ok(ca)
}

/// Checks an existing certificate authority. A start creates a missing one.
fn existing_authority(config: &Config) -> Result<(), StartError> {
    match Ca::open(&authority_place(config)?, SystemTime::now()) {
        Ok(ca) => Ok(may_sign(ca.certificate().constraints(), &config.rules)?),
        Err(CaError::Missing { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn authority_place(config: &Config) -> Result<PathBuf, StartError> {
    let place = config.data.clone().or_else(|| ca::default_dir(|name| std::env::var_os(name)));
    place.ok_or(StartError::NoData)
}

/// Returns an error if a CA bound by `constraints` may not sign for the hosts that are named for interception.
fn may_sign(constraints: &Constraints, rules: &Rules) -> Result<(), CaError> {
    let of_rules = rules.iter().flat_map(|rule| rules.https_of(rule));
    let of_rules = of_rules.filter(|(_, https)| *https == Https::Intercept).map(|(host, _)| host);
    let mut named = rules.interception().hosts.iter().chain(of_rules);
    let outside = |host: &HostPattern| CaError::Outside { host: host.to_string(), only: constraints.to_string() };
    named.find(|host| constraints.exclude(host)).map_or(Ok(()), |host| Err(outside(host)))
}

#[cfg(test)]
mod tests {
    use std::{error::Error as _, fs, os::unix::fs::PermissionsExt as _};

    use super::*;
    use crate::policy::{Egress, Identity, Interception, Policy};

    /// Causes that make `config` unusable.
    fn causes(config: &Config) -> Vec<String> {
        let cause = |error: &StartError| error.source().map(ToString::to_string).unwrap_or_default();
        unusable_files(config).iter().map(cause).collect()
    }

    fn intercepting(hosts: &[&str], data: &Path) -> Config {
        let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        let rules = Rules::default().intercepting(Interception { hosts, ..Interception::default() });
        Config { rules, data: Some(data.to_owned()), ..Config::default() }
    }

    #[test]
    fn a_ca_that_is_still_to_be_made_is_usable_and_not_made() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(causes(&intercepting(&["a.test"], folder.path())), Vec::<String>::new());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_key_that_others_can_read_is_unusable() {
        let folder = tempfile::tempdir().unwrap();
        Ca::create(folder.path(), &[], SystemTime::now()).unwrap();
        let config = intercepting(&["a.test"], folder.path());
        assert_eq!(causes(&config), Vec::<String>::new());
        fs::set_permissions(folder.path().join(ca::KEY), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(causes(&config)[0].contains("its mode is 0644"), "{:?}", causes(&config));
        assert_eq!(
            causes(&Config { rules: Rules::default(), ..config }),
            Vec::<String>::new(),
            "nothing is intercepted"
        );
    }

    #[test]
    fn a_ca_that_may_not_sign_for_a_named_host_is_unusable() {
        let folder = tempfile::tempdir().unwrap();
        Ca::create(folder.path(), &["api.example.com".parse().unwrap()], SystemTime::now()).unwrap();
        for (hosts, good) in [
            (&["api.example.com"][..], true),
            (&["*.api.example.com"], true),
            (&["*.example.com"], true),
            (&["*"], true),
            (&["localhost"], false),
            (&["api.example.com", "127.0.0.1"], false),
            (&["*.example.org"], false),
            (&["example.com"], false),
        ] {
            let config = intercepting(hosts, folder.path());
            assert_eq!(causes(&config).is_empty(), good, "{hosts:?}: {:?}", causes(&config));
            assert_eq!(authority(&config).is_ok(), good, "{hosts:?}");
        }
        let rule = Policy { https: Some(Https::Intercept), ..Policy::new("b", vec!["b.test".parse().unwrap()]) };
        let config = Config { rules: Rules::new(vec![rule]), ..intercepting(&[], folder.path()) };
        assert!(causes(&config)[0].contains("may not speak for b.test"), "{:?}", causes(&config));
    }

    #[test]
    fn a_token_that_is_too_short_is_unusable() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        for (text, good) in [("abc\n", false), ("", false), ("0123456789abcdef\n", true)] {
            fs::write(&file, text).unwrap();
            let config = Config { admin_token: Some(file.clone()), ..Config::default() };
            assert_eq!(causes(&config).is_empty(), good, "{text:?}: {:?}", causes(&config));
        }
    }

    #[test]
    fn a_key_of_another_certificate_is_unusable_and_the_hint_is_about_the_key() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        folders.iter().for_each(|folder| drop(Ca::create(folder.path(), &[], SystemTime::now()).unwrap()));
        let rule = |key: &Path| {
            let identity = Identity { certificate: folders[0].path().join(ca::CERTIFICATE), key: key.join(ca::KEY) };
            let egress = Egress { identity: Some(identity), ..Egress::default() };
            let rules = Rules::new(vec![Policy { egress, ..Policy::new("a", vec!["a.test".parse().unwrap()]) }]);
            unusable_files(&Config { rules, ..Config::default() })
        };
        assert!(rule(folders[0].path()).is_empty());
        let hint = rule(folders[1].path())[0].hint().unwrap();
        assert!(hint.contains("client-key"), "{hint}");
    }
}
