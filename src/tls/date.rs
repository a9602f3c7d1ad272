//! Form of a time in messages about certificates.

use std::time::{Duration, UNIX_EPOCH};

use rustls::pki_types::UnixTime;

pub(super) fn date(at: UnixTime) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(at.as_secs())).to_string()
}
