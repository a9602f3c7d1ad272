//! The files that a configuration names. Reading the configuration does not open them, but `andante check` does.

use std::{fs, io, io::Read as _, path::PathBuf};

use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, pem, pem::PemObject as _};

use super::{
    authorities::{self, NO_AUTHORITY_HINT},
    diagnostic::{Diagnostic, Spanned},
    expiry::{EXPIRED_HINT, expired},
    token_file,
};

/// A configured file, and its expected content.
#[derive(Clone, Debug)]
pub(super) struct FileRef {
    file: Spanned<PathBuf>,
    holds: PemKind,
}

/// Expected content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PemKind {
    Certificates,
    /// Certificates that sign others.
    Authorities,
    RevocationLists,
    Key,
    /// The admin token, which is not in PEM.
    Token,
}

/// The largest file that is read: lists of revoked certificates grow to some tens of megabytes.
const MOST_BYTES: u64 = 64 * 1024 * 1024;

// === impl FileRef ===

impl FileRef {
    pub(super) fn new(file: Spanned<PathBuf>, holds: PemKind) -> Self {
        Self { file, holds }
    }

    /// References to all of `files`, which have the same kind of content.
    pub(super) fn all(files: Option<&[Spanned<PathBuf>]>, holds: PemKind) -> impl Iterator<Item = Self> {
        files.unwrap_or_default().iter().map(move |file| Self::new(file.clone(), holds))
    }

    /// Opens the file, and returns the problem with it. Never quotes its content.
    pub(super) fn look(&self) -> Option<Diagnostic> {
        if self.holds == PemKind::Token {
            return self.look_at_token();
        }
        let name = self.file.value.display();
        let bytes = match self.bytes() {
            Ok(bytes) => bytes,
            Err(error) => {
                let hint = "name a file that exists and that andante may read; in a configuration file, names are \
                            relative to its folder";
                return Some(Diagnostic::error(&self.file, format!("{name} cannot be read: {error}"), hint));
            }
        };
        let wrong = |what: String, hint: &str| Some(Diagnostic::error(&self.file, what, hint));
        match self.holds.count(&bytes) {
            Ok(0) => wrong(format!("{name} holds no {}", self.holds.noun()), self.holds.example()),
            Ok(_) if matches!(self.holds, PemKind::Certificates | PemKind::Authorities) => {
                let expired = expired(&bytes).and_then(|what| wrong(format!("{name}: {what}"), EXPIRED_HINT));
                let missing = || authorities::missing(&bytes).filter(|_| self.holds == PemKind::Authorities);
                let warn = |what: String| Diagnostic::warning(&self.file, format!("{name}: {what}"), NO_AUTHORITY_HINT);
                expired.or_else(|| missing().map(warn))
            }
            Ok(_) => None,
            Err(error) => wrong(format!("{name} is not good PEM: {error}"), self.holds.example()),
        }
    }

    fn look_at_token(&self) -> Option<Diagnostic> {
        if let Err(error) = token_file::read(&self.file.value) {
            return Some(Diagnostic::error(&self.file, error.to_string(), token_file::TOKEN_FILE_HINT));
        }
        let exposed = token_file::exposed(&self.file.value)?;
        Some(Diagnostic::warning(&self.file, exposed, "chmod 600, or 640 with a group of its own"))
    }

    fn bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        fs::File::open(&self.file.value)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "more than 64 MiB"));
        }
        Ok(bytes)
    }
}

// === impl PemKind ===

impl PemKind {
    /// Number of items of this kind in `bytes`.
    fn count(self, bytes: &[u8]) -> Result<usize, &'static str> {
        // As in `tls`: DER is a single item and begins a sequence. A key must be PEM.
        if self != Self::Key && bytes.first() == Some(&0x30) {
            return Ok(1);
        }
        match self {
            Self::Certificates | Self::Authorities => counted(CertificateDer::pem_slice_iter(bytes)),
            Self::RevocationLists => counted(CertificateRevocationListDer::pem_slice_iter(bytes)),
            Self::Key => counted(PrivateKeyDer::pem_slice_iter(bytes)),
            Self::Token => Ok(1),
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::Certificates | Self::Authorities => "certificate",
            Self::RevocationLists => "list of revoked certificates",
            Self::Key => "private key",
            Self::Token => "token",
        }
    }

    fn example(self) -> &'static str {
        match self {
            Self::Certificates | Self::Authorities => "name a PEM file: it has a line -----BEGIN CERTIFICATE-----",
            Self::RevocationLists => "name a PEM file: it has a line -----BEGIN X509 CRL-----",
            Self::Token => token_file::TOKEN_FILE_HINT,
            Self::Key => "name a PEM file without a passphrase: it has a line -----BEGIN PRIVATE KEY-----",
        }
    }
}

/// Counts items; errors leave out the quoted text, which may be part of a key.
fn counted<T>(items: impl Iterator<Item = Result<T, pem::Error>>) -> Result<usize, &'static str> {
    let mut count = 0;
    for item in items {
        item.map_err(|error| match error {
            pem::Error::MissingSectionEnd { .. } => "a section does not end",
            pem::Error::IllegalSectionStart { .. } => "a section does not begin as one should",
            pem::Error::Base64Decode(_) => "a section is not base64",
            _ => "it cannot be taken apart",
        })?;
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn look(holds: PemKind, text: &str) -> Option<String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let problem = FileRef::new(Spanned::default(file.path().to_owned()), holds).look()?;
        Some(problem.what.replace(file.path().to_str().unwrap(), "FILE"))
    }

    fn section(kind: &str) -> String {
        format!("-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----\n")
    }

    #[test]
    fn a_file_holds_what_it_is_named_for() {
        let [certificate, list, key] = ["CERTIFICATE", "X509 CRL", "PRIVATE KEY"].map(section);
        assert_eq!(look(PemKind::Certificates, &format!("{key}{certificate}")), None);
        assert_eq!(look(PemKind::RevocationLists, &list), None);
        assert_eq!(look(PemKind::Key, &format!("{certificate}{key}")), None);
        assert_eq!(look(PemKind::Key, &certificate).unwrap(), "FILE holds no private key");
        assert_eq!(look(PemKind::Certificates, "").unwrap(), "FILE holds no certificate");
    }

    #[test]
    fn certificates_and_lists_may_be_der() {
        let der = "0\u{3}\u{2}\u{1}\u{1}";
        assert_eq!(look(PemKind::Certificates, der), None);
        assert_eq!(look(PemKind::RevocationLists, der), None);
        assert_eq!(look(PemKind::Key, der).unwrap(), "FILE holds no private key");
    }

    #[test]
    fn a_broken_file_is_not_quoted() {
        for text in [
            "-----BEGIN PRIVATE KEY-----\nhunter2",
            "-----BEGIN PRIVATE KEY-----\n!hunter2!\n-----END PRIVATE KEY-----",
        ] {
            let said = look(PemKind::Key, text).unwrap();
            assert!(said.starts_with("FILE is not good PEM: a section") && !said.contains("hunter2"), "{said}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_says_why() {
        let missing = FileRef::new(Spanned::default("no/such.pem".into()), PemKind::Key).look().unwrap();
        assert!(missing.is_error() && missing.what.starts_with("no/such.pem cannot be read: "), "{missing}");
        assert!(FileRef::new(Spanned::default("/".into()), PemKind::Key).look().is_some());
    }
}
