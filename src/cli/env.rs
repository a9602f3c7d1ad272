//! `andante env`: prints the variables by which workers find the proxy and trust it, in the format of the program that
//! sets them.

use std::{ffi::OsString, fmt::Write as _, net::SocketAddr, path::PathBuf, time::SystemTime};

use super::{
    Failure,
    ca_folder::{data_dir, failed, say},
    environment, serve, terminal,
    trust::TrustVariables,
    variables::EXCEPTIONS,
};
use crate::{
    ca::{self, CaError, Certificate},
    config::{Config, Settings, Sources},
};

/// The variables that workers need: the proxy's address, and the roots to trust
///
/// The address is the one on which `andante serve` listens with the same file and environment. CA variables are
/// included if there is a CA in the data folder, which exists once a host was intercepted. In this case the command
/// also updates bundle.pem and bundle.p12 (the system's roots and the CA) and andante.ini (for PHP) beside the CA.
///
/// With `sh`, NO_PROXY stays unchanged, except that a rule for a loopback host removes the loopback hosts from it.
/// Certificates in SSL_CERT_FILE, REQUESTS_CA_BUNDLE and the like stay trusted: in each format the bundle has them.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Format of the program that sets them
    #[arg(long, value_enum, default_value_t = EnvFormat::Sh)]
    format: EnvFormat,
    /// URL at which workers reach andante, if it differs from the listening address
    #[arg(long, value_name = "URL", value_parser = proxy)]
    proxy: Option<String>,
    /// Configuration file of that andante [env: ANDANTE_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Listening address of that andante; may be repeated [env: ANDANTE_LISTEN] [default: 127.0.0.1:3128]
    #[arg(long, value_name = "ADDR")]
    listen: Vec<String>,
    /// The folder of the CA [env: ANDANTE_DATA] [default: $XDG_DATA_HOME/andante or ~/.local/share/andante]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The folder in which workers find these files, if it differs for them (containers)
    #[arg(long, value_name = "DIR")]
    at: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum EnvFormat {
    /// `export` lines for eval
    Sh,
    /// A file for `docker run --env-file`
    Docker,
    /// Items for the `env:` of a container, in YAML
    #[value(name = "k8s")]
    Kubernetes,
    /// A ConfigMap of Kubernetes for `envFrom:`
    #[value(name = "configmap")]
    ConfigMap,
    /// A .env file
    Dotenv,
    /// One JSON object
    Json,
}

/// The CA that workers should trust, or the reason why there is none.
enum FoundCa {
    /// Folder of the CA's files, and its certificate.
    At(PathBuf, Certificate),
    /// The folder contains no CA; `None` if there is no folder either.
    Absent(Option<PathBuf>),
}

const EXAMPLES: &str = "\
Examples:
  eval \"$(andante env)\" && python fetch.py
  andante env --config /etc/andante/andante.toml
  andante env --format docker --proxy http://gateway:3128 --at /etc/andante > andante.env
      docker run --env-file andante.env -v DIR/ca.pem:/etc/andante/ca.pem:ro \\
        -v DIR/bundle.pem:/etc/andante/bundle.pem:ro …
  andante env --format dotenv > .env
  andante env --format json | jq -r .HTTPS_PROXY
  andante env --format configmap --proxy http://andante:3128 --at /etc/andante | kubectl apply -f -

Give containers these files (Java also bundle.p12, PHP also andante.ini) and not the whole folder: the CA's key is in there. \
If SSL_CERT_FILE or the like is set here, the bundle has another name: mount the files that the variables name.";

/// Prints the variables, with those of the CA if there is one.
///
/// # Errors
/// If the configuration does not say where andante listens, the CA's files cannot be read or written, or output finds no
/// reader.
pub fn run(args: &Args) -> Result<(), Failure> {
    let config = args.config()?;
    let found = FoundCa::look(&config)?;
    if matches!(found, FoundCa::Absent(_)) && config.rules.intercepts() {
        let what = format!("the configuration intercepts hosts: {}", found.comment());
        terminal::warning(&what, "start andante or run `andante ca init`, and then this again");
    }
    let direct = args.format.is_container().then(|| {
        let cluster: &[_] = if args.format.is_kubernetes() { &[".svc", ".cluster.local"] } else { &[] };
        [&environment::outside_of_proxy(&config.rules), cluster].concat().join(",")
    });
    let url = args.url(&config.listen)?;
    if args.proxy.is_none() && direct.is_some() && config.listen.iter().all(is_local) {
        let what = format!("in a container {url} is the container itself");
        terminal::warning(&what, "unless andante runs beside it: --proxy http://HOST:PORT, as containers reach it");
    }
    let set = args.variables(&url, &config, &found, direct.as_deref())?;
    say(&args.format.text(set, &found.comment())?)
}

/// Prints the variables for a CA that must exist.
///
/// # Errors
/// As [`run`], and if there is no CA.
pub(super) fn with_ca(args: &Args) -> Result<(), Failure> {
    let config = args.config()?;
    let dir = data_dir(config.data.as_deref())?;
    let certificate = Certificate::open(&dir).map_err(|error| failed("the CA cannot be read", error))?;
    if certificate.not_after() <= SystemTime::now() {
        let until = humantime::format_rfc3339_seconds(certificate.not_after());
        return Err(Failure::new(format!(
            "the CA in {} has expired on {until}: no worker would trust it",
            dir.display()
        ))
        .hinting(format!("move {} away, and make another with andante ca init", dir.display())));
    }
    let found = FoundCa::At(dir, certificate);
    let set = args.variables(&args.url(&config.listen)?, &config, &found, None)?;
    say(&args.format.text(set, &found.comment())?)
}

/// Returns whether a URL with this address is out of reach for other machines and containers.
fn is_local(address: &SocketAddr) -> bool {
    address.ip().is_loopback() || address.ip().is_unspecified()
}

pub(super) fn proxy(text: &str) -> Result<String, String> {
    match url::Url::parse(text) {
        Ok(url) if url.scheme() == "http" && url.has_host() => Ok(text.trim_end_matches('/').to_owned()),
        _ => Err("write it as in http://127.0.0.1:3128".to_owned()),
    }
}

// === impl Args ===

impl Args {
    /// The configuration of the andante in question, as `serve` would read it.
    fn config(&self) -> Result<Config, Failure> {
        let data = self.data.as_ref().map(|dir| dir.to_string_lossy().into_owned());
        let sources = Sources {
            file: serve::config_file(self.config.as_ref()),
            environment: serve::environment(),
            flags: Settings { listen: self.listen.clone(), data, ..Settings::default() },
        };
        Config::for_workers(&sources).map_err(|problems| {
            terminal::problems(&problems);
            Failure::new("the configuration does not say where andante listens")
                .hinting("correct it, or choose another with --config")
        })
    }

    /// Returns the URL at which workers reach an andante with these listen addresses. Prefers an address that
    /// containers can reach.
    fn url(&self, addresses: &[SocketAddr]) -> Result<String, Failure> {
        if let Some(url) = &self.proxy {
            return Ok(url.clone());
        }
        let remote = addresses.iter().find(|address| !is_local(address)).filter(|_| self.format.is_container());
        let address = remote.or_else(|| addresses.first()).filter(|address| address.port() != 0);
        let address = address.ok_or_else(|| {
            Failure::new("andante listens on a port that it chooses when it starts")
                .hinting("name the address that its first line says: --proxy http://127.0.0.1:PORT")
        })?;
        Ok(environment::url(*address))
    }

    /// The variables for workers of `config` that reach it at `url`. `direct` has the hosts that they reach without the
    /// proxy, if their own environment is unknown.
    fn variables(
        &self,
        url: &str,
        config: &Config,
        found: &FoundCa,
        direct: Option<&str>,
    ) -> Result<Vec<(&'static str, OsString)>, Failure> {
        // A shell's workers inherit its variables. Workers with a file of variables are on the same network, and reach
        // the same hosts without a proxy.
        let is_exception = |name: &str| EXCEPTIONS.contains(&name);
        let current = |name: &str| match direct {
            Some(hosts) if is_exception(name) => Some(hosts.into()),
            _ => (self.format == EnvFormat::Sh || direct.is_none() && is_exception(name))
                .then(|| std::env::var_os(name))
                .flatten(),
        };
        let trust = match found {
            FoundCa::At(dir, certificate) => {
                // Roots that this shell's variables name are needed wherever the workers run.
                let made = TrustVariables::in_folder(dir, certificate, |name| std::env::var_os(name));
                Some(made.map_err(|error| failed("there is no bundle to point to", error))?.0)
            }
            FoundCa::Absent(_) => None,
        };
        let trust = match (&self.at, trust) {
            (Some(at), Some(trust)) => Some(trust.at(at)),
            (_, trust) => trust,
        };
        let mut set = environment::variables(url, &config.rules, trust.as_ref(), current);
        set.extend(direct.into_iter().flat_map(|hosts| EXCEPTIONS.map(|name| (name, hosts.into()))));
        if self.format != EnvFormat::Sh {
            let is_set = |name: &str| set.iter().any(|(found, _)| *found == name);
            let left = EXCEPTIONS.into_iter().filter(|name| !is_set(name));
            let inherited: Vec<_> = left.filter_map(|name| Some((name, current(name)?))).collect();
            set.extend(inherited);
        }
        Ok(set)
    }
}

// === impl FoundCa ===

impl FoundCa {
    /// The CA in the folder of `config`, if there is one.
    fn look(config: &Config) -> Result<Self, Failure> {
        // A container may have no home folder.
        let Ok(dir) = data_dir(config.data.as_deref()) else { return Ok(Self::Absent(None)) };
        match Certificate::open(&dir) {
            Ok(certificate) => Ok(Self::At(dir, certificate)),
            Err(CaError::Missing { .. }) => Ok(Self::Absent(Some(dir))),
            Err(error) => Err(failed("the CA cannot be read", error)),
        }
    }

    /// A comment for readers of the shell form. Paths are quoted, so that they do not end the line.
    fn comment(&self) -> String {
        match self {
            Self::At(dir, certificate) => {
                let (file, name) = (dir.join(ca::CERTIFICATE), certificate.subject());
                format!("CA variables: {name} in {file:?}, for the hosts that andante intercepts")
            }
            Self::Absent(Some(dir)) => format!(
                "no CA variables: nothing is intercepted ({dir:?} has no CA). After a start with --intercept run this again"
            ),
            Self::Absent(None) => "no CA variables: there is no folder for a CA".to_owned(),
        }
    }
}

// === impl EnvFormat ===

impl EnvFormat {
    /// Returns whether workers with this format run on a network of their own.
    fn is_container(self) -> bool {
        self == Self::Docker || self.is_kubernetes()
    }

    fn is_kubernetes(self) -> bool {
        matches!(self, Self::Kubernetes | Self::ConfigMap)
    }

    /// Text with all variables; for a shell also with the `comment`.
    fn text(self, set: Vec<(&'static str, OsString)>, comment: &str) -> Result<String, Failure> {
        let (mut text, mut object) = (String::new(), serde_json::Map::new());
        if self == Self::ConfigMap {
            text.push_str("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: andante-env\ndata:\n");
        }
        for (name, value) in set {
            let plain = value.to_str();
            let written = plain.and_then(|value| self.line(name, value));
            let line = written.ok_or_else(|| {
                Failure::new(format!("{name} cannot be {value:?} in this format"))
                    .hinting("choose a plainer folder with --data")
            })?;
            let _ = writeln!(text, "{line}");
            object.insert(name.to_owned(), plain.into());
        }
        match self {
            Self::Json => text = format!("{:#}\n", serde_json::Value::from(object)),
            // The comment is last: `eval $(andante env)` without quotes joins all lines.
            Self::Sh => {
                let _ = writeln!(text, "# {comment}");
            }
            _ => {}
        }
        Ok(text)
    }

    /// Line for a variable, or `None` if the format cannot express it.
    fn line(self, name: &str, value: &str) -> Option<String> {
        // An env-file has no quotes, and readers of .env files disagree about quoting, so control characters cannot be
        // written.
        let plain = !value.contains(char::is_control);
        match self {
            Self::Sh => Some(format!("export {name}={}", single_quoted(value))),
            Self::Docker => plain.then(|| format!("{name}={value}")),
            // JSON strings are valid YAML; Kubernetes expands $(…) unless its dollar is doubled.
            Self::Kubernetes => {
                let value = serde_json::Value::from(value.replace("$(", "$$("));
                Some(format!("- name: {name}\n  value: {value}"))
            }
            Self::ConfigMap => Some(format!("  {name}: {}", serde_json::Value::from(value))),
            Self::Json => Some(String::new()),
            Self::Dotenv => plain.then(|| format!("{name}={}", dotenv_quoted(value))),
        }
    }
}

fn single_quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

/// The value without quotes if every reader takes it literally; else in single quotes; else in double quotes with
/// escapes.
fn dotenv_quoted(value: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+,=[]".contains(c);
    if value.chars().all(bare) {
        return value.to_owned();
    }
    if !value.contains('\'') {
        return format!("'{value}'");
    }
    let mut quoted = String::from('"');
    for c in value.chars() {
        if "\\\"$`".contains(c) {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_quotes_in_its_own_way() {
        for (format, value, line) in [
            (EnvFormat::Sh, "/a b/it's $HOME\n", Some("export X='/a b/it'\\''s $HOME\n'")),
            (EnvFormat::Docker, "/a b/it's $HOME", Some("X=/a b/it's $HOME")),
            (EnvFormat::Docker, "a\nY=1", None),
            (EnvFormat::Kubernetes, "/a \"b\"/$(HOME)", Some("- name: X\n  value: \"/a \\\"b\\\"/$$(HOME)\"")),
            (EnvFormat::ConfigMap, "/a \"b\"/$(HOME)", Some("  X: \"/a \\\"b\\\"/$(HOME)\"")),
            (EnvFormat::Dotenv, "http://[::1]:3128", Some("X=http://[::1]:3128")),
            (EnvFormat::Dotenv, "/a #b/$HOME", Some("X='/a #b/$HOME'")),
            (EnvFormat::Dotenv, "/it's $HOME", Some("X=\"/it's \\$HOME\"")),
            (EnvFormat::Dotenv, "a\nY=1", None),
        ] {
            assert_eq!(format.line("X", value).as_deref(), line, "{format:?}");
        }
    }

    #[test]
    fn a_proxy_has_a_scheme() {
        assert_eq!(proxy("http://gateway:3128/").as_deref(), Ok("http://gateway:3128"));
        for wrong in ["gateway:3128", "127.0.0.1:3128", "https://gateway", "socks5://a:1", ""] {
            assert!(proxy(wrong).is_err(), "{wrong}");
        }
    }
}
