//! Keys of a rule.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use ipnet::IpNet;

use super::{
    BREAKER, Fallback, Key, KeyEntry, RETRY, RULE_TIMEOUT, SPEND, Section, TRUST,
    entry::Form::{Number, One, OneOrList, Switch, Table, Words},
};
use crate::{
    config::value::{
        self, added, answers,
        preset::{self, Preset},
        turns, upstream,
    },
    limit::{InFlightLimit, Limits, MarginSpec},
    policy::{
        AssignedWeight, FlowOrder, HostPattern, Https, KeyPart, MaxCost, Parent, PathPattern, RefusedAnswer, Reserve,
        RuleCost, ShareLevel, UsageSource,
    },
};

pub(in crate::config) const NAME: Key<String> =
    Key::new("name", value::NAME, One("text, up to 200 bytes"), "name in metrics, logs and status; must be unique")
        .otherwise("the hosts as written");
pub(in crate::config) const HOST: Key<HostPattern> = Key::new(
    "host",
    value::HOST,
    OneOrList("host or list"),
    "`\"api.example.com\"`, `\"*.example.com\"`, `\"api.example.com:8443\"`, `\"*\"`",
);
pub(in crate::config) const RULE_PATH: Key<PathPattern> = Key::new(
    "path",
    added::PATH,
    One("path"),
    "only requests with a matching path: `{name}` matches one segment, `*` at the end matches the rest",
)
.otherwise("any");
pub(in crate::config) const METHOD: Key<Box<str>> =
    Key::new("method", added::METHOD, OneOrList("method or list"), "only requests with one of these methods")
        .otherwise("any");
pub(in crate::config) const HEADER: Key<Box<str>> =
    Key::new("header", added::HEADER, OneOrList("field or list"), "only requests that have all of these header fields")
        .otherwise("any");
pub(in crate::config) const KEY: Key<KeyPart> =
    Key::new("key", added::KEY, OneOrList("part or list"), "parts of a request that select one of the rule's budgets")
        .otherwise("the host");
pub(in crate::config) const ONLY: Key<bool> = Key::new(
    "only",
    value::BOOLEAN,
    Switch,
    "matching requests skip later rules and the limits of the host's own rule",
)
.default("false")
.purpose();
pub(in crate::config) const LIMITS: Key<Limits> =
    Key::new("limits", value::LIMITS, OneOrList("limits or list"), "limits of the API; all of them hold")
        .otherwise("none");
pub(in crate::config) const PRESET: Key<Preset> = Key::new(
    "preset",
    preset::PRESET,
    Words(&["openai", "anthropic", "github-graphql", "shopify"]),
    "provider of the API: its documented `limits` and `usage` hold where the rule sets none",
)
.otherwise("none");
pub(in crate::config) const COST: Key<RuleCost> = Key::new(
    "cost",
    value::COST,
    One("cost"),
    "cost of a request in each unit, unless the request states it (`Andante-Cost`)",
)
.otherwise("one request")
.purpose();
pub(in crate::config) const MAX_COST: Key<MaxCost> = Key::new(
    "max-cost",
    value::MAX_COST,
    Number("number of requests, or `UNIT=N, …`"),
    "highest cost that a request may state (`Andante-Cost`); more is refused",
)
.otherwise("a tenth of the smallest limit of the unit")
.purpose();
pub(in crate::config) const READ_BODY: Key<Option<usize>> = Key::new(
    "read-body",
    answers::READ_BODY,
    One("size or `\"off\"`"),
    "largest part of a request's JSON body that is read before its turn, for a `cost` that depends on the body",
)
.default("\"off\"");
pub(in crate::config) const USAGE: Key<UsageSource> = Key::new(
    "usage",
    value::USAGE,
    OneOrList("list of `UNIT=MEMBER`"),
    "where answers report the usage of a unit: a JSON member, or `header:NAME`",
)
.default("[]");
pub(in crate::config) const REFUSED: Key<RefusedAnswer> = Key::new(
    "refused",
    value::REFUSED,
    OneOrList("list of `PLACE = VALUE` or `PLACE ~ TEXT`"),
    "further answers to treat as refusals: by `status`, `header.NAME`, `body`, or a JSON member \
     such as `body.error.code`; `~` means contains",
)
.default("[]")
.purpose();
pub(in crate::config) const IN_FLIGHT: Key<InFlightLimit> = Key::new(
    "in-flight",
    value::IN_FLIGHT,
    Number("number from 1 or `\"auto\"`"),
    "upper bound of requests in flight; `\"auto\"` finds how many the API serves without queueing them",
)
.otherwise("no bound");
pub(in crate::config) const MAX_WAIT: Key<Duration> = Key::new(
    "max-wait",
    value::DURATION,
    One("duration"),
    "longest wait in the queue; a request that cannot be sent within it is refused at once",
)
.default("\"2h\"")
.purpose();
pub(in crate::config) const MAX_WAITING: Key<usize> =
    Key::new("max-waiting", value::WAITING, Number("number"), "upper bound of waiting requests, per budget")
        .default("100000")
        .purpose();
pub(in crate::config) const PATIENCE: Key<bool> = Key::new(
    "patience",
    answers::PATIENCE,
    Words(&["stated", "learn"]),
    "bound on the wait: `stated` uses what clients state, `learn` also the time after which clients keep leaving",
)
.default("\"stated\"")
.purpose();
pub(in crate::config) const URGENT: Key<IpNet> = Key::new(
    "urgent",
    value::NETWORK,
    OneOrList("network or list"),
    "clients that may mark requests as more urgent than usual (`Priority: u=0` to `u=2`)",
)
.otherwise("all clients");
pub(in crate::config) const URGENCY: Key<u8> = Key::new(
    "urgency",
    turns::URGENCY,
    Number("number from 0 to 7"),
    "urgency of requests that state none (`Priority`); 0 is first",
)
.otherwise("3; for some requests, that of the host's own rule")
.purpose();
pub(in crate::config) const SHARE_BY: Key<ShareLevel> = Key::new(
    "share-by",
    turns::SHARE_LEVEL,
    OneOrList("list of `\"client\"` and `\"flow\"`"),
    "levels that share the slots: clients, then the flows of each; or flows, then the clients of each",
)
.default("[\"client\", \"flow\"]");
pub(in crate::config) const FLOW_ORDER: Key<FlowOrder> = Key::new(
    "flow-order",
    turns::FLOW_ORDER,
    Words(&["fair", "first-come", "rank"]),
    "order of flows: `fair` shares the slots, `first-come` follows arrival, \
     `rank` follows the ranks stated in `Andante-Flow`",
)
.default("\"fair\"");
pub(in crate::config) const WEIGHTS: Key<AssignedWeight> = Key::new(
    "weights",
    value::SHARE,
    OneOrList("list of `NAME=WEIGHT`"),
    "flows (by name) and clients (by network) with more than the usual weight of 1",
)
.default("[]");
pub(in crate::config) const RESERVE: Key<Option<Reserve>> = Key::new(
    "reserve",
    answers::RESERVE,
    One("percentage from 0% to 90%, or `\"off\"`"),
    "part of each limit that is kept for requests of urgency 0 and 1",
)
.default("\"off\"");
pub(in crate::config) const CACHE: Key<Option<usize>> = Key::new(
    "cache",
    answers::CACHE,
    One("size or `\"off\"`"),
    "memory for cached answers, each used only for the credentials that requested it",
)
.default("\"off\"")
.purpose();
pub(in crate::config) const REVALIDATE: Key<bool> = Key::new(
    "revalidate",
    answers::REVALIDATE,
    Words(&["stale", "always"]),
    "stored answers to revalidate with the API before use",
)
.default("\"stale\"");
pub(in crate::config) const NOT_MODIFIED: Key<bool> = Key::new(
    "not-modified",
    answers::NOT_MODIFIED,
    Words(&["charged", "free"]),
    "whether the API charges for requests that it answers with 304; if not, each gives its slot back",
)
.default("\"charged\"")
.purpose();
pub(in crate::config) const COALESCE: Key<bool> = Key::new(
    "coalesce",
    value::BOOLEAN,
    Switch,
    "identical GET, HEAD and QUERY requests that wait or are in flight share one call, and its slot",
)
.default("false")
.purpose();
pub(in crate::config) const IDEMPOTENCY_KEYS: Key<Option<Duration>> = Key::new(
    "idempotency-keys",
    value::KEEP,
    One("duration or `\"off\"`"),
    "time for which the answer to a request with an `Idempotency-Key` is kept for others with the same key",
)
.default("\"off\"")
.purpose();
pub(in crate::config) const DEDUPLICATE: Key<Option<Duration>> = Key::new(
    "deduplicate",
    value::KEEP,
    One("duration or `\"off\"`"),
    "time within which requests with the same method, URL, fields and body share one call",
)
.default("\"off\"")
.purpose();
pub(in crate::config) const INCLUDE_USAGE: Key<bool> = Key::new(
    "include-usage",
    value::BOOLEAN,
    Switch,
    "asks for the usage of streams: `stream_options.include_usage` is added to bodies for paths that end in `/completions`",
)
.default("false")
.purpose();
const TIMEOUTS: KeyEntry = KeyEntry::new(
    "timeouts",
    Table(&RULE_TIMEOUT),
    "time-outs for the rule's hosts, instead of those of `[timeouts]`",
    Fallback::Prose("those of `[timeouts]`"),
);
pub(in crate::config) const MARGIN: Key<MarginSpec> = Key::new(
    "margin",
    value::MARGIN,
    One("duration or `\"auto\"`"),
    "reserve for network jitter on the way to the API",
)
.default("\"auto\"");
pub(in crate::config) const STRICT: Key<bool> =
    Key::new("strict", value::BOOLEAN, Switch, "makes all of the rule's limits strict").default("false");
pub(in crate::config) const ALLOW_PRIVATE: Key<bool> = Key::new(
    "allow-private",
    value::BOOLEAN,
    Switch,
    "allows private, loopback and link-local targets although andante listens beyond loopback",
)
.default("false")
.purpose();
pub(in crate::config) const HTTPS: Key<Https> =
    Key::new("https", upstream::HTTPS, Words(&["turns", "tunnel", "intercept", "refuse"]), "treatment of a CONNECT")
        .otherwise("see [HTTPS](#https)")
        .purpose();
pub(in crate::config) const UPSTREAM: Key<bool> = Key::new(
    "upstream",
    upstream::UPSTREAM,
    Words(&["https", "http"]),
    "`\"https\"` sends requests for `http://` URLs as HTTPS; `\"http\"` sends them unchanged",
)
.default("\"http\"")
.purpose();
pub(in crate::config) const VIA: Key<Option<Parent>> =
    Key::new("via", upstream::VIA, One("URL or `\"direct\"`"), "parent proxy").default("\"direct\"").purpose().secret();
pub(in crate::config) const VIA_FIELD: Key<bool> = Key::new(
    "via-field",
    upstream::VIA_FIELD,
    Words(&["on", "off"]),
    "whether requests and answers get a `Via` field (RFC 9110 §7.6.3); some servers do not compress answers to requests that have it",
)
.default("\"on\"")
.purpose();
pub(in crate::config) const RESOLVE: Key<IpAddr> = Key::new(
    "resolve",
    upstream::RESOLVE,
    OneOrList("address or list"),
    "addresses to connect to, instead of those that the name resolves to",
)
.default("[]")
.purpose();
pub(in crate::config) const SOURCE: Key<IpAddr> =
    Key::new("source", upstream::SOURCE, One("address"), "local address to connect from")
        .otherwise("the system's choice")
        .purpose();
pub(in crate::config) const SNI: Key<String> =
    Key::new("sni", upstream::SNI, One("host name"), "server name to send and to verify in TLS")
        .otherwise("the host's")
        .purpose();
pub(in crate::config) const CLIENT_CERT: Key<PathBuf> = Key::new(
    "client-cert",
    upstream::FILE,
    One("file"),
    "PEM file with the certificate and its chain, for APIs that require a client certificate",
)
.otherwise("none")
.purpose();
pub(in crate::config) const CLIENT_KEY: Key<PathBuf> =
    Key::new("client-key", upstream::FILE, One("file"), "PEM file with the key of `client-cert`, without a passphrase")
        .otherwise("the file of `client-cert`")
        .purpose();

/// The keys of a `[[rule]]`.
pub(in crate::config) const RULE: Section = Section {
    title: "a [[rule]]",
    keys: &[
        NAME.entry,
        HOST.entry,
        RULE_PATH.entry,
        METHOD.entry,
        HEADER.entry,
        KEY.entry,
        ONLY.entry,
        LIMITS.entry,
        PRESET.entry,
        COST.entry,
        MAX_COST.entry,
        READ_BODY.entry,
        USAGE.entry,
        INCLUDE_USAGE.entry,
        REFUSED.entry,
        IN_FLIGHT.entry,
        MAX_WAIT.entry,
        MAX_WAITING.entry,
        PATIENCE.entry,
        URGENT.entry,
        URGENCY.entry,
        SHARE_BY.entry,
        FLOW_ORDER.entry,
        WEIGHTS.entry,
        RESERVE.entry,
        CACHE.entry,
        REVALIDATE.entry,
        NOT_MODIFIED.entry,
        COALESCE.entry,
        IDEMPOTENCY_KEYS.entry,
        DEDUPLICATE.entry,
        MARGIN.entry,
        STRICT.entry,
        ALLOW_PRIVATE.entry,
        HTTPS.entry,
        UPSTREAM.entry,
        VIA.entry,
        VIA_FIELD.entry,
        RESOLVE.entry,
        SOURCE.entry,
        SNI.entry,
        CLIENT_CERT.entry,
        CLIENT_KEY.entry,
        SPEND.entry,
        TRUST.entry,
        RETRY.entry,
        BREAKER.entry,
        TIMEOUTS,
    ],
};
