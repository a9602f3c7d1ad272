//! URL of a collector, and endpoint of one signal.

use std::{fmt, str::FromStr};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use percent_encoding::percent_decode_str;
use url::Url;

use crate::policy::{Origin, Scheme};

/// The URL of a collector. Shown without its user name and password.
#[derive(Clone, PartialEq, Eq)]
pub struct OtlpUrl {
    origin: Origin,
    /// Path without its final slash; empty for the root.
    path: String,
    authorization: Option<HeaderValue>,
}

/// Endpoint of one signal. Shown without its fields.
#[derive(Clone, PartialEq)]
pub struct OtlpEndpoint {
    /// The collector.
    pub origin: Origin,
    /// Path, including its slash.
    pub path: String,
    /// Fields of each request, including credentials.
    pub headers: HeaderMap,
}

/// Default paths of SDKs for each signal: a URL with one of them still names the collector.
const SIGNAL_PATHS: [&str; 2] = ["/v1/traces", "/v1/metrics"];

// === impl OtlpUrl ===

impl OtlpUrl {
    /// Endpoint of a signal that has this `path` below the URL; `None` uses the URL unchanged.
    pub(super) fn endpoint(&self, path: Option<&str>) -> OtlpEndpoint {
        let path = match path {
            Some(path) => {
                let base = SIGNAL_PATHS.iter().find_map(|signal| self.path.strip_suffix(signal));
                format!("{}{path}", base.unwrap_or(&self.path))
            }
            None if self.path.is_empty() => "/".to_owned(),
            None => self.path.clone(),
        };
        let headers = self.authorization.iter().map(|value| (AUTHORIZATION, value.clone())).collect();
        OtlpEndpoint { origin: self.origin.clone(), path, headers }
    }
}

impl FromStr for OtlpUrl {
    /// Advice on the right form. Does not repeat the text, which may hold a password.
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const INSTEAD: &str = "write \"http://collector.example:4318\", or https:// for TLS";
        let url = Url::parse(text).map_err(|_| INSTEAD)?;
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(INSTEAD),
        };
        if url.query().is_some() || url.fragment().is_some() {
            return Err("write the URL without what follows ? or #; keys go into OTEL_EXPORTER_OTLP_HEADERS");
        }
        let host = url.host_str().ok_or(INSTEAD)?;
        let port = url.port_or_known_default();
        let origin = Origin::parse(scheme, host, port).map_err(|_| INSTEAD)?;
        let authorization = url.password().map(|password| basic(url.username(), password)).transpose()?;
        Ok(Self { origin, path: url.path().trim_end_matches('/').to_owned(), authorization })
    }
}

/// Field for a user name and a password in their percent-encoded form.
fn basic(user: &str, password: &str) -> Result<HeaderValue, &'static str> {
    let plain = |text| percent_decode_str(text).collect::<Vec<u8>>();
    let login = [plain(user), vec![b':'], plain(password)].concat();
    let mut value = HeaderValue::try_from(format!("Basic {}", BASE64_STANDARD.encode(login)))
        .map_err(|_| "write a user name and a password, or neither")?;
    value.set_sensitive(true);
    Ok(value)
}

impl fmt::Display for OtlpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let login = if self.authorization.is_some() { "…@" } else { "" };
        write!(f, "{}://{login}{}{}", self.origin.scheme.as_str(), self.origin, self.path)
    }
}

impl fmt::Debug for OtlpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// === impl OtlpEndpoint ===

impl OtlpEndpoint {
    /// The endpoint with these fields in addition to its own.
    pub(super) fn with_headers(mut self, headers: HeaderMap) -> Self {
        self.headers.extend(headers);
        self
    }
}

impl fmt::Display for OtlpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.origin.scheme.as_str(), self.origin, self.path)
    }
}

impl fmt::Debug for OtlpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
