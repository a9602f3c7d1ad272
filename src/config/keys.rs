//! Every key of the configuration, one row each: its grammar, default and meaning, with its flag and variable.
//!
//! The reader takes the keys and the guesses for mistyped ones from this table, and the JSON schema is made of it.
//! Tests compare it with the commands' help, `docs/configuration.md` and `config/full.toml`.

mod admin;
mod entry;
mod fleet;
mod rule;

use std::{
    net::SocketAddr,
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

pub(super) use self::admin::{ADMIN, ADMIN_TOKEN, OTLP};
use self::entry::Form::{Number, One, OneOrList, OneOrTable, Table, Tables, Words};
pub(super) use self::entry::Key;
pub use self::entry::{Fallback, Flag, Form, KeyEntry, Section};
pub(super) use self::fleet::{FLEET_SIZE, FLOOR, IN_FLIGHT_HOLD, LEASE, STORE, STORE_DOWN};
pub(super) use self::rule::{
    ALLOW_PRIVATE, CACHE, CLIENT_CERT, CLIENT_KEY, COALESCE, COST, DEDUPLICATE, FLOW_ORDER, HEADER, HOST, HTTPS,
    IDEMPOTENCY_KEYS, IN_FLIGHT, INCLUDE_USAGE, KEY, LIMITS, MARGIN, MAX_COST, MAX_WAIT, MAX_WAITING, METHOD, NAME,
    NOT_MODIFIED, ONLY, PATIENCE, PRESET, READ_BODY, REFUSED, RESERVE, RESOLVE, REVALIDATE, RULE, RULE_PATH, SHARE_BY,
    SNI, SOURCE, STRICT, UPSTREAM, URGENCY, URGENT, USAGE, VIA, VIA_FIELD, WEIGHTS,
};
use super::{
    model::{AccessLog, LogFormat, StatePlace},
    value::{
        self, ClientEntry, answers,
        gateway::{self, GatewayTarget},
        upstream::{self, Resolver},
    },
};
use crate::{
    limit::Limits,
    policy::{ClientIdentity, HostPattern, Spend, Trust},
};

const LIST: &[char] = &[',', ';', '\n'];
/// Separators of limits, which contain commas themselves.
const LIST_OF_LIMITS: &[char] = &[';', '\n'];
const ON_OFF: &[&str] = &["on", "off"];

pub(super) const LISTEN: Key<SocketAddr> = Key::new(
    "listen",
    value::LISTEN,
    OneOrList("address or list"),
    "address on which workers connect; port 0 picks a free one",
)
.default("[\"127.0.0.1:3128\"]")
.flags("--listen", "ANDANTE_LISTEN", LIST, Some("127.0.0.1:3128"));
pub(super) const THREADS: Key<Option<NonZeroUsize>> = Key::new(
    "threads",
    value::THREADS,
    Number("number or `\"auto\"`"),
    "runtime threads; `\"auto\"` is one per core, at most 4",
)
.default("\"auto\"")
.flag("--threads", "ANDANTE_THREADS", Some("auto"));
pub(super) const MAX_MEMORY: Key<Option<u64>> = Key::new(
    "max-memory",
    answers::MAX_MEMORY,
    One("size or `\"auto\"`"),
    "upper bound of andante's memory; `\"auto\"` is 75% of the control group's limit or half of the machine's memory, \
     whichever is less",
)
.default("\"auto\"")
.flag("--max-memory", "ANDANTE_MAX_MEMORY", Some("auto"));
pub(super) const IDENTITY: Key<ClientIdentity> = Key::new(
    "identity",
    value::IDENTITY,
    Words(&["machine", "address"]),
    "addresses that count as one client: `machine` is all loopback addresses together, an IPv4 address, or an IPv6 /64; \
     `address` is each address",
)
.default("\"machine\"");
pub(super) const LOG: Key<LogFormat> =
    Key::new("log", value::LOG, Words(&["text", "json"]), "format of the log on standard error")
        .default("\"text\"")
        .flag("--log", "ANDANTE_LOG_FORMAT", Some("text"));
pub(super) const ACCESS_LOG: Key<Option<AccessLog>> = Key::new(
    "access-log",
    value::ACCESS_LOG,
    One("file, `\"stderr\"`, `\"stdout\"` or `\"off\"`"),
    "destination of the access log: one line per request, in the format of `log`",
)
.default("\"off\"")
.flag("--access-log", "ANDANTE_ACCESS_LOG", Some("off"));
pub(super) const CLIENTS: Key<ClientEntry> = Key::new(
    "clients",
    value::CLIENT,
    OneOrList("list of networks, or `[\"any\"]`"),
    "networks that may use the proxy besides this machine; required for listening beyond loopback",
)
.default("[]")
.flags("--clients", "ANDANTE_CLIENTS", LIST, None);
pub(super) const DRAIN: Key<Duration> =
    Key::new("drain", value::DURATION, One("duration"), "time in which requests may finish after SIGTERM")
        .default("\"2m\"");
pub(super) const INTERCEPT: Key<Option<HostPattern>> = Key::new(
    "intercept",
    value::INTERCEPT,
    OneOrList("host or list, or `\"none\"`"),
    "hosts whose HTTPS is intercepted",
)
.default("[]")
.flags("--intercept", "ANDANTE_INTERCEPT", LIST, Some("none"));
pub(super) const UPSTREAM_CA: Key<PathBuf> = Key::new(
    "upstream-ca",
    upstream::FILE,
    OneOrList("file or list"),
    "PEM files with certificate authorities to verify APIs by, besides the system's",
)
.default("[]")
.flags("--upstream-ca", "ANDANTE_UPSTREAM_CA", LIST, None);
pub(super) const UPSTREAM_CRL: Key<PathBuf> =
    Key::new("upstream-crl", upstream::FILE, OneOrList("file or list"), "PEM files with certificate revocation lists")
        .default("[]");
pub(super) const DNS: Key<Resolver> =
    Key::new("dns", upstream::DNS, OneOrList("`\"cached\"`, `\"system\"`, server or list"), "resolver of host names")
        .default("\"cached\"");
pub(super) const DATA: Key<PathBuf> = Key::new("data", upstream::FOLDER, One("folder"), "folder for andante's own CA")
    .otherwise("the user's own")
    .flag("--data", "ANDANTE_DATA", None);

pub(super) const STATE: Key<StatePlace> = Key::new(
    "state",
    value::STATE,
    One("file or `\"off\"`"),
    "file in which usage and learned limits outlast a restart",
)
.otherwise("the user's own")
.flag("--state", "ANDANTE_STATE", None);

pub(super) const SPEND: Key<Spend> = Key::new(
    "spend",
    answers::SPEND,
    Words(&["mostly", "even", "greedy"]),
    "how to spend a quota that the API reports: `mostly` (freely until 10% is left, then evenly), `even`, or `greedy`",
)
.default("\"mostly\"")
.flag("--spend", "ANDANTE_SPEND", Some("mostly"))
.purpose();
pub(super) const TRUST: Key<Trust> = Key::new(
    "trust",
    answers::TRUST,
    Words(&["waits", "stricter", "api"]),
    "how far andante trusts the limits that the API reports",
)
.default("\"stricter\"")
.flag("--trust", "ANDANTE_TRUST", Some("stricter"))
.purpose();
/// The word; as a table `retry` has keys of its own.
pub(super) const RETRY: Key<bool> = Key::new(
    "retry",
    answers::RETRY,
    OneOrTable(ON_OFF, &RETRY_TABLE),
    "whether requests are sent again after failures that permit it",
)
.default("{ body = \"1MiB\" }")
.flag("--retry", "ANDANTE_RETRY", Some("on"))
.purpose();
pub(super) const BREAKER: Key<bool> = Key::new(
    "breaker",
    answers::BREAKER,
    Words(ON_OFF),
    "circuit breaker: whether requests to an API that keeps failing are paused for a while",
)
.default("\"on\"")
.flag("--breaker", "ANDANTE_BREAKER", Some("on"))
.purpose();
pub(super) const BODY: Key<u64> =
    Key::new("body", answers::BODY, Number("size"), "largest request body that is kept for a retry")
        .default("\"1MiB\"");
pub(super) const TRIES: Key<NonZeroU32> = Key::new(
    "tries",
    answers::TRIES,
    Number("number from 1 to 100"),
    "upper bound of attempts per request, the first included",
)
.otherwise("five after failures; after refusals, until the request's wait is over");

pub(super) const CONNECT: Key<Duration> = Key::timeout("connect", "resolving and connecting to an API", "\"10s\"");
pub(super) const ANSWER: Key<Duration> =
    Key::timeout("answer", "from a request's last byte to the answer's head", "\"10m\"");
pub(super) const IDLE: Key<Duration> = Key::timeout(
    "idle",
    "silence within a body, in either direction; in a blind tunnel the longer of `idle` and `answer` \
     (`idle` alone until the first byte)",
    "\"5m\"",
);
pub(super) const HEAD: Key<Duration> =
    Key::timeout("head", "from the first byte of a request's head to its last", "\"30s\"");
pub(super) const KEEP_ALIVE: Key<Duration> =
    Key::timeout("keep-alive", "a worker's connection without a request", "\"10m\"");
pub(super) const UPSTREAM_KEEP_ALIVE: Key<Duration> =
    Key::timeout("upstream-keep-alive", "an unused connection to an API", "\"1m\"");
pub(super) const UPSTREAM_MAX_AGE: Key<Duration> =
    Key::timeout("upstream-max-age", "the age at which a reused connection to an API is replaced", "\"1h\"");

pub(super) const RULE_CONNECT: Key<Duration> = CONNECT.in_rule();
pub(super) const RULE_ANSWER: Key<Duration> = ANSWER.in_rule();
pub(super) const RULE_IDLE: Key<Duration> = IDLE.in_rule();

pub(super) const PATH: Key<Arc<str>> =
    Key::new("path", gateway::PATH, One("path"), "prefix of requests' paths; it is removed");
pub(super) const TO: Key<GatewayTarget> = Key::new(
    "to",
    gateway::TO,
    One("URL"),
    "URL of the API; its path, as in `https://api.example.com/v1`, goes before the rest of a request's path",
);

/// A table's keys have grammars, but the table has none. The flag gives a host its limits.
pub(super) const RULES: Key<(HostPattern, Limits)> = Key::new(
    "rule",
    value::LIMIT_OF_HOST,
    Tables(&RULE),
    "one per policy; each host that matches has a budget of its own",
)
.otherwise("none")
.flags("--limit", "ANDANTE_LIMIT", LIST_OF_LIMITS, None);
const TIMEOUTS: KeyEntry = KeyEntry::new(
    "timeouts",
    Table(&TIMEOUT),
    "time-outs of connections, requests and bodies",
    Fallback::Prose("as below"),
);
const GATEWAYS: KeyEntry = KeyEntry::new(
    "gateway",
    Tables(&GATEWAY),
    "one per API, for clients that take a base URL",
    Fallback::Prose("none"),
);

/// The keys outside of any table.
pub(super) const TOP: Section = Section {
    title: "the first table",
    keys: &[
        LISTEN.entry,
        ADMIN.entry,
        ADMIN_TOKEN.entry,
        THREADS.entry,
        MAX_MEMORY.entry,
        LOG.entry,
        ACCESS_LOG.entry,
        OTLP.entry,
        CLIENTS.entry,
        IDENTITY.entry,
        DRAIN.entry,
        INTERCEPT.entry,
        UPSTREAM_CA.entry,
        UPSTREAM_CRL.entry,
        DNS.entry,
        DATA.entry,
        STATE.entry,
        STORE.entry,
        LEASE.entry,
        IN_FLIGHT_HOLD.entry,
        FLEET_SIZE.entry,
        STORE_DOWN.entry,
        FLOOR.entry,
        SPEND.entry,
        TRUST.entry,
        RETRY.entry,
        BREAKER.entry,
        TIMEOUTS,
        GATEWAYS,
        RULES.entry,
    ],
};
/// The keys of `[timeouts]`.
pub(super) const TIMEOUT: Section = Section {
    title: "[timeouts]",
    keys: &[
        CONNECT.entry,
        ANSWER.entry,
        IDLE.entry,
        HEAD.entry,
        KEEP_ALIVE.entry,
        UPSTREAM_KEEP_ALIVE.entry,
        UPSTREAM_MAX_AGE.entry,
    ],
};
/// The keys of a `[[gateway]]`.
pub(super) const GATEWAY: Section = Section { title: "a [[gateway]]", keys: &[PATH.entry, TO.entry] };
/// The keys of a rule's `timeouts`.
pub(super) const RULE_TIMEOUT: Section =
    Section { title: "timeouts", keys: &[RULE_CONNECT.entry, RULE_ANSWER.entry, RULE_IDLE.entry] };
/// The keys of `retry`, if it is a table.
pub(super) const RETRY_TABLE: Section = Section { title: "retry", keys: &[BODY.entry, TRIES.entry] };

/// The tables of a file, the outermost last: a missing key that several tables know is reported for the first of them.
pub const SECTIONS: [&Section; 4] = [&TIMEOUT, &RULE, &GATEWAY, &TOP];

/// The keys that have a flag and a variable.
pub fn with_flags() -> impl Iterator<Item = (&'static KeyEntry, Flag)> {
    TOP.keys.iter().filter_map(|entry| Some((entry, entry.flag?)))
}
