//! The table of synonyms. Names are separated by spaces; the first matching row counts.

use super::Meaning::{self, Advice, Flag, Key};

const LEVEL: &str = "the level is a variable: ANDANTE_LOG=debug, or info, warn, error";

pub(super) const SYNONYMS: &[(&str, Meaning)] = &[
    (
        "port p l bind b address addr listen-address listen-addr listen-port bind-address bind-addr proxy-port http-port \
         listen-on interface host ip",
        Key("listen", "127.0.0.1:3128"),
    ),
    // For commands that only ask a running andante.
    ("port p address addr host", Key("admin", "127.0.0.1:9128")),
    (
        "rate rate-limit ratelimit rate-limits limit limits rps rpm qps tps max-rate max-rps requests-per-second \
         requests-per-minute per-second per-minute throttle max-requests host-limit",
        Key("limits", "500/min"),
    ),
    (
        "concurrency max-concurrency concurrent parallel parallelism max-connections connections max-in-flight inflight \
         in-flight max-inflight simultaneous maxconn",
        Key("in-flight", "20"),
    ),
    ("workers worker-threads cores cpus cpu jobs j num-threads", Key("threads", "4")),
    ("workers worker-threads jobs j num-threads", Flag("--parallel", "50")),
    (
        "allow allow-from allowed allowlist allow-list whitelist allowed-ips allowed-clients acl networks trusted client",
        Key("clients", "10.0.0.0/8"),
    ),
    ("mitm ssl-bump decrypt tls-intercept ssl-intercept ssl-inspection inspect", Key("intercept", "api.example.com")),
    (
        "ca cacert ca-cert ca-file ca-bundle cafile trusted-ca root-ca ca-certificate ca-certs extra-ca",
        Key("upstream-ca", "ca.pem"),
    ),
    ("data-dir datadir data-folder confdir work-dir", Key("data", "/var/lib/andante")),
    ("state-file state-dir db database persist persistence", Key("state", "/var/lib/andante/limits.redb")),
    ("redis redis-url valkey backend cluster storage store-url shared", Key("store", "redis://store.example:6379")),
    (
        "metrics metrics-addr metrics-address metrics-port admin-port admin-address admin-addr admin-listen status \
         prometheus stats management health dashboard ui web",
        Key("admin", "127.0.0.1:9128"),
    ),
    (
        "token auth auth-token token-file admin-token-file admin-password password secret admin-secret",
        Key("admin-token", "FILE"),
    ),
    (
        "log-file logfile access-log-file request-log access-logs accesslog",
        Key("access-log", "/var/log/andante/access.log"),
    ),
    (
        "otel opentelemetry otlp-endpoint otel-endpoint otel-exporter-otlp-endpoint collector tracing traces telemetry jaeger",
        Key("otlp", "http://collector.example:4318"),
    ),
    ("log-format logformat json format", Key("log", "json")),
    ("verbose v vv vvv debug d log-level loglevel level trace log-filter", Advice(LEVEL)),
    ("quiet q silent", Advice("only warnings are logged with the variable ANDANTE_LOG=warn")),
    (
        "insecure k no-verify skip-verify tls-skip-verify no-check-certificate ssl-verify verify",
        Advice("certificates are always verified; trust an API's own authority with upstream-ca: --upstream-ca ca.pem"),
    ),
    (
        "daemon daemonize background detach fork pid-file pidfile user group",
        Advice("andante stays in the foreground; a service manager starts it: deploy/andante.service"),
    ),
    ("version", Advice("write andante --version")),
    ("config-file c f conf file config-path cfg", Flag("--config", "andante.toml")),
    ("no-cache", Advice("nothing is cached unless a rule says so: cache = \"64MiB\"")),
    ("grace grace-period shutdown-timeout graceful-timeout drain-timeout stop-timeout shutdown", Key("drain", "30s")),
    ("max-delay queue-timeout wait wait-timeout deadline maxwait max-queue-time", Key("max-wait", "10m")),
    ("queue-size max-queue queue backlog queue-limit max-queued maxqueue", Key("max-waiting", "100000")),
    (
        "timeout read request response total server read-timeout request-timeout response-timeout write send \
         proxy-read-timeout upstream-timeout",
        Key("answer", "10m"),
    ),
    ("connection connect-timeout dial", Key("connect", "10s")),
    ("idle-timeout socket-timeout inactivity", Key("idle", "5m")),
    ("header headers header-timeout client", Key("head", "30s")),
    ("keepalive-timeout", Key("keep-alive", "10m")),
    ("retries max-retries retry-count attempts max-attempts max-tries tries", Key("retry", "{ tries = 3 }")),
    ("retries max-retries retry-count attempts max-attempts max-tries", Key("tries", "3")),
    ("no-retry no-retries noretry", Key("retry", "off")),
    ("circuit-breaker circuitbreaker", Key("breaker", "on")),
    ("caching cache-size", Key("cache", "64MiB")),
    ("weight priority priorities share shares", Key("weights", "live=10")),
    ("target upstream backend destination url uri base-url", Key("to", "https://api.example.com")),
    ("prefix route", Key("path", "/openai")),
    ("proxy upstream-proxy parent parent-proxy forward", Key("via", "http://corp.example:3128")),
    ("tls ssl connect-mode", Key("https", "intercept")),
    ("domain domains hostname server upstreams url uri base-url", Key("host", "api.example.com")),
    ("paths endpoint routes", Key("path", "/v1/*")),
    ("verb verbs methods", Key("method", "POST")),
    ("group-by by partition bucket budget", Key("key", "header:authorization")),
    ("provider vendor", Key("preset", "openai")),
    ("single-flight singleflight collapse", Key("coalesce", "true")),
    ("resolver nameserver nameservers dns-server dns-servers", Key("dns", "10.0.0.2")),
    ("ips ip-address addresses", Key("resolve", "10.0.0.5")),
    ("cert certificate", Key("client-cert", "client.pem")),
    ("private-key cert-key", Key("client-key", "client.key")),
    ("jitter safety headroom buffer slack", Key("margin", "20ms")),
    ("burst", Advice("write it behind its limit: limits = \"10/s burst 20\"")),
    ("window period interval per", Advice("write the window into the limit: limits = \"500/min\"")),
    ("api apis endpoint endpoints hosts limit targets services service servers", Key("rule", "")),
];
