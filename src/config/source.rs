//! The sources of a configuration: a file, the environment, flags. Reads them as text, and validates nothing.

use std::{
    fmt,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use super::{
    keys::{self, KeyEntry},
    otlp::OtelVariables,
};

/// Everything that says something about the configuration. Flags win over environment, environment over file.
#[derive(Debug, Default)]
pub struct Sources {
    /// The configuration file, if one was named.
    pub file: Option<File>,
    /// What `ANDANTE_…` variables say.
    pub environment: Settings,
    /// What flags say.
    pub flags: Settings,
}

/// A configuration file as it was found.
pub struct File {
    /// Its name as it was given.
    pub path: PathBuf,
    /// Its bytes, or why they could not be read: a problem like all others, reported along with them.
    pub content: io::Result<Vec<u8>>,
}

/// What flags or variables can say, as it was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `--listen`, `ANDANTE_LISTEN`: one address each.
    pub listen: Vec<String>,
    /// `--admin`, `ANDANTE_ADMIN`.
    pub admin: Option<String>,
    /// `--admin-token`, `ANDANTE_ADMIN_TOKEN`.
    pub admin_token: Option<String>,
    /// `--clients`, `ANDANTE_CLIENTS`: one network each, or `any`.
    pub clients: Vec<String>,
    /// `--limit`, `ANDANTE_LIMIT`: one `HOST=LIMITS` each.
    pub limits: Vec<String>,
    /// `--threads`, `ANDANTE_THREADS`.
    pub threads: Option<String>,
    /// `--max-memory`, `ANDANTE_MAX_MEMORY`.
    pub max_memory: Option<String>,
    /// `--log`, `ANDANTE_LOG_FORMAT`.
    pub log: Option<String>,
    /// `--access-log`, `ANDANTE_ACCESS_LOG`.
    pub access_log: Option<String>,
    /// `--otlp`, `ANDANTE_OTLP`.
    pub otlp: Option<String>,
    /// `OTEL_…`, as every SDK reads them.
    pub otel: OtelVariables,
    /// `--intercept`, `ANDANTE_INTERCEPT`: one host each.
    pub intercept: Vec<String>,
    /// `--upstream-ca`, `ANDANTE_UPSTREAM_CA`: one file each.
    pub upstream_ca: Vec<String>,
    /// `--data`, `ANDANTE_DATA`.
    pub data: Option<String>,
    /// `--state`, `ANDANTE_STATE`.
    pub state: Option<String>,
    /// `--store`, `ANDANTE_STORE`.
    pub store: Option<String>,
    /// `--spend`, `ANDANTE_SPEND`.
    pub spend: Option<String>,
    /// `--trust`, `ANDANTE_TRUST`.
    pub trust: Option<String>,
    /// `--retry`, `ANDANTE_RETRY`.
    pub retry: Option<String>,
    /// `--breaker`, `ANDANTE_BREAKER`.
    pub breaker: Option<String>,
    /// `ANDANTE_LOG`.
    pub log_filter: Option<String>,
    /// Variables that are called like andante's and are none.
    pub unknown: Vec<String>,
}

// === impl File ===

impl File {
    /// Reads the file at `path`.
    pub fn read(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let content = read(&path);
        Self { path, content }
    }
}

// Without its bytes: passwords may be among them.
impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let content = self.content.as_ref().map(Vec::len);
        f.debug_struct("File").field("path", &self.path).field("content", &content).finish()
    }
}

/// Reads a configuration file, up to a size that no configuration reaches.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    std::fs::File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MOST_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "more than 4 MiB"));
    }
    Ok(content)
}

/// Whether a variable is one of andante's.
fn is_known(name: &str) -> bool {
    NO_KEYS.contains(&name) || keys::with_flags().any(|(_, flag)| flag.variable == name)
}

/// Whether a variable is one that Kubernetes makes of a service whose name begins with `andante`: `ANDANTE_PORT`,
/// `ANDANTE_SERVICE_HOST`, `ANDANTE_GATEWAY_PORT_3128_TCP_ADDR`
/// (<https://kubernetes.io/docs/tutorials/services/connect-applications-service/#environment-variables>).
fn is_of_kubernetes(name: &str, variable: impl Fn(&str) -> Option<String>) -> bool {
    let protocols = ["_TCP", "_UDP", "_SCTP"];
    if let Some((_, port)) = name.rsplit_once("_PORT_") {
        let of_address = protocols.iter().any(|protocol| port.contains(protocol));
        return name.contains("_SERVICE_PORT_") || of_address && port.starts_with(|first: char| first.is_ascii_digit());
    }
    let address = || variable(name).is_none_or(|text| text.contains("://"));
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || name.ends_with("_PORT") && address()
}

/// What the names of andante's variables begin with.
pub(super) const PREFIX: &str = "ANDANTE_";
/// Those of them that say what no key of a file does.
pub(super) const NO_KEYS: [&str; 2] = ["ANDANTE_CONFIG", LOG_FILTER];
/// What is logged; read as soon as there is something to log.
pub(super) const LOG_FILTER: &str = "ANDANTE_LOG";
/// The largest file that is read.
const MOST_BYTES: u64 = 4 * 1024 * 1024;

// === impl Settings ===

impl Settings {
    /// What the environment says, which has these `names`; `variable` looks one up. An empty variable says nothing: that is
    /// how container platforms unset one.
    pub fn from_environment(
        names: impl IntoIterator<Item = String>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let one = |key: &KeyEntry| variable(key.flag?.variable).filter(|text| !text.trim().is_empty());
        let several = |key: &KeyEntry| -> Vec<String> {
            let (text, separators) = (one(key).unwrap_or_default(), key.flag.map_or(&[][..], |flag| flag.separators));
            text.split(separators).map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        Self {
            listen: several(&keys::LISTEN.entry),
            admin: one(&keys::ADMIN.entry),
            admin_token: one(&keys::ADMIN_TOKEN.entry),
            clients: several(&keys::CLIENTS.entry),
            limits: several(&keys::RULES.entry),
            threads: one(&keys::THREADS.entry),
            max_memory: one(&keys::MAX_MEMORY.entry),
            log: one(&keys::LOG.entry),
            access_log: one(&keys::ACCESS_LOG.entry),
            otlp: one(&keys::OTLP.entry),
            otel: OtelVariables::read(&variable),
            intercept: several(&keys::INTERCEPT.entry),
            upstream_ca: several(&keys::UPSTREAM_CA.entry),
            data: one(&keys::DATA.entry),
            state: one(&keys::STATE.entry),
            store: one(&keys::STORE.entry),
            spend: one(&keys::SPEND.entry),
            trust: one(&keys::TRUST.entry),
            retry: one(&keys::RETRY.entry),
            breaker: one(&keys::BREAKER.entry),
            log_filter: variable(LOG_FILTER).filter(|text| !text.trim().is_empty()),
            unknown: names
                .into_iter()
                .filter(|name| name.starts_with(PREFIX) && !is_known(name) && !is_of_kubernetes(name, &variable))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_hold_several_values_and_empty_ones_say_nothing() {
        let settings = Settings::from_environment([], |name| match name {
            "ANDANTE_LISTEN" => Some("127.0.0.1:1, [::1]:1".into()),
            "ANDANTE_LIMIT" => Some("a=1/s,2/min; b=3/s\nc=4/s;\n".into()),
            "ANDANTE_ADMIN" => Some(String::new()),
            "ANDANTE_INTERCEPT" => Some("a,*.b:8443".into()),
            "ANDANTE_UPSTREAM_CA" => Some("/etc/own ca.pem".into()),
            "ANDANTE_DATA" => Some("/var/lib/andante".into()),
            _ => None,
        });
        assert_eq!(settings.intercept, ["a", "*.b:8443"]);
        assert_eq!(settings.upstream_ca, ["/etc/own ca.pem"]);
        assert_eq!(settings.data.as_deref(), Some("/var/lib/andante"));
        assert_eq!(settings.listen, ["127.0.0.1:1", "[::1]:1"]);
        assert_eq!(settings.limits, ["a=1/s,2/min", "b=3/s", "c=4/s"]);
        assert_eq!(settings.admin, None);
    }

    #[test]
    fn a_file_that_is_not_there_is_read_as_its_error() {
        assert!(File::read("no/such/file.toml").content.is_err());
    }
}
