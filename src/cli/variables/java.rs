//! Options for Java, which reads neither proxy variables nor PEM files. Each of its virtual machines reads options from
//! a variable. Pure.

use std::path::Path;

use ipnet::Ipv4Net;
use url::{Host, Url};

/// Variable with options that precede those of the command line.
pub(crate) const VARIABLE: &str = "JAVA_TOOL_OPTIONS";

/// Properties that andante sets; it replaces their earlier values in [`VARIABLE`].
const PROPERTIES: [&str; 7] = [
    "http.proxyHost",
    "http.proxyPort",
    "https.proxyHost",
    "https.proxyPort",
    "http.nonProxyHosts",
    "javax.net.ssl.trustStore",
    "javax.net.ssl.trustStoreType",
];

/// Options that lead Java to the proxy at `url`, and make it trust only the roots in `store`. `direct` has the hosts
/// without a proxy, in the form of [`direct`]; `current` are the present options.
pub(crate) fn options(url: &str, store: Option<&Path>, direct: Option<&str>, current: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let host = match url.host()? {
        Host::Ipv6(address) => address.to_string(),
        host => host.to_string(),
    };
    let port = url.port_or_known_default()?.to_string();
    let store = store.and_then(Path::to_str);
    let values =
        [Some(&*host), Some(&*port), Some(&*host), Some(&*port), direct, store, store.is_some().then_some("PKCS12")];
    let set = PROPERTIES.iter().zip(values).filter_map(|(name, value)| Some((name, value?)));
    let ours = |word: &str| set.clone().any(|(name, _)| word.starts_with(&format!("-D{name}=")));
    let theirs = words(current).into_iter().filter(|word| !ours(word)).map(str::to_owned);
    let options = theirs.chain(set.clone().map(|(name, value)| format!("-D{name}={}", quoted(value))));
    Some(options.collect::<Vec<_>>().join(" "))
}

/// The hosts of a `NO_PROXY` that Java can express: names including all names below, and IPv4 addresses and networks.
/// Loopback hosts are always included, unless the list is empty.
pub(crate) fn direct(no_proxy: &str) -> Option<String> {
    let mut patterns = Vec::new();
    let entries = no_proxy.split([',', ' ']).filter(|host| !host.is_empty());
    patterns.extend(entries.clone().filter_map(|entry| entry.parse().ok()).flat_map(network));
    for host in entries.filter(|host| !host.contains(['/', ':', '|'])) {
        let name = host.trim_start_matches('*').trim_start_matches('.');
        let below = name.parse::<std::net::IpAddr>().is_err().then(|| format!("*.{name}"));
        patterns.extend(if name.is_empty() { vec!["*".to_owned()] } else { vec![name.to_owned()] });
        patterns.extend(below.filter(|_| !name.is_empty()));
    }
    (!patterns.is_empty()).then(|| patterns.join("|"))
}

/// Patterns for a network, from its addresses' first bytes: Java's patterns may end with a star. A prefix within a byte
/// takes up to 128 patterns.
fn network(network: Ipv4Net) -> Vec<String> {
    let (whole, rest) = (usize::from(network.prefix_len()) / 8, network.prefix_len() % 8);
    let bytes = network.network().octets();
    let prefix: String = bytes[..whole].iter().map(|byte| format!("{byte}.")).collect();
    let pattern = |prefix: &str, known: usize| match known {
        4 => prefix.trim_end_matches('.').to_owned(),
        _ => format!("{prefix}*"),
    };
    if rest == 0 {
        return vec![pattern(&prefix, whole)];
    }
    let first = bytes[whole];
    let last = first | (0xff >> rest);
    (first..=last).map(|byte| pattern(&format!("{prefix}{byte}."), whole + 1)).collect()
}

/// Splits options like HotSpot: at blanks outside of quotes.
fn words(options: &str) -> Vec<&str> {
    let mut quote = None;
    let blank = |c: char| {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '"' || c == '\'' => quote = Some(c),
            _ => {}
        }
        quote.is_none() && c.is_ascii_whitespace()
    };
    options.split(blank).filter(|word| !word.is_empty()).collect()
}

/// Quotes a value. HotSpot knows no escapes, so a quote goes between quotes of the other kind.
fn quoted(value: &str) -> String {
    if !value.contains(|c: char| c.is_ascii_whitespace() || c == '"' || c == '\'') {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\'', "'\"'\"'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE: &str = "/t/bundle.p12";

    fn with(current: &str, direct: Option<&str>) -> String {
        options("http://127.0.0.1:3128", Some(Path::new(STORE)), direct, current).unwrap()
    }

    #[test]
    fn both_schemes_go_to_the_proxy_and_the_store_needs_no_password() {
        let proxy =
            "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=3128 -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=3128";
        let store = "-Djavax.net.ssl.trustStore=/t/bundle.p12 -Djavax.net.ssl.trustStoreType=PKCS12";
        assert_eq!(with("", None), format!("{proxy} {store}"));
        assert_eq!(with("", Some("")), format!("{proxy} -Dhttp.nonProxyHosts= {store}"));
        assert_eq!(options("http://127.0.0.1:3128", None, None, "").unwrap(), proxy);
    }

    #[test]
    fn a_proxy_may_be_an_ipv6_address_or_leave_its_port_out() {
        assert!(
            options("http://[::1]:8080", None, None, "")
                .unwrap()
                .starts_with("-Dhttp.proxyHost=::1 -Dhttp.proxyPort=8080 ")
        );
        assert!(
            options("http://gateway", None, None, "")
                .unwrap()
                .starts_with("-Dhttp.proxyHost=gateway -Dhttp.proxyPort=80 ")
        );
    }

    #[test]
    fn options_that_were_set_stay_and_ours_are_there_once() {
        let theirs = "-Xmx1g '-Dname=two words' -Dhttp.proxyHost=other -Djavax.net.ssl.trustStorePassword=secret";
        let once = with(theirs, None);
        assert!(
            once.starts_with("-Xmx1g '-Dname=two words' -Djavax.net.ssl.trustStorePassword=secret -Dhttp.proxyHost=1")
        );
        assert_eq!(with(&once, None), once);
    }

    #[test]
    fn a_path_is_quoted_as_hotspot_reads_it() {
        assert_eq!(quoted("/t/b.p12"), "/t/b.p12");
        assert_eq!(quoted("/my data/b.p12"), "'/my data/b.p12'");
        assert_eq!(quoted("/it's/b.p12"), "'/it'\"'\"'s/b.p12'");
        assert_eq!(words("-Da='/it'\"'\"'s b' -Db"), ["-Da='/it'\"'\"'s b'", "-Db"]);
    }

    #[test]
    fn hosts_without_a_proxy_are_named_as_java_names_them() {
        for (list, patterns) in [
            ("", None),
            ("10.0.0.0/8, [::1]", Some("10.*")),
            ("192.168.7.0/24,2001:db8::/32", Some("192.168.7.*")),
            ("172.16.0.0/14", Some("172.16.*|172.17.*|172.18.*|172.19.*")),
            ("10.0.0.4/31,10.1.2.3/32", Some("10.0.0.4|10.0.0.5|10.1.2.3")),
            ("0.0.0.0/0", Some("*")),
            ("intra.example", Some("intra.example|*.intra.example")),
            (".a.example,*.b.example, 10.0.0.7", Some("a.example|*.a.example|b.example|*.b.example|10.0.0.7")),
            ("*", Some("*")),
        ] {
            assert_eq!(direct(list).as_deref(), patterns, "{list}");
        }
    }
}
