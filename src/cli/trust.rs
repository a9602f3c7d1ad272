//! Files that make clients trust andante's CA besides the roots that they already trust.

use std::{
    ffi::OsString,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use super::variables;
use crate::ca::{self, Bundle, Ca, CaError, Certificate};

/// Files for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustVariables {
    /// andante's CA, for clients that add it to their roots.
    pub ca: PathBuf,
    /// The system's roots and andante's CA, for clients that replace all their roots.
    pub bundle: PathBuf,
    /// The roots of the bundle for Java, in PKCS #12.
    pub java: Option<PathBuf>,
    /// For PHP: a folder with a configuration that takes the roots from variables.
    pub php: Option<PathBuf>,
    /// For wget, which has no variable for roots: a configuration with the bundle.
    pub wgetrc: Option<PathBuf>,
}

/// Variable with the path of wget's system-wide configuration. The user's own, `~/.wgetrc`, is read besides.
const WGETRC: &str = "SYSTEM_WGETRC";

/// Files for a CA that lives in memory, in a private temporary folder. Dropping the value removes the folder.
#[derive(Debug)]
pub struct TrustFolder {
    trust: TrustVariables,
    upstream: PathBuf,
    _folder: TempDir,
}

// === impl TrustVariables ===

impl TrustVariables {
    /// Files for the CA whose `certificate` is published in `dir`. Updates the bundle there: the system's roots,
    /// andante's CA, and the roots in the files that the variables of [`TrustVariables::variables`] name now. Setting
    /// these variables would otherwise drop those roots; `current` reads them. Also returns the roots in the bundle.
    ///
    /// # Errors
    /// If there are no other roots, or the bundle cannot be written and does not exist either.
    pub fn in_folder(
        dir: &Path,
        certificate: &Certificate,
        current: impl Fn(&str) -> Option<OsString>,
    ) -> Result<(Self, Bundle), CaError> {
        let ca = dir.join(ca::CERTIFICATE);
        let named = variables::trusted(&current).into_iter().chain(variables::trusted_folders(&current));
        let also = ca::sources(named, &ca);
        let roots = Bundle::gather(certificate, &also)?;
        let bundle = dir.join(ca::bundle_name(&also));
        provide(&bundle, roots.pem(), certificate.pem())?;
        let java = bundle.with_extension("p12");
        let java = provide(&java, roots.pkcs12(), certificate.der()).is_ok().then_some(java);
        // PHP's list of folders cannot contain a colon.
        let php = !dir.as_os_str().as_encoded_bytes().contains(&b':')
            && provide(&dir.join("andante.ini"), variables::PHP_INI, variables::PHP_INI).is_ok();
        // A client that adds roots may have been told to add a file of the user's: only the bundle has both.
        let ca = if also.is_empty() { ca } else { bundle.clone() };
        Ok((Self { ca, bundle, java, php: php.then(|| dir.to_owned()), wgetrc: None }, roots))
    }

    /// Paths of the same files for workers that find them in the folder `at`.
    #[must_use]
    pub fn at(self, at: &Path) -> Self {
        let there = |file: PathBuf| at.join(file.file_name().unwrap_or_default());
        Self {
            ca: there(self.ca),
            bundle: there(self.bundle),
            java: self.java.map(there),
            php: self.php.map(|_| at.to_owned()),
            wgetrc: self.wgetrc.map(there),
        }
    }

    /// Variables for a worker's environment, except for Java, which needs its proxy in the same variable; `current`
    /// reads the present values.
    pub fn variables(&self, current: impl Fn(&str) -> Option<OsString>) -> Vec<(&'static str, OsString)> {
        let mut variables = variables::trust(&self.ca, &self.bundle);
        variables.extend(self.php.iter().map(|folder| variables::php(folder, &current)));
        variables.extend(self.wgetrc.iter().map(|file| (WGETRC, file.into())));
        variables
    }
}

// === impl TrustFolder ===

impl TrustFolder {
    /// Writes the files that clients need to trust `ca`; `current` reads the environment, as for
    /// [`TrustVariables::in_folder`].
    ///
    /// # Errors
    /// If the files cannot be written, or there are no other roots.
    pub fn new(ca: &Ca, current: impl Fn(&str) -> Option<OsString>) -> Result<Self, CaError> {
        let place = std::env::temp_dir();
        let private = Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().prefix("andante-").permissions(private).tempdir_in(&place);
        let folder = folder.map_err(|source| CaError::Write { path: place, source })?;
        ca::replace(&folder.path().join(ca::CERTIFICATE), ca.certificate_pem())?;
        let (mut trust, roots) = TrustVariables::in_folder(folder.path(), ca.certificate(), &current)?;
        let upstream = folder.path().join("upstream.crt");
        ca::replace(&upstream, roots.others())?;
        let wgetrc = folder.path().join("wgetrc");
        ca::replace(&wgetrc, for_wget(&trust.bundle, current(WGETRC)))?;
        trust.wgetrc = Some(wgetrc);
        Ok(Self { trust, upstream, _folder: folder })
    }

    /// File of the roots that clients trust besides the CA. Clients would verify an API with these without andante.
    pub fn upstream(&self) -> &Path {
        &self.upstream
    }

    /// Paths of the files.
    pub fn trust(&self) -> &TrustVariables {
        &self.trust
    }
}

/// wget's system-wide configuration with the bundle in front; `current` may have moved it. Where the system chose
/// other roots for wget, those hold.
fn for_wget(bundle: &Path, current: Option<OsString>) -> String {
    let system = current.filter(|file| !file.is_empty()).unwrap_or_else(|| "/etc/wgetrc".into());
    let chosen = fs::read_to_string(system).unwrap_or_default();
    format!("ca_certificate = {}\n{chosen}", bundle.display())
}

/// Updates a file. A user without write permission may use the owner's file, if it contains the `essence`.
fn provide(path: &Path, content: impl AsRef<[u8]>, essence: impl AsRef<[u8]>) -> Result<(), CaError> {
    let essence = essence.as_ref();
    let holds = |found: Vec<u8>| found.windows(essence.len()).any(|part| part == essence);
    match ca::replace(path, content) {
        Err(CaError::Write { .. }) if fs::read(path).is_ok_and(holds) => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::MetadataExt as _, time::SystemTime};

    use super::*;

    fn holds(bytes: &[u8], part: &[u8]) -> bool {
        bytes.windows(part.len()).any(|found| found == part)
    }

    #[test]
    fn the_folder_of_a_ca_in_memory_is_private_holds_no_key_and_goes() {
        let ca = Ca::generate(&[], SystemTime::now()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let corporate = dir.path().join("corporate.pem");
        fs::write(&corporate, Ca::generate(&[], SystemTime::now()).unwrap().certificate_pem()).unwrap();
        let current = |name: &str| (name == "PIP_CERT").then(|| OsString::from(&corporate));
        let folder = TrustFolder::new(&ca, current).unwrap();
        let trust = folder.trust().clone();
        let place = trust.bundle.parent().unwrap().to_owned();
        assert_eq!(fs::metadata(&place).unwrap().mode() & 0o777, 0o700);
        for entry in fs::read_dir(&place).unwrap() {
            let path = entry.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            assert!(!holds(&bytes, b"PRIVATE"));
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("pem") => assert!(holds(&bytes, ca.certificate_pem().as_bytes())),
                Some("p12") => assert!(holds(&bytes, ca.certificate().der())),
                _ => {}
            }
        }
        assert!(fs::read_to_string(&trust.bundle).unwrap().contains(&fs::read_to_string(&corporate).unwrap()));
        drop(folder);
        assert!(!place.exists());
    }

    #[test]
    fn wget_finds_the_bundle_unless_the_system_chose_other_roots_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let system = dir.path().join("wgetrc");
        fs::write(&system, "passive_ftp = on\nca_certificate = /etc/theirs.pem\n").unwrap();
        let bundle = Path::new("/t/bundle.pem");
        let ours = "ca_certificate = /t/bundle.pem\n";
        let both = format!("{ours}passive_ftp = on\nca_certificate = /etc/theirs.pem\n");
        assert_eq!(for_wget(bundle, Some(system.into())), both);
        assert_eq!(for_wget(bundle, Some("/nowhere".into())), ours);
    }

    #[test]
    fn a_client_that_adds_is_given_the_ca_alone_unless_it_added_more() {
        let dir = tempfile::tempdir().unwrap();
        let ca = Ca::find_or_create(dir.path(), SystemTime::now()).unwrap();
        let theirs = dir.path().join("theirs.pem");
        fs::write(&theirs, Ca::generate(&[], SystemTime::now()).unwrap().certificate_pem()).unwrap();
        let with = |file: Option<&Path>| {
            let current = |name: &str| file.filter(|_| name == "NODE_EXTRA_CA_CERTS").map(OsString::from);
            TrustVariables::in_folder(dir.path(), ca.certificate(), current).unwrap().0
        };
        let [own, bundle, store] = ["ca.pem", "bundle.pem", "bundle.p12"].map(|name| dir.path().join(name));
        let alone =
            TrustVariables { ca: own, bundle, java: Some(store), php: Some(dir.path().to_owned()), wgetrc: None };
        // The machine of this test may have no roots but these.
        let more = with(Some(&theirs));
        assert!(more.ca == more.bundle && more.bundle != alone.bundle);
        assert_eq!(with(Some(&more.bundle)), more);
        for file in [None, Some(alone.ca.as_path()), Some(alone.bundle.as_path())] {
            assert_eq!(with(file), alone);
        }
    }
}
