//! What people are told of what goes wrong with a store.

use std::{error::Error, io, sync::Arc};

use redis::{Client, ConnectionAddr, ErrorKind, RedisError};

use super::super::LedgerError;

/// So much is shown of what a store says.
const SHOWN: usize = 120;

/// The beginning of what a store says, for people.
pub(super) fn shown(said: &[impl AsRef<str>]) -> String {
    let words = said.iter().flat_map(|word| word.as_ref().chars().chain([' ']));
    let shown: String = words.take(SHOWN).map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    shown.trim_end().to_owned()
}

/// What went wrong, without what was sent.
pub(super) fn failed(error: &RedisError) -> LedgerError {
    let detail = error.detail().unwrap_or_default();
    // Where in the script it happened is of no use to whoever runs the store.
    let detail = detail.split(" script: ").next().unwrap_or_default();
    LedgerError(match error.code() {
        _ if error.is_io_error() => error.to_string(),
        // Its own words are cut off before they say anything.
        Some("NOAUTH") => "NOAUTH: it asks for a password, and the URL has none".to_owned(),
        Some(code) if detail.contains("syntax error") => {
            format!("{}: it is older than Redis 7, which andante needs", shown(&[code, detail]))
        }
        Some(code) => shown(&[code, detail]),
        None if error.kind() == ErrorKind::Parse => format!("what answers is no Redis ({})", shown(&[detail])),
        None => shown(&[error.category(), detail]),
    })
}

/// No answer in time. A server without TLS waits for the end of a line in the greeting of TLS.
pub(super) fn silent(client: &Client, what: &str) -> LedgerError {
    let is_secure = matches!(client.get_connection_info().addr(), ConnectionAddr::TcpTls { .. });
    let words = if is_secure { format!("no TLS: {what}: is it spoken on this port?") } else { what.to_owned() };
    LedgerError(words)
}

/// Why there is no connection, and what can be done where that is for TLS.
pub(super) fn unconnected(error: &RedisError) -> LedgerError {
    let LedgerError(said) = failed(error);
    LedgerError(match tls_error(error) {
        Some(rustls::Error::InvalidCertificate(_)) => format!(
            "{said}: this machine's authorities are trusted, or else those in the file that SSL_CERT_FILE names, which has to \
             have the one of the store"
        ),
        Some(_) => format!("no TLS: {said}: is it spoken on this port?"),
        None => said,
    })
}

/// What went wrong with TLS, wherever that is inside of `error`.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(found) = error.downcast_ref() {
        return Some(found);
    }
    if let Some(shared) = error.downcast_ref::<Arc<dyn Error + Send + std::marker::Sync>>() {
        return tls_error(&**shared);
    }
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => tls_error(inner),
        None => error.source().and_then(tls_error),
    }
}
