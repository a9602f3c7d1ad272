//! `andante ca env`: the variables that lead workers to the proxy and make them trust it, in the format of the program
//! that sets them.

use std::{fmt::Write as _, path::PathBuf};

use super::data::{DataArgs, failed, say};
use crate::cli::{
    Failure,
    trust::TrustVariables,
    variables::{self, java},
};

/// The variables that workers need: where the proxy is, and whom to trust
///
/// Brings bundle.pem and bundle.p12 (the system's roots and the CA) and andante.ini (for PHP) beside the CA up to date.
/// NO_PROXY stays as it is. With `sh`, certificates that SSL_CERT_FILE, REQUESTS_CA_BUNDLE and the like name now stay
/// trusted.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    data: DataArgs,
    /// Who reads it
    #[arg(long, value_enum, default_value_t = EnvFormat::Sh)]
    format: EnvFormat,
    /// Where workers reach andante
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:3128", value_parser = proxy)]
    proxy: String,
    /// The folder in which workers find these files, if it is another for them (containers)
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
    /// A .env file
    Dotenv,
    /// One JSON object
    Json,
}

const EXAMPLES: &str = "\
Examples:
  eval \"$(andante ca env)\" && python fetch.py
  andante ca env --format dotenv --proxy http://10.0.0.7:3128 > .env
  andante ca env --format docker --at /etc/andante --proxy http://gateway:3128 > andante.env
      docker run --env-file andante.env -v DIR/ca.pem:/etc/andante/ca.pem:ro \\
        -v DIR/bundle.pem:/etc/andante/bundle.pem:ro …
  andante ca env --format json | jq -r .SSL_CERT_FILE
  andante ca env --format k8s --at /etc/andante --proxy http://andante:3128

Give containers these files (Java also bundle.p12, PHP also andante.ini) and not the whole folder: the CA's key is in there.";

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let (dir, certificate) = args.data.certificate()?;
    // Only a shell's variables are those of the workers.
    let current = |name: &str| (args.format == EnvFormat::Sh).then(|| std::env::var_os(name)).flatten();
    let mut trust = TrustVariables::in_folder(&dir, &certificate, current)
        .map_err(|error| failed("there is no bundle to point to", error))?;
    if let Some(at) = &args.at {
        trust = trust.at(at);
    }
    let direct = variables::exceptions(current).and_then(|hosts| java::direct(&hosts));
    let mut set = variables::proxy(&args.proxy);
    set.extend(trust.variables(current));
    set.extend(variables::java(&args.proxy, trust.java.as_deref(), direct.as_deref(), current));
    let (mut text, mut object) = (String::new(), serde_json::Map::new());
    for (name, value) in set {
        let plain = value.to_str();
        let written = plain.and_then(|value| args.format.line(name, value));
        let line = written.ok_or_else(|| {
            Failure::new(format!("{name} cannot be {value:?} in this format"))
                .hinting("choose a plainer folder with --data")
        })?;
        let _ = writeln!(text, "{line}");
        object.insert(name.to_owned(), plain.into());
    }
    if args.format == EnvFormat::Json {
        text = format!("{:#}\n", serde_json::Value::from(object));
    }
    say(&text)
}

fn proxy(text: &str) -> Result<String, String> {
    match url::Url::parse(text) {
        Ok(url) if url.scheme() == "http" && url.has_host() => Ok(text.trim_end_matches('/').to_owned()),
        _ => Err("write it as in http://127.0.0.1:3128".to_owned()),
    }
}

// === impl EnvFormat ===

impl EnvFormat {
    /// One variable, or `None` if the format has no way to say it.
    fn line(self, name: &str, value: &str) -> Option<String> {
        // An env-file has no quotes, and what reads .env files does not agree on what is in them.
        let plain = !value.contains(char::is_control);
        match self {
            Self::Sh => Some(format!("export {name}={}", single_quoted(value))),
            Self::Docker => plain.then(|| format!("{name}={value}")),
            // JSON's strings are YAML's; Kubernetes expands $(…) unless its dollar is doubled.
            Self::Kubernetes => {
                let value = serde_json::Value::from(value.replace("$(", "$$("));
                Some(format!("- name: {name}\n  value: {value}"))
            }
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
