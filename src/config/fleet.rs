//! Sharing of budgets between several andantes: the store, and its terms.

use std::{fmt, num::NonZeroU32, str::FromStr, time::Duration};

use url::Url;

use crate::fleet::{Lease, StoreDown};

/// Settings for sharing budgets with other andantes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetConfig {
    /// Store of the fleet; `None` shares nothing.
    pub store: Option<StoreUrl>,
    /// Time for which a member may spend its tokens without an answer from the store.
    pub lease: Duration,
    /// Time after that for which the store withholds the member's part of in-flight limits from the others.
    pub in_flight_hold: Duration,
    /// Number of andantes among which unshared limits are divided.
    pub size: Option<NonZeroU32>,
    /// Behaviour once the store has not answered for the lease.
    pub down: StoreDown,
}

/// URL of a store. Shown without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    layout: StoreLayout,
    scheme: String,
    /// `USER:PASSWORD@`, or nothing.
    login: String,
    /// Hosts, each with its port if a port is required.
    hosts: Vec<String>,
    /// Name of the server for Sentinels.
    service: String,
    /// Text after the hosts, or after the service.
    tail: String,
}

/// Way of finding the server that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreLayout {
    /// There is one server.
    Single,
    /// Sentinels name it.
    Sentinel,
    /// Each server of a cluster names it.
    Cluster,
}

/// Schemes of URLs that lead to a server.
const SCHEMES: [&str; 4] = ["redis", "rediss", "valkey", "valkeys"];
/// Default port of Sentinels.
const SENTINEL_PORT: u16 = 26379;

// === impl FleetConfig ===

impl Default for FleetConfig {
    fn default() -> Self {
        let (lease, in_flight_hold) = (Duration::from_secs(10), Lease::HOLD);
        Self { store: None, lease, in_flight_hold, size: None, down: StoreDown::Wait }
    }
}

// === impl StoreUrl ===

impl StoreUrl {
    /// Way of finding the server that decides.
    pub fn layout(&self) -> StoreLayout {
        self.layout
    }

    /// The server, or the hosts that name the deciding one.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// Name of the server for Sentinels; empty without Sentinels.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// The URL of the server at `host`, a name with a port. Contains the password, so use it for the connection only.
    pub fn server(&self, host: &str) -> String {
        format!("{}://{}{host}{}", self.scheme, self.login, self.tail)
    }

    /// The URL of a Sentinel; it contains the password only if the Sentinel `asks` for one.
    pub fn sentinel(&self, host: &str, asks: bool) -> String {
        format!("{}://{}{host}", self.scheme, if asks { &self.login } else { "" })
    }
}

impl FromStr for StoreUrl {
    /// Advice on the right form.
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (scheme, rest) = text.split_once("://").ok_or(wrong::SCHEME)?;
        let (scheme, layout) = match scheme.split_once('+') {
            None => (scheme, StoreLayout::Single),
            Some((scheme, "sentinel")) => (scheme, StoreLayout::Sentinel),
            Some((scheme, "cluster")) => (scheme, StoreLayout::Cluster),
            Some(_) => return Err(wrong::LAYOUT),
        };
        if !SCHEMES.contains(&scheme) {
            return Err(wrong::SCHEME);
        }
        let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (login, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let (service, tail) = match layout {
            StoreLayout::Single => ("", tail),
            StoreLayout::Sentinel => {
                let path = tail.strip_prefix('/').ok_or(wrong::NO_NAME)?;
                path.split_at(path.find(['/', '?', '#']).unwrap_or(path.len()))
            }
            StoreLayout::Cluster => ("", tail.strip_prefix('/').unwrap_or(tail)),
        };
        match layout {
            StoreLayout::Single if hosts.contains(',') => return Err(wrong::SEVERAL),
            StoreLayout::Sentinel if service.is_empty() => return Err(wrong::NO_NAME),
            StoreLayout::Cluster if !(tail.is_empty() || tail.starts_with('?')) => return Err(wrong::CLUSTER),
            _ => {}
        }
        let hosts = match layout {
            StoreLayout::Single => vec![hosts.to_owned()],
            StoreLayout::Sentinel => hosts.split(',').map(|host| with_port(host, SENTINEL_PORT)).collect(),
            StoreLayout::Cluster => hosts.split(',').map(str::to_owned).collect(),
        };
        let [scheme, login, service, tail] = [scheme, login, service, tail].map(str::to_owned);
        let url = Self { layout, scheme, login, hosts, service, tail };
        url.hosts.iter().try_for_each(|host| url.check(host))?;
        Ok(url)
    }
}

/// Advice for texts that are no store's URL. No advice repeats the text, which may hold a password.
mod wrong {
    pub(super) const SCHEME: &str = "begin with redis:// or valkey://, or with TLS rediss:// or valkeys://, as in \
                                     \"redis://store.example:6379\"";
    pub(super) const LAYOUT: &str = "write redis+sentinel://HOST:PORT,HOST:PORT/NAME or \
                                     redis+cluster://HOST:PORT,HOST:PORT";
    pub(super) const NO_NAME: &str = "write behind the hosts what Sentinels call the server, as in \
                                      \"redis+sentinel://a.example:26379,b.example:26379/main\"";
    pub(super) const SEVERAL: &str = "one server has one host; several are redis+sentinel://HOST:PORT,HOST:PORT/NAME \
                                      or redis+cluster://HOST:PORT,HOST:PORT";
    pub(super) const CLUSTER: &str = "leave out what is behind the hosts: a cluster has no numbered databases";
    pub(super) const HOST: &str = "write a host, and behind a colon its port as a number, as in \
                                   \"redis://store.example:6379\"; in a password write %40 for @, %2F for /, %23 for # and \
                                   %3F for ?";
    pub(super) const DATABASE: &str = "write nothing behind the host but a slash and the number of a database, as in \
                                       \"redis://store.example:6379/1\"";
    // Clients of other kinds read `?password=`. Here it would be ignored, and the server would ask for a password.
    pub(super) const OPTIONS: &str = "leave out what is behind the question mark: it is not read; a password is written \
                                      before the host, as in \"redis://:PASSWORD@store.example:6379\", and in it %3F for ?";
}

impl StoreUrl {
    /// Returns an error if the URL does not lead to a server at `host`.
    fn check(&self, host: &str) -> Result<(), &'static str> {
        let url = Url::parse(&self.server(host)).ok().filter(|url| url.host().is_some()).ok_or(wrong::HOST)?;
        if url.query().is_some() {
            return Err(wrong::OPTIONS);
        }
        let plain = self.layout == StoreLayout::Single || url.fragment().is_none();
        let numbered = url.path().trim_matches('/').bytes().all(|byte| byte.is_ascii_digit());
        if plain && numbered { Ok(()) } else { Err(wrong::DATABASE) }
    }
}

/// `host` with its own port, or else with `port`.
fn with_port(host: &str, port: u16) -> String {
    let written = host.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    if written || host.is_empty() { host.to_owned() } else { format!("{host}:{port}") }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Hides possible secrets: the user, the password, and the text after a number sign.
        let (layout, slash) = match self.layout {
            StoreLayout::Single => ("", ""),
            StoreLayout::Sentinel => ("+sentinel", "/"),
            StoreLayout::Cluster => ("+cluster", ""),
        };
        let login = if self.login.is_empty() { "" } else { "…@" };
        let shown = self.tail.split('#').next().unwrap_or_default();
        write!(f, "{}{layout}://{login}{}{slash}{}{shown}", self.scheme, self.hosts.join(","), self.service)
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_shown_without_what_is_secret() {
        for (written, shown) in [
            ("redis://:hunter2@store.example:6380/1", "redis://…@store.example:6380/1"),
            ("rediss://app:hunter2@store.example", "rediss://…@store.example"),
        ] {
            let url: StoreUrl = written.parse().unwrap();
            assert_eq!((url.to_string(), format!("{url:?}")), (shown.to_owned(), shown.to_owned()));
            assert_eq!(url.server(&url.hosts()[0]), written);
        }
        for (written, instead) in [
            ("store.example:6379", wrong::SCHEME),
            ("http://store.example", wrong::SCHEME),
            ("redis//store.example", wrong::SCHEME),
            ("redis://", wrong::HOST),
            ("redis://a:x", wrong::HOST),
            ("redis://a/secret", wrong::DATABASE),
            ("redis://a?password=hunter2", wrong::OPTIONS),
            ("rediss://a:6380/1?password=hunter2&protocol=resp3", wrong::OPTIONS),
            ("redis://:hunter2?x@a", wrong::HOST),
        ] {
            assert_eq!(written.parse::<StoreUrl>(), Err(instead), "{written}");
        }
    }

    #[test]
    fn sentinels_and_clusters_have_several_hosts() {
        let url: StoreUrl = "rediss+sentinel://app:hunter2@s1:5000,s2,[::1]/main/3".parse().unwrap();
        assert_eq!(url.to_string(), "rediss+sentinel://…@s1:5000,s2:26379,[::1]:26379/main/3");
        assert_eq!((url.layout(), url.service()), (StoreLayout::Sentinel, "main"));
        assert_eq!(url.server("10.0.0.7:6379"), "rediss://app:hunter2@10.0.0.7:6379/3");
        let asked = [false, true].map(|asks| url.sentinel(&url.hosts()[2], asks));
        assert_eq!(asked, ["rediss://[::1]:26379", "rediss://app:hunter2@[::1]:26379"]);
        let url: StoreUrl = "redis+cluster://:hunter2@a:7000,b:7001".parse().unwrap();
        assert_eq!(url.to_string(), "redis+cluster://…@a:7000,b:7001");
        assert_eq!((url.layout(), url.server("c:7002")), (StoreLayout::Cluster, "redis://:hunter2@c:7002".to_owned()));
        for (written, instead) in [
            ("redis+sentinel://a:1,b:2", wrong::NO_NAME),
            ("redis+sentinel://a:1,b:2/", wrong::NO_NAME),
            ("redis+sentinel:///main", wrong::HOST),
            ("redis+sentinel://a,,b/main", wrong::HOST),
            ("redis+sentinel://a/main/one", wrong::DATABASE),
            ("redis+sentinel://a:x/main", wrong::HOST),
            ("redis+sentinel://a/main?password=hunter2", wrong::OPTIONS),
            ("redis+cluster://a:1,b:2?password=hunter2", wrong::OPTIONS),
            ("redis+cluster://a:1,b:2/?password=hunter2", wrong::OPTIONS),
            ("redis+cluster://a:1,b:2/1?password=hunter2", wrong::CLUSTER),
            ("redis+cluster://a:1,b:2/1", wrong::CLUSTER),
            ("redis+cluster://", wrong::HOST),
            ("redis+cloud://a", wrong::LAYOUT),
            ("redis://a:1,b:2", wrong::SEVERAL),
        ] {
            assert_eq!(written.parse::<StoreUrl>(), Err(instead), "{written}");
        }
    }
}
