//! Messages about problems with a store.

use std::{error::Error, io, sync::Arc};

use redis::{Client, ConnectionAddr, ErrorKind, RedisError};

use super::super::LedgerError;

/// Characters of a store's message that are shown.
const SHOWN: usize = 120;

/// The beginning of a store's message, for people.
pub(super) fn shown(said: &[impl AsRef<str>]) -> String {
    let words = said.iter().flat_map(|word| word.as_ref().chars().chain([' ']));
    let shown: String = words.take(SHOWN).map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    shown.trim_end().to_owned()
}

/// Describes an error without the command that was sent.
pub(super) fn failed(error: &RedisError) -> LedgerError {
    let detail = error.detail().unwrap_or_default();
    // The position in the script does not help the operator of the store.
    let detail = detail.split(" script: ").next().unwrap_or_default();
    LedgerError(match error.code() {
        _ if error.is_io_error() => error.to_string(),
        // Redis' own message would be cut off before its point.
        Some("NOAUTH") => "NOAUTH: it asks for a password, and the URL has none".to_owned(),
        // `INFO` takes several sections from Redis 7 on.
        Some(_) if detail.contains("syntax error") => "it is older than Redis 7, which andante needs".to_owned(),
        Some(code) => shown(&[code, detail]),
        None if error.kind() == ErrorKind::Parse => format!("what answers is no Redis ({})", shown(&[detail])),
        None => shown(&[error.category(), detail]),
    })
}

/// Describes a missing answer to the first words on a connection. A server without TLS waits for the end of a line in the
/// greeting of TLS; one with TLS closes the connection of a client without it.
pub(super) fn silent(client: &Client, what: &str) -> LedgerError {
    let is_secure = matches!(client.get_connection_info().addr(), ConnectionAddr::TcpTls { .. });
    LedgerError(match is_secure {
        true => format!("no TLS: {what}: is it spoken on this port?"),
        false => format!("no answer: {what}: is TLS spoken on this port?"),
    })
}

/// Reason why there is no connection, with advice if TLS is the reason.
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

/// TLS error at any depth inside `error`.
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
