//! Environment in which workers find the proxy and the roots to trust: for `run`, `env` and `ca env`. Pure.

use std::{
    ffi::{OsStr, OsString},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use ipnet::IpNet;

use super::{
    trust::TrustVariables,
    variables::{self, java},
};
use crate::policy::Rules;

/// Variables that lead a worker to the proxy at `url`, and make it trust the proxy's interception. `current` reads the
/// worker's present environment.
pub(super) fn variables(
    url: &str,
    rules: &Rules,
    trust: Option<&TrustVariables>,
    current: impl Fn(&str) -> Option<OsString>,
) -> Vec<(&'static str, OsString)> {
    let mut variables = variables::proxy(url);
    variables.extend(trust.into_iter().flat_map(|trust| trust.variables(&current)));
    let direct = if names_loopback(rules) {
        for name in variables::EXCEPTIONS {
            variables.extend(current(name).and_then(|hosts| without_loopback(&hosts)).map(|hosts| (name, hosts)));
        }
        // Java asks the proxy for loopback hosts only if it does so for all.
        Some(String::new())
    } else {
        variables::exceptions(&current).and_then(|hosts| java::direct(&hosts))
    };
    let store = trust.and_then(|trust| trust.java.as_deref());
    variables.extend(variables::java(url, store, direct.as_deref(), current));
    variables
}

/// The hosts for which a command with these `variables` over the `current` ones uses no proxy.
pub(super) fn exceptions(
    variables: &[(&'static str, OsString)],
    current: impl Fn(&str) -> Option<OsString>,
) -> Option<String> {
    let set = |name: &str| variables.iter().find(|(found, _)| *found == name).map(|(_, hosts)| hosts.clone());
    variables::exceptions(|name| set(name).or_else(|| current(name)))
}

/// The URL of a proxy that listens on `address`, for workers on this machine: a listener on all addresses is reached on
/// loopback.
pub(super) fn url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    format!("http://{}", SocketAddr::new(ip, address.port()))
}

/// Hosts that a worker in a container reaches without a proxy: its own loopback, which is not andante's, and the
/// metadata service of clouds. A sidecar shares its loopback with andante: `rules` that name a loopback host show that.
pub(super) fn outside_of_proxy(rules: &Rules) -> Vec<&'static str> {
    let loopback: &[_] = if names_loopback(rules) { &[] } else { &["localhost", "127.0.0.1", "::1"] };
    [loopback, &["169.254.169.254"]].concat()
}

/// Returns whether a rule names a loopback host; `*` names none.
fn names_loopback(rules: &Rules) -> bool {
    rules.iter().flat_map(|rule| &rule.hosts).any(|pattern| pattern.name().is_some_and(is_loopback))
}

/// The list without its loopback hosts; `None` if it has none, or is not UTF-8.
fn without_loopback(hosts: &OsStr) -> Option<OsString> {
    let hosts = hosts.to_str()?;
    let kept: Vec<&str> = hosts.split(',').filter(|host| !is_loopback(host.trim())).collect();
    (kept.len() < hosts.split(',').count()).then(|| kept.join(",").into())
}

/// Recognizes `localhost`, names below it, `127.0.0.1`, `127.0.0.0/8` and `::1`, each with or without a port.
fn is_loopback(host: &str) -> bool {
    if let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        return address.is_loopback();
    }
    if let Ok(network) = host.parse::<IpNet>() {
        return network.network().is_loopback() && network.broadcast().is_loopback();
    }
    match host.rsplit_once(':') {
        Some((host, _)) => is_loopback(host),
        None => {
            let host = host.to_ascii_lowercase();
            host == "localhost" || host.ends_with(".localhost")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    fn rules(hosts: &[&str]) -> Rules {
        Rules::new(vec![Policy::new("api", hosts.iter().map(|host| host.parse().unwrap()).collect())])
    }

    fn found(rules: &Rules, no_proxy: &str, name: &str) -> Option<String> {
        let at = "http://127.0.0.1:4711";
        let current = |name: &str| (name == "NO_PROXY").then(|| OsString::from(no_proxy));
        let all = variables(at, rules, None, current);
        all.into_iter().find(|(found, _)| *found == name).map(|(_, value)| value.into_string().unwrap())
    }

    #[test]
    fn both_spellings_of_all_schemes_name_the_proxy() {
        for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
            assert_eq!(found(&Rules::default(), "", name).unwrap(), "http://127.0.0.1:4711", "{name}");
        }
        for name in ["YARN_HTTP_PROXY", "YARN_HTTPS_PROXY"] {
            assert_eq!(found(&Rules::default(), "", name).unwrap(), "http://127.0.0.1:4711", "{name}");
        }
        for name in ["NODE_USE_ENV_PROXY", "PERL_LWP_ENV_PROXY"] {
            assert_eq!(found(&Rules::default(), "", name).unwrap(), "1", "{name}");
        }
    }

    #[test]
    fn listener_on_all_addresses_is_reached_on_loopback() {
        for (listen, reached) in [
            ("0.0.0.0:3128", "http://127.0.0.1:3128"),
            ("[::]:1", "http://[::1]:1"),
            ("10.0.0.7:8080", "http://10.0.0.7:8080"),
        ] {
            assert_eq!(url(listen.parse().unwrap()), reached);
        }
    }

    #[test]
    fn r49_clients_are_told_whom_to_trust_if_there_is_a_ca() {
        let trust = TrustVariables {
            ca: "/t/ca.pem".into(),
            bundle: "/t/bundle.pem".into(),
            java: Some("/t/bundle.p12".into()),
            php: Some("/t".into()),
            wgetrc: Some("/t/wgetrc".into()),
        };
        let at = "http://127.0.0.1:4711";
        let with = variables(at, &Rules::default(), Some(&trust), |_| None);
        let without = variables(at, &Rules::default(), None, |_| None);
        let added: Vec<_> = with.iter().filter(|variable| !without.contains(variable)).collect();
        for (name, file) in [
            ("NODE_EXTRA_CA_CERTS", "/t/ca.pem"),
            ("SSL_CERT_FILE", "/t/bundle.pem"),
            ("HTTPLIB2_CA_CERTS", "/t/bundle.pem"),
            ("PERL_LWP_SSL_CA_FILE", "/t/bundle.pem"),
            ("npm_config_cafile", "/t/bundle.pem"),
            ("YARN_HTTPS_CA_FILE_PATH", "/t/bundle.pem"),
            ("PHP_INI_SCAN_DIR", ":/t"),
            ("SYSTEM_WGETRC", "/t/wgetrc"),
        ] {
            assert!(added.contains(&&(name, file.into())), "{name}");
        }
        // Java's variable names the proxy, too.
        let options = |found: &[(&str, OsString)]| {
            let java = found.iter().find(|(name, _)| *name == "JAVA_TOOL_OPTIONS").unwrap();
            java.1.clone().into_string().unwrap()
        };
        let proxy =
            "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=4711 -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=4711";
        assert_eq!(options(&without), proxy);
        assert!(options(&with).contains("-Djavax.net.ssl.trustStore=/t/bundle.p12 "));
        assert_eq!(added.len(), with.len() - without.len() + 1);
    }

    #[test]
    fn java_asks_for_the_same_hosts_itself_as_others_do() {
        let java = |hosts: &[&str]| found(&rules(hosts), "intra.example", "JAVA_TOOL_OPTIONS").unwrap();
        assert!(java(&["api.example.com"]).ends_with(" -Dhttp.nonProxyHosts=intra.example|*.intra.example"));
        // Without any entry, not even loopback is reached directly.
        assert!(java(&["127.0.0.1:80"]).ends_with(" -Dhttp.nonProxyHosts="));
    }

    #[test]
    fn exceptions_stay_as_they_are_unless_a_rule_names_loopback() {
        let list = "localhost,127.0.0.1,intra.example";
        for hosts in [&["api.example.com"][..], &["*"], &["*.example.com"], &["10.0.0.1:80"]] {
            assert_eq!(found(&rules(hosts), list, "NO_PROXY"), None, "{hosts:?}");
        }
    }

    #[test]
    fn a_loopback_api_is_paced_although_no_proxy_excludes_loopback() {
        let list = "localhost, 127.0.0.1:80,[::1],127.0.0.0/8,.localhost,::1,10.0.0.0/8, intra.example,*";
        for host in ["localhost:8080", "127.0.0.1", "[::1]:80", "*.localhost"] {
            let rules = rules(&["api.example.com", host]);
            assert_eq!(found(&rules, list, "NO_PROXY").unwrap(), "10.0.0.0/8, intra.example,*", "{host}");
            assert_eq!(found(&rules, "intra.example", "NO_PROXY"), None);
            assert_eq!(found(&rules, list, "no_proxy"), None);
        }
    }

    #[test]
    fn the_hosts_that_need_no_proxy_are_those_of_the_command() {
        let current = |name: &str| (name == "no_proxy").then(|| OsString::from("localhost"));
        assert_eq!(exceptions(&[], current).as_deref(), Some("localhost"));
        assert_eq!(exceptions(&[("no_proxy", OsString::new())], current), None, "it was taken out");
        assert_eq!(exceptions(&[], |_| None), None);
    }
}
