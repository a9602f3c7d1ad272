//! `andante ca`: creates and shows a CA, and helps workers to trust it.

mod store;

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::{
    Failure,
    ca_folder::{DataArgs, failed, say},
    env, variables,
};
use crate::{
    ca::{self, Ca, CaError, Certificate, Constraints},
    policy::HostPattern,
};

/// The CA with which andante speaks for the hosts that it intercepts
///
/// Workers must trust the CA, or they refuse to connect. The CA's key never leaves this machine. `andante serve` uses
/// or creates the CA in its data folder if it is to intercept; `andante run` has a CA of its own, in memory, and needs
/// none of this.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: CaCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum CaCommand {
    Init(Init),
    Show(Show),
    Env(Env),
    Bundle(BundleArgs),
    Trust(store::Args),
}

/// Creates the CA, unless there is one
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = INIT_EXAMPLES)]
struct Init {
    #[command(flatten)]
    data: DataArgs,
    /// A host that the CA may sign for, with all names below it; may be repeated [default: any host]
    #[arg(long, value_name = "HOST")]
    only: Vec<HostPattern>,
}

/// Shows the CA's name, its expiry, its hosts, and the folder of its files
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = SHOW_EXAMPLES)]
struct Show {
    #[command(flatten)]
    data: DataArgs,
    /// Print the certificate instead
    #[arg(long)]
    pem: bool,
}

/// The system's root certificates and the CA in one PEM file
///
/// Includes the roots that SSL_CERT_FILE, REQUESTS_CA_BUNDLE and the like name now.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = BUNDLE_EXAMPLES)]
struct BundleArgs {
    #[command(flatten)]
    data: DataArgs,
    /// File to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The variables of `andante env`, for a CA that must exist
///
/// Leaves out NO_PROXY for containers; `andante env` includes it.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = ENV_EXAMPLES)]
struct Env {
    #[command(flatten)]
    env: env::Args,
}

const EXAMPLES: &str = "\
Examples:
  andante ca init
  eval \"$(andante ca env)\"
  andante ca env --format docker --at /etc/andante --proxy http://gateway:3128 > andante.env
  sudo andante ca trust --data ~/.local/share/andante";

const INIT_EXAMPLES: &str = "\
Examples:
  andante ca init
  andante ca init --only api.example.com --only '*.example.org'
      clients refuse whatever it signs for other hosts";

const SHOW_EXAMPLES: &str = "\
Examples:
  andante ca show
  andante ca show --pem > andante-ca.pem";

const ENV_EXAMPLES: &str = "\
Examples:
  eval \"$(andante ca env)\" && python fetch.py
  andante ca env --format docker --at /etc/andante --proxy http://gateway:3128 > andante.env
  andante ca env --format json | jq -r .SSL_CERT_FILE";

const BUNDLE_EXAMPLES: &str = "\
Examples:
  andante ca bundle --out roots.pem
  curl --cacert roots.pem -x http://127.0.0.1:3128 https://api.example.com/";

/// Executes the subcommand.
///
/// # Errors
/// If there is no CA, its files cannot be read or written, or output finds no reader.
pub fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        CaCommand::Init(args) => init(&args),
        CaCommand::Show(args) => show(&args),
        CaCommand::Env(args) => env::with_ca(&args.env),
        CaCommand::Bundle(args) => bundle(&args),
        CaCommand::Trust(args) => store::run(&args),
    }
}

fn init(args: &Init) -> Result<(), Failure> {
    let dir = args.data.dir()?;
    let now = SystemTime::now();
    let not_made = |error| failed("no CA was made", error);
    let (ca, news) = match Ca::create(&dir, &args.only, now) {
        Ok(ca) => (ca, "made a CA"),
        Err(CaError::Exists { .. }) => {
            let wanted = Constraints::new(&args.only).map_err(not_made)?;
            let found =
                Ca::find_or_create(&dir, now).map_err(|error| failed("there is a CA, but not in order", error))?;
            let bounds = found.certificate().constraints();
            if !wanted.is_empty() && wanted != *bounds {
                return Err(Failure::new(format!("there is a CA already, for {bounds}, not for {wanted}"))
                    .hinting(format!("move {} away first, or choose another folder with --data", dir.display())));
            }
            (found, "there is a CA already")
        }
        Err(error) => return Err(not_made(error)),
    };
    say(&format!("{news}\n{}", description(ca.certificate(), &dir)))
}

fn show(args: &Show) -> Result<(), Failure> {
    let (dir, certificate) = args.data.certificate()?;
    say(&if args.pem { certificate.pem().to_owned() } else { description(&certificate, &dir) })
}

fn bundle(args: &BundleArgs) -> Result<(), Failure> {
    let (dir, certificate) = args.data.certificate()?;
    let also = ca::sources(variables::trusted(|name| std::env::var_os(name)), &dir.join(ca::CERTIFICATE));
    let not_made = |error| failed("no bundle was made", error);
    let text = ca::Bundle::gather(&certificate, &also).map_err(not_made)?.pem();
    match &args.out {
        // Writes into the file instead of replacing it, because it may be a pipe, or a mount.
        Some(out) => fs::write(out, text).map_err(|error| {
            Failure::new(format!("could not write {}", out.display()))
                .because(error)
                .hinting("choose another with --out, or none for standard output")
        }),
        None => say(&text),
    }
}

/// Description for people.
fn description(certificate: &Certificate, dir: &Path) -> String {
    let time = |at| humantime::format_rfc3339_seconds(at).to_string();
    let mut text = String::new();
    for (name, value) in [
        ("subject", certificate.subject().to_owned()),
        ("SHA-256", certificate.fingerprint()),
        ("valid", format!("{} to {}", time(certificate.not_before()), time(certificate.not_after()))),
        ("hosts", certificate.constraints().to_string()),
        ("trust", dir.join(ca::CERTIFICATE).display().to_string()),
        ("key", dir.join(ca::KEY).display().to_string()),
    ] {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<8} {value}");
    }
    text
}
