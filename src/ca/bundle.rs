//! Root certificates and our CA in one file, for clients that accept one file only.
//!
//! The head of a PEM bundle lists its sources. If an environment variable names a bundle of ours, andante reads the
//! sources again, not the bundle. So a root that was removed from a source disappears from the bundle too.

use std::{
    collections::BTreeSet,
    env,
    fmt::Write as _,
    fs,
    path::{self, Path, PathBuf},
};

use rustls::{RootCertStore, pki_types::CertificateDer};
use rustls_native_certs::{load_certs_from_paths, load_native_certs};

use super::{CaError, Certificate, certificate::encode, digest::sha256, pkcs12};

/// Certificates of our CA, of the system's roots and of further files, as far as they can be read.
#[derive(Debug)]
pub struct Bundle {
    ours: Vec<u8>,
    /// Roots besides our CA (DER), sorted and without duplicates, so that equal roots give equal files.
    others: BTreeSet<Vec<u8>>,
    /// Sources besides the system's roots.
    also: Vec<PathBuf>,
}

/// First line of each bundle, by which andante recognises its own.
const MARK: &str = "# Root certificates of this system and the CA of andante (`andante ca bundle`).\n";
/// Prefix of the head lines that name the sources besides the system's roots.
const ALSO: &str = "# With those of: ";

/// Files with the system's roots, in the order tried: Debian, Alpine and Arch; Fedora; SUSE; BSDs and macOS.
const SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Folders with the system's roots, one file per root.
const SYSTEM_FOLDERS: [&str; 2] = ["/etc/ssl/certs", "/etc/pki/tls/certs"];

// === impl Bundle ===

impl Bundle {
    /// Reads the system's roots and the files and folders `also`.
    ///
    /// Leaves out certificates that rustls cannot read as a trust anchor, because one of them makes some clients refuse
    /// the whole file.
    ///
    /// # Errors
    /// If no root is found besides our CA.
    pub fn gather(ca: &Certificate, also: &[PathBuf]) -> Result<Self, CaError> {
        let found = system().into_iter().chain(also.iter().flat_map(|path| certificates(path)));
        let usable = found.filter(|root| RootCertStore::empty().add(root.clone()).is_ok());
        let mut others: BTreeSet<Vec<u8>> = usable.map(|root| root.to_vec()).collect();
        let ours = ca.der().to_vec();
        others.remove(&ours);
        if others.is_empty() {
            return Err(CaError::NoRoots);
        }
        Ok(Self { ours, others, also: also.to_vec() })
    }

    /// Returns the text of a PEM file: the head, our CA and all other roots.
    pub fn pem(&self) -> String {
        let mut text = MARK.to_owned();
        for path in &self.also {
            let _ = writeln!(text, "{ALSO}{}", path.display());
        }
        self.roots().for_each(|root| text.push_str(&encode(root)));
        text
    }

    /// Returns all roots except our CA as PEM: the roots that a client of this bundle trusted before.
    pub fn others(&self) -> String {
        self.others.iter().map(|root| encode(root)).collect()
    }

    /// Returns a PKCS #12 store for Java, which opens without a password.
    pub fn pkcs12(&self) -> Vec<u8> {
        let alias = |n| if n == 0 { "andante".to_owned() } else { format!("root {n}") };
        pkcs12::store(self.roots().enumerate().map(|(n, root)| (alias(n), root)))
    }

    /// Iterates over all roots, our CA first.
    fn roots(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&self.ours).chain(&self.others).map(Vec::as_slice)
    }
}

/// Returns the file name of a bundle with the sources `also`.
///
/// Each list of sources has its own name. So a run from a shell with other variables does not overwrite the bundle.
pub fn bundle_name(also: &[PathBuf]) -> String {
    if also.is_empty() {
        return "bundle.pem".to_owned();
    }
    let names: Vec<u8> = also.iter().flat_map(|path| [path.as_os_str().as_encoded_bytes(), b"\n"].concat()).collect();
    let id: String = sha256(&names)[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("bundle-{id}.pem")
}

/// Returns the files and folders among `named` that a bundle needs besides the system's roots.
///
/// A bundle of ours is replaced by its sources. The result excludes the system's folders, missing files, and paths that
/// do not fit into one line. The file with our CA's certificate, `ours`, is excluded too.
pub fn sources(named: impl IntoIterator<Item = PathBuf>, ours: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let systems = |path: &PathBuf| SYSTEM_FOLDERS.iter().any(|folder| path == Path::new(folder));
    let named = named.into_iter().filter_map(|path| path::absolute(path).ok());
    for path in named.filter(|path| !systems(path)) {
        let found = match fs::read_to_string(&path) {
            Ok(text) if text.starts_with(MARK) => made_of(&text),
            _ if path == ours => Vec::new(),
            _ => vec![path],
        };
        for path in found {
            let line = path.to_str().is_some_and(|text| !text.contains(char::is_control));
            if line && (path.is_file() || path.is_dir()) && !files.contains(&path) {
                files.push(path);
            }
        }
    }
    files
}

/// Returns the sources that the head of a bundle lists.
fn made_of(text: &str) -> Vec<PathBuf> {
    let head = text.lines().take_while(|line| line.starts_with('#'));
    head.filter_map(|line| line.strip_prefix(ALSO)).map(PathBuf::from).collect()
}

/// Returns the system's own roots.
///
/// `SSL_CERT_FILE` and `SSL_CERT_DIR` redirect `rustls-native-certs`, possibly to a bundle of ours. If one of them is
/// set, the roots are read from the first usable file of [`SYSTEM`].
fn system() -> Vec<CertificateDer<'static>> {
    let redirected = ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|name| env::var_os(name).is_some());
    if !redirected {
        return load_native_certs().certs;
    }
    let files = SYSTEM.iter().map(|path| certificates(Path::new(path)));
    files.into_iter().find(|found| !found.is_empty()).unwrap_or_default()
}

fn certificates(path: &Path) -> Vec<CertificateDer<'static>> {
    match path.is_dir() {
        true => load_certs_from_paths(None, Some(path)).certs,
        false => load_certs_from_paths(Some(path), None).certs,
    }
}
