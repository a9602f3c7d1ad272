//! Checks the variables by which workers find the proxy, as common clients read them, and their pitfalls. Pure.

use std::{
    ffi::OsString,
    net::{IpAddr, SocketAddr},
};

use super::{Finding, machine};
use crate::{
    cli::{environment, variables::EXCEPTIONS},
    config::Config,
    policy::{HostPattern, Origin, Rules, Scheme},
};

const NAME: &str = "variables";

/// Effect on clients of the variables that `current` reads.
pub(super) fn findings(config: &Config, current: impl Fn(&str) -> Option<OsString>) -> Vec<Finding> {
    let read = |name: &str| {
        let value = current(name).map(|value| value.to_string_lossy().trim().to_owned());
        value.filter(|value| !value.is_empty())
    };
    let mut found = Vec::new();
    let pairs = [("HTTP_PROXY", "http_proxy"), ("HTTPS_PROXY", "https_proxy"), ("ALL_PROXY", "all_proxy")];
    let set = |(capital, small): (&str, &str)| read(small).or_else(|| read(capital));
    let example = config.listen.first().map_or_else(String::new, |address| environment::url(*address));
    if pairs.into_iter().all(|pair| set(pair).is_none()) {
        let detail = "no proxy is named: a worker that this shell starts bypasses andante";
        let hint = format!("where workers run: eval \"$(andante env --proxy {example})\"");
        return vec![Finding { hint: Some(hint), ..Finding::ok(NAME, detail) }];
    }
    for (capital, small) in pairs {
        found.extend(pair(capital, small, read));
        found.extend([capital, small].into_iter().filter_map(|name| address(name, &read(name)?, config)));
    }
    if set(pairs[0]).is_some() && set(pairs[1]).is_none() && set(pairs[2]).is_none() {
        let detail = "HTTP_PROXY is set, and HTTPS_PROXY is not: requests to https:// URLs bypass andante";
        found.push(Finding::not_ok(NAME, detail, format!("export HTTPS_PROXY={example} https_proxy={example}")));
    }
    if set(pairs[1]).is_some() && set(pairs[0]).is_none() && set(pairs[2]).is_none() {
        let detail = "HTTPS_PROXY is set, and HTTP_PROXY is not: requests to http:// URLs bypass andante";
        found.push(Finding::not_ok(NAME, detail, format!("export HTTP_PROXY={example} http_proxy={example}")));
    }
    if read("REQUEST_METHOD").is_some() {
        let detail = "REQUEST_METHOD is set, as by a CGI: Go, Python and others do not read HTTP_PROXY there";
        found.push(Finding::not_ok(NAME, detail, "name the proxy in the client, or unset REQUEST_METHOD"));
    }
    found.extend(exceptions(&config.rules, read));
    if found.iter().all(|finding| finding.ok) {
        found.insert(0, Finding::ok(NAME, "both spellings of HTTP_PROXY and HTTPS_PROXY lead to andante"));
    }
    found
}

/// Compares both spellings, because clients read one or the other: curl only `http_proxy`, others only capitals.
fn pair(capital: &'static str, small: &'static str, read: impl Fn(&str) -> Option<String>) -> Option<Finding> {
    match (read(capital), read(small)) {
        (Some(one), Some(other)) if one != other => {
            let (one, other) = (without_password(&one), without_password(&other));
            let detail = format!("{capital} is {one}, and {small} is {other}: clients differ in which they read");
            Some(Finding::not_ok(NAME, detail, format!("set both to the same: export {small}=\"${capital}\"")))
        }
        (Some(_), None) => {
            let who = if small == "http_proxy" { ", which is all that curl reads" } else { "" };
            let detail = format!("{capital} is set without {small}{who}");
            Some(Finding::not_ok(NAME, detail, format!("export {small}=\"${capital}\"")))
        }
        (None, Some(_)) => {
            let detail = format!("{small} is set without {capital}, which is all that some clients read");
            Some(Finding::not_ok(NAME, detail, format!("export {capital}=\"${small}\"")))
        }
        _ => None,
    }
}

/// The address of a proxy without its password.
fn without_password(value: &str) -> String {
    let (scheme, rest) = value.split_once("://").map_or(("", value), |(scheme, _)| value.split_at(scheme.len() + 3));
    format!("{scheme}{}", rest.rsplit_once('@').map_or(rest, |(_, host)| host))
}

/// Problem with the proxy's address in `name`.
fn address(name: &'static str, value: &str, config: &Config) -> Option<Finding> {
    let shown = without_password(value);
    let not_ok = |what: &str, hint: String| Some(Finding::not_ok(NAME, format!("{name} is {shown}: {what}"), hint));
    let (scheme, rest) = value.split_once("://").unwrap_or(("", value));
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let example = format!("export {name}=http://{host}");
    match scheme {
        "http" => {}
        "https" => {
            return not_ok(
                "the scheme is how the proxy itself is spoken to, and andante's own port speaks no TLS",
                example,
            );
        }
        "" => return not_ok("some clients take no proxy without a scheme", example),
        _ => return not_ok("andante speaks HTTP, and no other protocol of proxies", example),
    }
    let at = host.trim_end_matches('/');
    let Ok(origin) = Origin::parse(Scheme::Http, at, Some(80)) else {
        return not_ok("that is no address", "write http://HOST:PORT".to_owned());
    };
    let ports = machine::worker_ports(&config.listen);
    let here = &*origin.host == "localhost" || origin.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if here && !ports.contains(&origin.port) {
        let listen: Vec<String> = config.listen.iter().map(ToString::to_string).collect();
        let what = format!("andante listens on {}", listen.join(", "));
        let port = ports.first().copied().unwrap_or_default();
        return not_ok(
            &what,
            format!("export {name}=http://{}:{port}, or give andante that port with --listen", origin.host),
        );
    }
    None
}

/// Problems with the list of hosts without a proxy.
fn exceptions(rules: &Rules, read: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let [capital, small] = EXCEPTIONS;
    let mut found = Vec::new();
    if let (Some(one), Some(other)) = (read(capital), read(small))
        && one != other
    {
        let detail = format!("{capital} is {one}, and {small} is {other}: clients differ in which they read");
        found.push(Finding::not_ok(NAME, detail, format!("set both to the same: export {small}=\"${capital}\"")));
    }
    let Some((name, list)) = EXCEPTIONS.into_iter().find_map(|name| Some((name, read(name)?))) else { return found };
    let hosts: Vec<&HostPattern> = rules.iter().flat_map(|rule| &rule.hosts).collect();
    let mut unruled = Vec::new();
    for entry in list.split([',', ' ']).map(str::trim).filter(|entry| !entry.is_empty()) {
        if entry == "*" {
            let detail = format!("{name} has *: no client here uses a proxy at all");
            found.push(Finding::not_ok(NAME, detail, format!("take it out of {name}")));
        } else if entry.contains('/') && entry.parse::<ipnet::IpNet>().is_err() {
            let detail = format!("{name} has {entry}: it takes hosts, and no URLs");
            found.push(Finding::not_ok(NAME, detail, "write the host alone"));
        } else if let Some(domain) = entry.strip_prefix("*.") {
            let detail = format!("{name} has {entry}: curl, wget and others do not understand the star");
            found.push(Finding::not_ok(NAME, detail, format!("write .{domain}")));
        }
        if let Some(host) = hosts.iter().find(|host| spares(entry, host)) {
            let detail = format!("{name} has {entry}: requests to {host}, for which there is a rule, bypass andante");
            found.push(Finding::not_ok(NAME, detail, format!("take {entry} out of {name}")));
        } else if is_public(entry) {
            unruled.push(entry);
        }
    }
    if !unruled.is_empty() {
        let detail = format!("{name} has {}: requests to these hosts bypass andante", unruled.join(", "));
        let hint = format!("take a host out of {name} if andante is to pace requests to it");
        found.push(Finding { hint: Some(hint), ..Finding::ok(NAME, detail) });
    }
    if list.contains(' ') && list.split(',').any(|entry| entry.trim().contains(' ')) {
        let detail = format!("{name} has blanks between hosts: most clients split at commas alone");
        found.push(Finding::not_ok(NAME, detail, "write commas between the hosts"));
    }
    found
}

/// Returns whether an entry of the list names a host that may be an API's: a name with a dot, neither an address nor a
/// network.
fn is_public(entry: &str) -> bool {
    const LOCAL: [&str; 4] = ["local", "internal", "localhost", "svc"];
    let is_address = entry.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() || entry.parse::<SocketAddr>().is_ok();
    let name = entry.split_once(':').map_or(entry, |(name, _)| name).trim_end_matches('.');
    let last = name.rsplit('.').next().unwrap_or_default();
    // `192.168.` is the beginning of an address.
    let is_name = last.contains(|letter: char| letter.is_ascii_alphabetic());
    name.contains('.') && is_name && !is_address && !entry.contains(['/', '*']) && !LOCAL.contains(&last)
}

/// Returns whether an entry of the list makes clients reach such hosts without a proxy: `a.test` and `.a.test` also
/// cover names below, and a network covers its addresses. An address may be in brackets, a name may end with a dot, and
/// each may have a port.
fn spares(entry: &str, host: &HostPattern) -> bool {
    let Some(name) = host.name() else { return false };
    if let Ok(address) = name.parse::<IpAddr>() {
        let network = entry.parse::<ipnet::IpNet>().is_ok_and(|network| network.contains(&address));
        let own = entry.trim_matches(['[', ']']).parse::<IpAddr>();
        let own = own.or_else(|_| entry.parse::<SocketAddr>().map(|at| at.ip()));
        return network || own.is_ok_and(|own| own.to_canonical() == address);
    }
    let entry = entry.trim_start_matches("*.").trim_start_matches('.').to_ascii_lowercase();
    let entry = entry.split_once(':').map_or(entry.as_str(), |(at, _)| at).trim_end_matches('.');
    name == entry || name.strip_suffix(entry).is_some_and(|before| before.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    fn config() -> Config {
        let hosts = ["api.test", "*.batch.test", "10.1.2.3", "[::1]", "*"].map(|host| host.parse().unwrap()).to_vec();
        Config { rules: Rules::new(vec![Policy::new("api", hosts)]), ..Config::default() }
    }

    fn found(set: &[(&str, &str)]) -> Vec<String> {
        let current = |name: &str| set.iter().find(|(set, _)| *set == name).map(|(_, value)| OsString::from(value));
        findings(&config(), current).into_iter().filter(|found| !found.ok).map(|found| found.detail).collect()
    }

    const AT: &str = "http://127.0.0.1:3128";

    fn all<'a>(with: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let usual = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"].map(|name| (name, AT));
        with.iter().copied().chain(usual).collect()
    }

    #[test]
    fn all_four_lead_to_andante_and_none_is_no_mistake() {
        assert_eq!(found(&all(&[])), [""; 0]);
        assert_eq!(found(&[]), [""; 0]);
        assert_eq!(found(&all(&[("NO_PROXY", "localhost,10.0.0.0/16,::2,fd00::/8,.intra.test,pi.test.")])), [""; 0]);
        // Proxies on other hosts are not checked.
        let other_proxy =
            ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"].map(|name| (name, "http://andante:1"));
        assert_eq!(found(&other_proxy), [""; 0]);
    }

    #[test]
    fn hosts_without_a_rule_that_go_past_andante_are_noted() {
        let noted = |list: &str| {
            let all = all(&[("NO_PROXY", list)]);
            let current = |name: &str| all.iter().find(|(set, _)| *set == name).map(|(_, value)| OsString::from(value));
            let found = findings(&config(), current);
            assert!(found.iter().all(|found| found.ok), "{found:#?}");
            found.iter().filter(|found| found.hint.is_some()).map(|found| found.detail.clone()).collect::<Vec<_>>()
        };
        let detail = "NO_PROXY has example.com, .intra.test: requests to these hosts bypass andante";
        assert_eq!(noted("localhost,example.com,10.0.0.0/16,.intra.test,::2,127.0.0.1:80"), [detail]);
        assert_eq!(
            noted("localhost,127.0.0.1,::2,10.0.0.0/16,192.168.,.svc.cluster.local,host.docker.internal"),
            [""; 0]
        );
    }

    #[test]
    fn each_trap_is_found() {
        for (set, words) in [
            (vec![("HTTP_PROXY", AT), ("HTTPS_PROXY", AT), ("https_proxy", AT)], "all that curl reads"),
            (
                vec![("http_proxy", AT), ("HTTPS_PROXY", AT), ("https_proxy", AT)],
                "http_proxy is set without HTTP_PROXY",
            ),
            (vec![("HTTP_PROXY", AT), ("http_proxy", AT)], "HTTPS_PROXY is not"),
            (vec![("HTTPS_PROXY", AT), ("https_proxy", AT)], "HTTP_PROXY is not"),
            (all(&[("http_proxy", "http://127.0.0.1:8080")]), "clients differ"),
            (all(&[("http_proxy", "http://127.0.0.1:8080")]), "andante listens on 127.0.0.1:3128"),
            (all(&[("HTTPS_PROXY", "https://127.0.0.1:3128")]), "speaks no TLS"),
            (all(&[("HTTP_PROXY", "127.0.0.1:3128")]), "without a scheme"),
            (all(&[("ALL_PROXY", "socks5://127.0.0.1:3128")]), "no other protocol"),
            (all(&[("REQUEST_METHOD", "GET")]), "CGI"),
            (all(&[("NO_PROXY", "*")]), "no client here uses a proxy"),
            (all(&[("NO_PROXY", "localhost,api.test")]), "requests to api.test"),
            (all(&[("no_proxy", ".test")]), "requests to api.test"),
            (all(&[("no_proxy", "a.batch.test"), ("NO_PROXY", "b")]), "no_proxy is a.batch.test"),
            (all(&[("no_proxy", "batch.test:443")]), "requests to *.batch.test"),
            (all(&[("NO_PROXY", "https://intra.test/")]), "no URLs"),
            (all(&[("NO_PROXY", "*.intra.test")]), "the star"),
            (all(&[("NO_PROXY", "10.0.0.0/8")]), "NO_PROXY has 10.0.0.0/8: requests to 10.1.2.3"),
            (all(&[("NO_PROXY", "::1")]), "NO_PROXY has ::1: requests to [::1]"),
            (all(&[("NO_PROXY", "[::1]:443")]), "NO_PROXY has [::1]:443: requests to [::1]"),
            (all(&[("NO_PROXY", "0:0::1")]), "requests to [::1]"),
            (all(&[("NO_PROXY", "::/64")]), "requests to [::1]"),
            (all(&[("NO_PROXY", "10.1.2.3:443")]), "requests to 10.1.2.3"),
            (all(&[("NO_PROXY", "api.test.")]), "NO_PROXY has api.test.: requests to api.test"),
            (all(&[("NO_PROXY", "API.test.:443")]), "requests to api.test"),
            (all(&[("NO_PROXY", "a.intra b.intra")]), "commas alone"),
        ] {
            let found = found(&set);
            assert!(found.iter().any(|found| found.contains(words)), "{words}: {set:?}\n{found:#?}");
        }
        // Passwords are not printed.
        let secret = all(&[("HTTP_PROXY", "https://me:hunter2@127.0.0.1:3128")]);
        let current = |name: &str| secret.iter().find(|(set, _)| *set == name).map(|(_, value)| OsString::from(value));
        let said = format!("{:?}", findings(&config(), current));
        assert!(said.contains("https://127.0.0.1:3128") && !said.contains("hunter2"), "{said}");
    }
}
