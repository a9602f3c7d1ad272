//! `andante ca trust`: adds the CA to the roots of the whole system, or removes it.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process,
};

use crate::{
    ca::{self, Certificate},
    cli::{
        Failure,
        ca_folder::{DataArgs, failed, say},
    },
};

/// Makes this whole system trust the CA
///
/// For programs that read the system's roots and no variables. Programs with their own roots (Firefox, Java, many in
/// Python) ignore the system's. Prints each step; needs root.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    data: DataArgs,
    /// Remove it again
    #[arg(long)]
    remove: bool,
    /// Only print the steps
    #[arg(long)]
    dry_run: bool,
}

const EXAMPLES: &str = "\
Examples:
  andante ca trust --dry-run
  sudo andante ca trust --data ~/.local/share/andante
  sudo andante ca trust --remove --data ~/.local/share/andante";

/// The folder from which a family of systems takes further roots.
struct TrustStore {
    folder: &'static str,
    extension: &'static str,
    /// Command that adds new files of the folder.
    update: &'static [&'static str],
    /// Command that detects removed files.
    forget: &'static [&'static str],
}

/// The first entry whose folder exists is the system's.
const STORES: [TrustStore; 4] = [
    // Fedora, RHEL.
    TrustStore {
        folder: "etc/pki/ca-trust/source/anchors",
        extension: "pem",
        update: &["update-ca-trust"],
        forget: &["update-ca-trust"],
    },
    // SUSE.
    TrustStore {
        folder: "etc/pki/trust/anchors",
        extension: "pem",
        update: &["update-ca-certificates"],
        forget: &["update-ca-certificates"],
    },
    // Arch.
    TrustStore {
        folder: "etc/ca-certificates/trust-source/anchors",
        extension: "crt",
        update: &["update-ca-trust"],
        forget: &["update-ca-trust"],
    },
    // Debian, Ubuntu, Alpine.
    TrustStore {
        folder: "usr/local/share/ca-certificates",
        extension: "crt",
        update: &["update-ca-certificates"],
        forget: &["update-ca-certificates", "--fresh"],
    },
];

/// The keychain of all users of a Mac.
const KEYCHAIN: &str = "/Library/Keychains/System.keychain";

/// A step.
#[derive(Debug, PartialEq, Eq)]
enum StoreStep {
    Write(PathBuf),
    Delete(PathBuf),
    Run(Vec<String>),
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let (dir, certificate) = args.data.certificate()?;
    let steps = if cfg!(target_os = "macos") {
        keychain(&certificate, &dir, args.remove)
    } else {
        anchors(Path::new("/"), &certificate, args.remove)?
    };
    let (verb, state) = if args.remove { ("distrust", "does not trust") } else { ("trust", "trusts") };
    if !args.dry_run && !rustix::process::geteuid().is_root() {
        let remove = if args.remove { "--remove " } else { "" };
        return Err(Failure::new(format!("only root can make this system {verb} a CA")).hinting(format!(
            "sudo andante ca trust {remove}--data '{}'; --dry-run shows what it does",
            dir.display()
        )));
    }
    for step in &steps {
        say(&format!("{step}\n"))?;
        if !args.dry_run {
            step.take(&certificate)?;
        }
    }
    say(&match args.dry_run {
        true => "nothing was done: this is a dry run\n".to_owned(),
        false => format!("this system {state} {}\n", certificate.subject()),
    })
}

/// Steps for systems that keep roots as files in a folder below `root`.
fn anchors(root: &Path, certificate: &Certificate, remove: bool) -> Result<Vec<StoreStep>, Failure> {
    let store = STORES.iter().find(|store| root.join(store.folder).is_dir()).ok_or_else(|| {
        Failure::new("this system has none of the folders for root certificates that andante knows")
            .hinting("install ca-certificates, or give workers the variables of `andante env`")
    })?;
    // Named after this CA: the file of another CA must stay.
    let name = certificate.subject().to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let file = root.join(store.folder).join(name).with_extension(store.extension);
    let run = |command: &[&str]| StoreStep::Run(command.iter().map(|word| (*word).to_owned()).collect());
    Ok(match remove {
        true => vec![StoreStep::Delete(file), run(store.forget)],
        false => vec![StoreStep::Write(file), run(store.update)],
    })
}

/// Steps for a Mac.
fn keychain(certificate: &Certificate, dir: &Path, remove: bool) -> Vec<StoreStep> {
    let file = dir.join(ca::CERTIFICATE).display().to_string();
    let security =
        |words: &[&str]| StoreStep::Run([&["security"], words].concat().into_iter().map(str::to_owned).collect());
    match remove {
        true => vec![
            security(&["remove-trusted-cert", "-d", &file]),
            security(&["delete-certificate", "-c", certificate.subject(), KEYCHAIN]),
        ],
        false => vec![security(&["add-trusted-cert", "-d", "-r", "trustRoot", "-k", KEYCHAIN, &file])],
    }
}

// === impl StoreStep ===

impl StoreStep {
    fn take(&self, certificate: &Certificate) -> Result<(), Failure> {
        match self {
            Self::Write(path) => ca::replace(path, certificate.pem()).map_err(|error| failed("not installed", error)),
            Self::Delete(path) if !path.exists() => say("it is not there\n"),
            Self::Delete(path) => fs::remove_file(path)
                .map_err(|error| Failure::new(format!("could not delete {}", path.display())).because(error)),
            Self::Run(words) => execute(words),
        }
    }
}

impl fmt::Display for StoreStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(path) => write!(f, "writes {}", path.display()),
            Self::Delete(path) => write!(f, "deletes {}", path.display()),
            Self::Run(words) => write!(f, "runs {}", words.join(" ")),
        }
    }
}

fn execute(words: &[String]) -> Result<(), Failure> {
    let [program, arguments @ ..] = words else { return Ok(()) };
    let failure = || {
        Failure::new(format!("`{}` failed", words.join(" ")))
            .hinting("run it yourself as root: its folder has what it should have")
    };
    match process::Command::new(program).args(arguments).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failure().because(status.to_string())),
        Err(error) => Err(failure().because(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::ca::Ca;

    #[test]
    fn each_family_of_systems_has_its_folder_and_its_command() {
        let ca = Ca::generate(&[], SystemTime::now()).unwrap();
        let name = ca.certificate().subject().replace(' ', "-").to_ascii_lowercase();
        for (folder, extension, update, forget) in [
            ("etc/pki/ca-trust/source/anchors", "pem", "update-ca-trust", "update-ca-trust"),
            ("etc/pki/trust/anchors", "pem", "update-ca-certificates", "update-ca-certificates"),
            ("etc/ca-certificates/trust-source/anchors", "crt", "update-ca-trust", "update-ca-trust"),
            ("usr/local/share/ca-certificates", "crt", "update-ca-certificates", "update-ca-certificates --fresh"),
        ] {
            let root = tempfile::tempdir().unwrap();
            let error = anchors(root.path(), ca.certificate(), false).unwrap_err();
            assert!(error.hint().unwrap().contains("andante env"));
            fs::create_dir_all(root.path().join(folder)).unwrap();
            let file = root.path().join(folder).join(format!("{name}.{extension}"));
            for (remove, verb, command) in [(false, "writes", update), (true, "deletes", forget)] {
                let steps = anchors(root.path(), ca.certificate(), remove).unwrap();
                let said: Vec<String> = steps.iter().map(ToString::to_string).collect();
                assert_eq!(said, [format!("{verb} {}", file.display()), format!("runs {command}")]);
                steps[0].take(ca.certificate()).unwrap();
                assert_eq!(file.exists(), !remove);
            }
        }
    }

    #[test]
    fn a_mac_has_a_keychain() {
        let ca = Ca::generate(&[], SystemTime::now()).unwrap();
        for remove in [false, true] {
            let steps = keychain(ca.certificate(), Path::new("/d"), remove);
            assert!(steps.iter().all(|step| step.to_string().starts_with("runs security ")), "{steps:?}");
        }
    }

    #[test]
    fn a_command_that_fails_is_named() {
        let run = |words: &[&str]| StoreStep::Run(words.iter().map(|word| (*word).to_owned()).collect());
        let ca = Ca::generate(&[], SystemTime::now()).unwrap();
        assert!(run(&["true"]).take(ca.certificate()).is_ok());
        for words in [&["false"][..], &["/nowhere/at/all", "x"]] {
            let failure = run(words).take(ca.certificate()).unwrap_err();
            assert_eq!(failure.to_string(), format!("`{}` failed", words.join(" ")));
        }
    }
}
