//! Roots and our CA in one file, for clients that take one file only.
//!
//! The head of a PEM bundle lists its sources. So andante recognises a variable that names one of its own bundles, and
//! reads the sources again instead of the bundle: a root that was removed from a source disappears from the bundle too.

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

/// Our CA's certificate, the system's roots and all certificates of further files, as far as they can be read.
#[derive(Debug)]
pub struct Bundle {
    ours: Vec<u8>,
    /// Sorted, each once: the same roots make the same file.
    others: BTreeSet<Vec<u8>>,
    also: Vec<PathBuf>,
}

/// The first line of a bundle of ours.
const MARK: &str = "# Root certificates of this system and the CA of andante (`andante ca bundle`).\n";
/// One such line follows for each source besides the system's roots.
const ALSO: &str = "# With those of: ";

/// Where systems keep their roots: Debian, Alpine and Arch; Fedora; SUSE; BSDs and macOS.
const SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Folders of the same roots, one file each.
const SYSTEM_FOLDERS: [&str; 2] = ["/etc/ssl/certs", "/etc/pki/tls/certs"];

// === impl Bundle ===

impl Bundle {
    /// Reads the system's roots and the files and folders `also`. Leaves out certificates that are no roots: some clients
    /// refuse a whole file because of one.
    ///
    /// # Errors
    /// If there are no roots besides our CA.
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

    /// As one PEM file.
    pub fn pem(&self) -> String {
        let mut text = MARK.to_owned();
        for path in &self.also {
            let _ = writeln!(text, "{ALSO}{}", path.display());
        }
        self.roots().for_each(|root| text.push_str(&encode(root)));
        text
    }

    /// All roots except our CA, as one PEM file: the roots that a client of this bundle trusted before.
    pub fn others(&self) -> String {
        self.others.iter().map(|root| encode(root)).collect()
    }

    /// As a store for Java, in PKCS #12, which opens without a password.
    pub fn pkcs12(&self) -> Vec<u8> {
        let alias = |n| if n == 0 { "andante".to_owned() } else { format!("root {n}") };
        pkcs12::store(self.roots().enumerate().map(|(n, root)| (alias(n), root)))
    }

    /// Ours comes first.
    fn roots(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&self.ours).chain(&self.others).map(Vec::as_slice)
    }
}

/// The file name of a bundle. A bundle with further sources has a name of its own, so that a run from a shell with
/// other variables does not replace it by one without them.
pub fn bundle_name(also: &[PathBuf]) -> String {
    if also.is_empty() {
        return "bundle.pem".to_owned();
    }
    let names: Vec<u8> = also.iter().flat_map(|path| [path.as_os_str().as_encoded_bytes(), b"\n"].concat()).collect();
    let id: String = sha256(&names)[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("bundle-{id}.pem")
}

/// Returns those of the files and folders `named` whose roots a bundle needs besides the system's. A bundle of ours is replaced
/// by its sources. `ours` is our certificate's file.
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

/// The files that a bundle of ours names.
fn made_of(text: &str) -> Vec<PathBuf> {
    let head = text.lines().take_while(|line| line.starts_with('#'));
    head.filter_map(|line| line.strip_prefix(ALSO)).map(PathBuf::from).collect()
}

/// The system's own roots. A variable may redirect the library that finds them to a bundle of ours: then they are read
/// from their usual places.
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
