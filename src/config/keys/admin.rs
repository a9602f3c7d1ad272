//! Keys for operators: the admin address, the token for changes, and the destination of traces and
//! metrics.

use std::{net::SocketAddr, path::PathBuf};

use super::{Key, entry::Form::One};
use crate::config::{
    otlp::OtlpUrl,
    value::{self, otlp, upstream},
};

pub(in crate::config) const ADMIN: Key<Option<SocketAddr>> = Key::new(
    "admin",
    value::ADMIN,
    One("address or `\"off\"`"),
    "the live page, `/metrics`, `/status`, `/healthz`, `/readyz`; no password, so keep it on loopback",
)
.default("\"127.0.0.1:9128\"")
.flag("--admin", "ANDANTE_ADMIN", Some("127.0.0.1:9128"));
pub(in crate::config) const ADMIN_TOKEN: Key<PathBuf> = Key::new(
    "admin-token",
    upstream::FILE,
    One("file"),
    "file with the token, at least 16 characters, that the admin API requires for changes and, beyond \
     loopback, for reads of `/api/v1`; without it both are refused",
)
.otherwise("no changes")
.flag("--admin-token", "ANDANTE_ADMIN_TOKEN", None)
.secret();
pub(in crate::config) const OTLP: Key<Option<OtlpUrl>> = Key::new(
    "otlp",
    otlp::OTLP,
    One("URL of an OpenTelemetry collector, or `\"off\"`"),
    "endpoint to which traces and metrics are exported by OTLP over HTTP; OpenTelemetry's own variables set the rest",
)
.otherwise("`OTEL_EXPORTER_OTLP_ENDPOINT`, else off")
.flag("--otlp", "ANDANTE_OTLP", None)
.secret();
