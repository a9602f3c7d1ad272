//! Files of a CA in a folder: `ca-key.pem` holds the key and the certificate, `ca.pem` the certificate for all to read.
//!
//! The key file is created atomically and never replaces an existing one. So all processes that start at the same time
//! use the same CA.

use std::{
    ffi::OsString,
    fs::{self, File, Permissions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

use rcgen::{KeyPair, PublicKeyData as _};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject as _};
use tempfile::NamedTempFile;

use super::{
    CaError, Constraints,
    certificate::{CERTIFICATE, Certificate},
    params,
};

/// Name of the file with the key, of mode 0600.
pub const KEY: &str = "ca-key.pem";

/// Key and certificate of a CA, as stored in its folder.
pub(super) struct StoredCa {
    pub(super) key: KeyPair,
    pub(super) certificate: Certificate,
}

// === impl StoredCa ===

impl StoredCa {
    pub(super) fn generate(constraints: &Constraints, now: SystemTime) -> Result<Self, CaError> {
        let key = KeyPair::generate().map_err(CaError::Making)?;
        let signed = params::authority(&key, constraints, now)?.self_signed(&key).map_err(CaError::Making)?;
        let certificate = Certificate::from_der(signed.der().clone());
        Ok(Self { key, certificate: certificate.expect("a CA's certificate is one") })
    }

    pub(super) fn read(dir: &Path, now: SystemTime) -> Result<Self, CaError> {
        let path = dir.join(KEY);
        let wrong = |what: String| CaError::Malformed { path: path.clone(), what };
        let bytes = read_private(&path).map_err(|error| match error {
            CaError::Read { source, .. } => CaError::reading(dir, &path, source),
            other => other,
        })?;
        let key = PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
        let key = KeyPair::try_from(&key).map_err(|error| wrong(error.to_string()))?;
        let certificate = Certificate::parse(&bytes).map_err(wrong)?;
        if key.subject_public_key_info() != certificate.public_key() {
            return Err(wrong("its key and its certificate do not belong together".to_owned()));
        }
        if certificate.not_after() <= now {
            return Err(CaError::expired(certificate.not_after()));
        }
        Ok(Self { key, certificate })
    }

    /// Writes the key file with key and certificate. Fails with [`CaError::Exists`] if the file exists.
    pub(super) fn write(&self, dir: &Path) -> Result<(), CaError> {
        let path = dir.join(KEY);
        let failed = |source| CaError::Write { path: path.clone(), source };
        fs::create_dir_all(dir).map_err(|source| CaError::Write { path: dir.to_owned(), source })?;
        let text = format!("{}{}", self.key.serialize_pem(), self.certificate.pem());
        // `NamedTempFile` creates the file with mode 0600.
        let mut file = NamedTempFile::new_in(dir).map_err(failed)?;
        file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(failed)?;
        match file.persist_noclobber(&path) {
            Ok(_) => Ok(()),
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Err(CaError::Exists { path }),
            Err(error) => Err(failed(error.error)),
        }
    }

    /// Writes the certificate to `ca.pem`, unless the file holds it already.
    pub(super) fn publish(&self, dir: &Path) -> Result<(), CaError> {
        replace(&dir.join(CERTIFICATE), self.certificate.pem())
    }
}

/// Atomically replaces `path` by a file of mode 0644 with `content`. Does nothing if the file has that content already.
///
/// # Errors
/// If the file cannot be written.
pub fn replace(path: &Path, content: impl AsRef<[u8]>) -> Result<(), CaError> {
    let content = content.as_ref();
    if fs::read(path).is_ok_and(|found| found == content) {
        return Ok(());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let written = || -> io::Result<()> {
        let mut file = NamedTempFile::new_in(folder)?;
        file.write_all(content)?;
        // Regardless of the umask, because workers may run as other users.
        file.as_file().set_permissions(Permissions::from_mode(0o644))?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    };
    written().map_err(|source| CaError::Write { path: path.to_owned(), source })
}

/// Returns the default folder of a CA: `$XDG_DATA_HOME/andante`, or `~/.local/share/andante`.
pub fn default_dir(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // The XDG Base Directory Specification says to ignore relative paths.
    let folder = |name| variable(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    let data = folder("XDG_DATA_HOME").or_else(|| folder("HOME").map(|home| home.join(".local/share")));
    data.map(|data| data.join("andante"))
}

/// Reads a file. Fails with [`CaError::Exposed`] if it is open to users other than its owner.
fn read_private(path: &Path) -> Result<Vec<u8>, CaError> {
    let failed = |source| CaError::Read { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let us = rustix::process::geteuid().as_raw();
    if exposed(metadata.mode(), metadata.uid(), us) {
        return Err(CaError::Exposed { path: path.to_owned(), mode: metadata.mode() & 0o7777 });
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Returns whether a file of this `mode` is open to users other than its owner.
///
/// If root owns the file and we are not root, its group may read it: Kubernetes hands secrets to services in this way.
/// PostgreSQL has the same rule.
fn exposed(mode: u32, owner: u32, us: u32) -> bool {
    let forbidden = if owner == 0 && us != 0 { 0o037 } else { 0o077 };
    mode & forbidden != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_of_roots_may_be_open_to_a_group() {
        for (mode, owner, us, open) in [
            (0o100_600, 1000, 1000, false),
            (0o100_400, 0, 0, false),
            (0o100_640, 1000, 1000, true),
            (0o100_604, 1000, 1000, true),
            (0o100_640, 0, 0, true),
            (0o100_440, 0, 1000, false),
            (0o100_660, 0, 1000, true),
            (0o100_444, 0, 1000, true),
        ] {
            assert_eq!(exposed(mode, owner, us), open, "{mode:o} of {owner}, read by {us}");
        }
    }

    #[test]
    fn the_default_folder_is_where_data_belongs() {
        let with = |xdg: &'static str, home: &'static str| {
            let found = default_dir(|name| match name {
                "XDG_DATA_HOME" => (!xdg.is_empty()).then(|| xdg.into()),
                "HOME" => (!home.is_empty()).then(|| home.into()),
                _ => None,
            });
            found.map(|path| path.to_str().unwrap().to_owned())
        };
        assert_eq!(with("/data", "/home/a").as_deref(), Some("/data/andante"));
        assert_eq!(with("", "/home/a").as_deref(), Some("/home/a/.local/share/andante"));
        assert_eq!(with("relative", "/home/a").as_deref(), Some("/home/a/.local/share/andante"));
        assert_eq!(with("", ""), None);
    }
}
