//! Grammars of single values, shared by files, flags and the environment.

pub(super) mod added;
pub(super) mod answers;
mod fleet;
pub(super) mod gateway;
pub(super) mod grammar;
mod host;
pub(super) mod log_filter;
pub(super) mod otlp;
pub(super) mod preset;
pub(super) mod turns;
pub(super) mod upstream;

use std::{
    net::{IpAddr, SocketAddr},
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    time::Duration,
};

use ipnet::IpNet;

pub(super) use self::fleet::WhenDown;
use self::grammar::{Grammar, ParseHint};
use super::{
    duration,
    fleet::StoreUrl,
    model::{AccessLog, LogFormat, StatePlace},
};
use crate::{
    limit::{InFlightLimit, Limits, MarginSpec},
    policy::{
        self, AssignedWeight, BadNetwork, BadShare, ClientIdentity, HostPattern, MaxCost, RefusedAnswer, RuleCost,
        UsageSource,
    },
};

/// An entry of `clients`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientEntry {
    Any,
    Network(IpNet),
}

pub(super) const LISTEN: Grammar<SocketAddr> =
    Grammar { expected: "an address", example: "\"127.0.0.1:3128\"", read: |text| address(text, 3128) };
pub(super) const ADMIN: Grammar<Option<SocketAddr>> =
    Grammar { expected: "an address or \"off\"", example: "\"127.0.0.1:9128\" or \"off\"", read: admin };
pub(super) const THREADS: Grammar<Option<NonZeroUsize>> =
    Grammar { expected: "a number of threads or \"auto\"", example: "4 or \"auto\"", read: threads };
pub(super) const IDENTITY: Grammar<ClientIdentity> =
    Grammar { expected: "a definition of one client", example: "\"machine\" or \"address\"", read: identity };
pub(super) const LOG: Grammar<LogFormat> =
    Grammar { expected: "a log format", example: "\"text\" or \"json\"", read: log };
pub(super) const ACCESS_LOG: Grammar<Option<AccessLog>> = Grammar {
    expected: "\"stderr\", \"stdout\", the name of a file, or \"off\"",
    example: "\"stderr\" or \"/var/log/andante/access.log\"",
    read: access_log,
};
pub(super) const STATE: Grammar<StatePlace> = Grammar {
    expected: "the name of a file, or \"off\"",
    example: "\"/var/lib/andante/limits.redb\" or \"off\"",
    read: state,
};
pub(super) const STORE: Grammar<Option<StoreUrl>> = Grammar {
    expected: "the URL of a Redis or Valkey, or \"off\"",
    example: "\"redis://store.example:6379\", \"rediss://:PASSWORD@store.example:6380\" with TLS, \
              \"redis+sentinel://HOST:PORT,HOST:PORT/NAME\" or \"redis+cluster://HOST:PORT,HOST:PORT\"",
    read: fleet::store,
};
pub(super) const LEASE: Grammar<Duration> =
    Grammar { expected: "a duration from 1s to 10m", example: "\"10s\"", read: fleet::lease };
pub(super) const IN_FLIGHT_HOLD: Grammar<Duration> =
    Grammar { expected: "a duration from 1s to 1d", example: "\"5m\"", read: fleet::in_flight_hold };
pub(super) const FLEET_SIZE: Grammar<NonZeroU32> =
    Grammar { expected: "a whole number from 1", example: "3", read: fleet::size };
pub(super) const STORE_DOWN: Grammar<WhenDown> =
    Grammar { expected: "\"wait\", \"floor\" or \"open\"", example: "\"wait\"", read: fleet::store_down };
pub(super) const FLOOR: Grammar<u8> =
    Grammar { expected: "a percentage from 1% to 90%", example: "\"20%\"", read: fleet::floor };
pub(super) const CLIENT: Grammar<ClientEntry> =
    Grammar { expected: "a network or \"any\"", example: "\"10.0.0.0/8\"", read: client };
pub(super) const NETWORK: Grammar<IpNet> = Grammar { expected: "a network", example: "\"10.1.0.0/16\"", read: network };
pub(super) const SHARE: Grammar<AssignedWeight> = Grammar {
    expected: "NAME=WEIGHT, the weight from 1 to 65535",
    example: "\"live=10\" for a flow, or \"10.1.0.0/16=2\" for clients",
    read: share,
};
pub(super) const DURATION: Grammar<Duration> =
    Grammar { expected: "a duration", example: "\"30s\", \"20ms\" or \"1m30s\"", read: length };
pub(super) const TIMEOUT: Grammar<Duration> =
    Grammar { expected: "a duration above 0", example: "\"30s\"", read: timeout };
pub(super) const KEEP: Grammar<Option<Duration>> =
    Grammar { expected: "a duration above 0, or \"off\"", example: "\"10m\" or \"off\"", read: keep };
pub(super) const MARGIN: Grammar<MarginSpec> =
    Grammar { expected: "a duration or \"auto\"", example: "\"20ms\" or \"auto\"", read: margin };
pub(super) const HOST: Grammar<HostPattern> = Grammar {
    expected: "a host",
    example: "\"api.example.com\", \"*.example.com\", \"api.example.com:8443\" or \"*\"",
    read: host,
};
/// A host, or `none`.
pub(super) const INTERCEPT: Grammar<Option<HostPattern>> =
    Grammar { expected: HOST.expected, example: HOST.example, read: intercept };
pub(super) const LIMITS: Grammar<Limits> = Grammar { expected: "a limit", example: "\"500/min\"", read: limits };
pub(super) const COST: Grammar<RuleCost> = Grammar { expected: "a cost", example: "\"tokens=1200\"", read: cost };
pub(super) const MAX_COST: Grammar<MaxCost> =
    Grammar { expected: "a largest cost", example: "5 or \"tokens=9000\"", read: max_cost };
pub(super) const USAGE: Grammar<UsageSource> =
    Grammar { expected: "a source of usage", example: "\"output-tokens=completion_tokens\"", read: usage };
pub(super) const REFUSED: Grammar<RefusedAnswer> =
    Grammar { expected: "a condition for refusals", example: "\"body.error.code = TOO_MANY\"", read: refused };
pub(super) const LIMIT_OF_HOST: Grammar<(HostPattern, Limits)> =
    Grammar { expected: "HOST=LIMITS", example: "\"api.example.com=10/s,500/min\"", read: limit_of_host };
const SEVERAL_HOSTS: &str = "write each host by itself: separated by ; in ANDANTE_LIMIT, or with a --limit of its own";
pub(super) const IN_FLIGHT: Grammar<InFlightLimit> =
    Grammar { expected: "a whole number from 1, or \"auto\"", example: "20 or \"auto\"", read: in_flight };
pub(super) const WAITING: Grammar<usize> = Grammar { expected: "a whole number", example: "100000", read: plain };
/// A boolean without quotes, which the reader of tables parses.
pub(super) const BOOLEAN: Grammar<bool> =
    Grammar { expected: "true or false", example: "true or false, without quotes", read: boolean };
pub(super) const NAME: Grammar<String> = Grammar { expected: "a name", example: "\"search API\"", read: name };

/// Reads the address on which a command listens; `port` is the default.
///
/// # Errors
/// What is wrong with it, and what to write instead.
pub fn listen_address(text: &str, port: u16) -> Result<SocketAddr, String> {
    address(text.trim(), port).map_err(|wrong| {
        let hint = wrong.hint.map_or_else(|| format!("write 127.0.0.1:{port}"), |hint| hint.replace('"', ""));
        format!("{}; {hint}", LISTEN.unexpected(text))
    })
}

fn address(text: &str, port: u16) -> Result<SocketAddr, ParseHint> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let bare = text.split_once("://").map_or(text, |(_, rest)| rest).trim_end_matches('/');
    let meant = bare.parse::<SocketAddr>().ok().or_else(|| {
        let (host, port) = match bare.rsplit_once(':') {
            _ if bare.parse::<IpAddr>().is_ok() => (bare, port),
            Some((host, written)) => (host, written.parse().ok()?),
            None => match bare.parse() {
                Ok(written) => ("", written),
                Err(_) => (bare, port),
            },
        };
        let host = if matches!(host, "" | "localhost" | "*") { "127.0.0.1" } else { host };
        Some(SocketAddr::new(host.trim_matches(['[', ']']).parse().ok()?, port))
    });
    Err(meant.map_or_else(ParseHint::default, |meant| ParseHint::hint(format!("write \"{meant}\""))))
}

fn admin(text: &str) -> Result<Option<SocketAddr>, ParseHint> {
    if text == "off" { Ok(None) } else { address(text, 9128).map(Some) }
}

fn threads(text: &str) -> Result<Option<NonZeroUsize>, ParseHint> {
    if text == "auto" {
        return Ok(None);
    }
    match text.parse::<NonZeroUsize>() {
        Ok(count) if count.get() <= 1024 => Ok(Some(count)),
        Ok(_) => Err(ParseHint::hint("write at most 1024; more threads than cores gain nothing")),
        Err(_) => Err(ParseHint::default()),
    }
}

fn identity(text: &str) -> Result<ClientIdentity, ParseHint> {
    match text {
        "machine" => Ok(ClientIdentity::Machine),
        "address" => Ok(ClientIdentity::Address),
        _ => Err(ParseHint::default()),
    }
}

fn log(text: &str) -> Result<LogFormat, ParseHint> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        "trace" | "debug" | "info" | "warn" | "warning" | "error" | "verbose" | "quiet" => {
            Err(ParseHint::hint("write \"text\" or \"json\", the format; the level is a variable: ANDANTE_LOG=debug"))
        }
        _ => Err(ParseHint::default()),
    }
}

fn access_log(text: &str) -> Result<Option<AccessLog>, ParseHint> {
    match text {
        "off" => Ok(None),
        "stdout" => Ok(Some(AccessLog::Stdout)),
        "stderr" => Ok(Some(AccessLog::Stderr)),
        // A word that is meant as a switch must not become a file's name.
        "" | "on" | "true" | "json" | "text" => Err(ParseHint::default()),
        path => Ok(Some(AccessLog::File(PathBuf::from(path)))),
    }
}

fn state(text: &str) -> Result<StatePlace, ParseHint> {
    match text {
        "off" => Ok(StatePlace::Off),
        // A word that is meant as a switch must not become a file's name.
        "" | "on" | "true" | "false" | "none" | "auto" => Err(ParseHint::default()),
        path => Ok(StatePlace::At(PathBuf::from(path))),
    }
}

fn client(text: &str) -> Result<ClientEntry, ParseHint> {
    match text {
        "any" => Ok(ClientEntry::Any),
        "all" | "*" | "everyone" | "0.0.0.0" => {
            Err(ParseHint::hint("write \"any\" for everybody, or a network such as \"10.1.0.0/16\""))
        }
        _ => network(text).map(ClientEntry::Network),
    }
}

fn share(text: &str) -> Result<AssignedWeight, ParseHint> {
    text.parse().map_err(|wrong| match wrong {
        BadShare::Network(wrong) => ParseHint::said(wrong.to_string(), wrong.hint()),
        BadShare::Form | BadShare::Weight => ParseHint::default(),
    })
}

fn network(text: &str) -> Result<IpNet, ParseHint> {
    policy::network(text).map_err(|wrong| match wrong {
        BadNetwork::Form(_) => ParseHint::hint(wrong.hint()),
        BadNetwork::Beyond(_) => ParseHint::said(wrong.to_string(), wrong.hint()),
    })
}

fn length(text: &str) -> Result<Duration, ParseHint> {
    duration::parse(text).map_err(|said| match said.split_once("; ") {
        Some((_, hint)) => ParseHint::hint(hint),
        None => ParseHint::default(),
    })
}

fn timeout(text: &str) -> Result<Duration, ParseHint> {
    length(text).and_then(|length| if length.is_zero() { Err(ParseHint::default()) } else { Ok(length) })
}

fn keep(text: &str) -> Result<Option<Duration>, ParseHint> {
    if text == "off" { Ok(None) } else { timeout(text).map(Some) }
}

fn margin(text: &str) -> Result<MarginSpec, ParseHint> {
    if text == "auto" { Ok(MarginSpec::Auto) } else { length(text).map(MarginSpec::Fixed) }
}

fn intercept(text: &str) -> Result<Option<HostPattern>, ParseHint> {
    match text {
        "none" => Ok(None),
        "all" | "any" | "on" | "true" | "yes" => Err(ParseHint::hint("write \"*\" for all hosts")),
        "off" | "false" | "no" => Err(ParseHint::hint("write \"none\"")),
        _ => host(text).map(Some),
    }
}

fn host(text: &str) -> Result<HostPattern, ParseHint> {
    text.parse().map_err(|_| host::meant(text).map_or_else(ParseHint::default, ParseHint::hint))
}

fn limits(text: &str) -> Result<Limits, ParseHint> {
    text.parse::<Limits>()
        .map_err(|wrong| ParseHint { what: Some(wrong.to_string()), hint: Some(wrong.hint().to_owned()) })
}

fn limit_of_host(text: &str) -> Result<(HostPattern, Limits), ParseHint> {
    let (pattern, list) = text.split_once('=').ok_or_else(ParseHint::default)?;
    let (pattern, list) = (pattern.trim(), list.trim());
    let pattern = HOST.read(pattern).map_err(ParseHint::from)?;
    let limits = LIMITS.read(list).map_err(|wrong| {
        // Commas separate the limits of one host.
        let is_another_host = list.split([',', ';']).skip(1).any(|part| limit_of_host(part).is_ok());
        if is_another_host { ParseHint::said(wrong.what, SEVERAL_HOSTS) } else { wrong.into() }
    })?;
    Ok((pattern, limits))
}

fn cost(text: &str) -> Result<RuleCost, ParseHint> {
    text.parse().map_err(|hint: String| ParseHint::hint(hint))
}

fn max_cost(text: &str) -> Result<MaxCost, ParseHint> {
    text.parse().map_err(|hint: String| ParseHint::hint(hint))
}

fn usage(text: &str) -> Result<UsageSource, ParseHint> {
    text.parse().map_err(|hint: String| ParseHint::hint(hint))
}

fn refused(text: &str) -> Result<RefusedAnswer, ParseHint> {
    text.parse().map_err(|hint: String| ParseHint::hint(hint))
}

fn in_flight(text: &str) -> Result<InFlightLimit, ParseHint> {
    let hint = || ParseHint::hint("write at least 1, or leave it out: then nothing bounds it");
    if text == "auto" {
        return Ok(InFlightLimit::Auto);
    }
    if text.trim().eq_ignore_ascii_case("auto") {
        return Err(ParseHint::hint("write \"auto\""));
    }
    let wrong = |_| if text.trim_start_matches('0').is_empty() { hint() } else { ParseHint::default() };
    text.parse().map(InFlightLimit::Fixed).map_err(wrong)
}

fn plain(text: &str) -> Result<usize, ParseHint> {
    text.parse().map_err(|_| ParseHint::default())
}

fn boolean(text: &str) -> Result<bool, ParseHint> {
    text.parse().map_err(|_| ParseHint::default())
}

fn name(text: &str) -> Result<String, ParseHint> {
    // The name becomes a metric label and a field of every log line.
    if text.is_empty() || text.len() > 200 || text.chars().any(char::is_control) {
        return Err(ParseHint::hint("write 1 to 200 bytes, in one line"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint<T: std::fmt::Debug>(grammar: &Grammar<T>, text: &str) -> String {
        grammar.read(text).unwrap_err().hint
    }

    #[test]
    fn an_address_that_is_almost_one_is_completed() {
        for (text, meant) in [
            ("3128", "127.0.0.1:3128"),
            (":8080", "127.0.0.1:8080"),
            ("localhost:8080", "127.0.0.1:8080"),
            ("10.0.0.1", "10.0.0.1:3128"),
            ("::1", "[::1]:3128"),
            ("http://10.0.0.1:80/", "10.0.0.1:80"),
        ] {
            assert_eq!(hint(&LISTEN, text), format!("write \"{meant}\""), "{text}");
        }
        assert_eq!(hint(&LISTEN, "proxy.example:80"), "write \"127.0.0.1:3128\"");
        assert_eq!(hint(&ADMIN, "127.0.0.1"), "write \"127.0.0.1:9128\"");
        assert_eq!(ADMIN.read("off"), Ok(None));
    }

    #[test]
    fn auto_is_written_small() {
        assert_eq!(IN_FLIGHT.read("auto"), Ok(InFlightLimit::Auto));
        assert_eq!(hint(&IN_FLIGHT, "AUTO"), "write \"auto\"");
        assert_eq!(hint(&IN_FLIGHT, "many"), "write 20 or \"auto\"");
    }

    #[test]
    fn a_network_must_not_say_two_things() {
        assert_eq!(CLIENT.read("10.0.0.5"), Ok(ClientEntry::Network("10.0.0.5/32".parse().unwrap())));
        let both = hint(&CLIENT, "10.0.0.5/8");
        assert!(both.contains("\"10.0.0.0/8\"") && both.contains("\"10.0.0.5/32\""), "{both}");
        assert_eq!(hint(&SHARE, "10.0.0.5/8=2"), both);
        assert_eq!(SHARE.read("10.0.0.0/33=2").unwrap_err(), NETWORK.read("10.0.0.0/33").unwrap_err());
    }

    #[test]
    fn a_pasted_url_is_cut_down_to_its_host() {
        assert_eq!(hint(&HOST, "https://API.example.com:8443/?x"), "write \"api.example.com:8443\"");
        let with_path = "write \"api.example.com\"; a path is a key of its own: path = \"/v1/*\"";
        assert_eq!(hint(&HOST, "https://API.example.com/v1?x"), with_path, "a path is not dropped");
        assert!(hint(&HOST, "a b").contains("*.example.com"));
    }

    #[test]
    fn a_pasted_password_is_not_repeated() {
        for text in ["https://me:hunter2@a/", "me:hunter2@a", "http://me:hunter2/@x@a", "x@://me:hunter2@a"] {
            let wrong = HOST.read(text).unwrap_err();
            assert!(!format!("{wrong:?}").contains("hunter2") && wrong.what.contains("@a"), "{text}: {wrong:?}");
        }
        assert_eq!(LOG.read("xml").unwrap_err().what, "expected a log format, found \"xml\"");
    }

    #[test]
    fn a_limit_of_a_host_blames_the_part_that_is_wrong() {
        let what = |text: &str| LIMIT_OF_HOST.read(text).unwrap_err().what;
        assert_eq!(what("500/min"), "expected HOST=LIMITS, found \"500/min\"");
        assert_eq!(what("a b=500/min"), "expected a host, found \"a b\"");
        assert_eq!(what("a=10/s, 500 a min"), "expected a limit, found \"500 a min\"");
    }

    #[test]
    fn a_second_host_behind_a_comma_is_told_how_hosts_are_separated() {
        for text in ["a=1/s, b=2/s", "a=1/s,5/min,*.b.test:8443=2/s", "a=1/s,b=2/s,c=3/s"] {
            assert_eq!(hint(&LIMIT_OF_HOST, text), SEVERAL_HOSTS, "{text}");
        }
        assert_eq!(hint(&LIMIT_OF_HOST, "a=1/s, burst=20"), LIMITS.read("1/s, burst=20").unwrap_err().hint);
    }
}
