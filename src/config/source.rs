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

/// All sources of a configuration. Flags win over environment, environment over file.
#[derive(Debug, Default)]
pub struct Sources {
    /// The configuration file, if one is given.
    pub file: Option<File>,
    /// Values of `ANDANTE_…` variables.
    pub environment: Settings,
    /// Values of flags.
    pub flags: Settings,
}

/// A configuration file with its content.
pub struct File {
    /// Name of the file as given.
    pub path: PathBuf,
    /// Content of the file, or the error of reading it, which is reported along with other problems.
    pub content: io::Result<Vec<u8>>,
}

/// Texts of flags or variables.
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
    /// `OTEL_…` variables, which every SDK reads.
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
    /// `--lease`, `ANDANTE_LEASE`.
    pub lease: Option<String>,
    /// `--fleet-size`, `ANDANTE_FLEET_SIZE`.
    pub fleet_size: Option<String>,
    /// `--store-down`, `ANDANTE_STORE_DOWN`.
    pub store_down: Option<String>,
    /// `--floor`, `ANDANTE_FLOOR`.
    pub floor: Option<String>,
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
    /// Unknown variables with andante's prefix.
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

// Leaves out the bytes, which may contain passwords.
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

/// Returns whether a variable is one of andante's.
fn is_known(name: &str) -> bool {
    NO_KEYS.contains(&name) || keys::with_flags().any(|(_, flag)| flag.variable == name)
}

/// Returns whether a variable is one that Kubernetes makes for a service whose name begins with `andante`:
/// `ANDANTE_PORT`, `ANDANTE_SERVICE_HOST`, `ANDANTE_GATEWAY_PORT_3128_TCP_ADDR`
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

/// Prefix of andante's variables.
pub(super) const PREFIX: &str = "ANDANTE_";
/// Variables without an equivalent key.
pub(super) const NO_KEYS: [&str; 2] = ["ANDANTE_CONFIG", LOG_FILTER];
/// Filter of the log; read as soon as there is something to log.
pub(super) const LOG_FILTER: &str = "ANDANTE_LOG";
/// The largest file that is read, in bytes.
const MOST_BYTES: u64 = 4 * 1024 * 1024;

// === impl Settings ===

impl Settings {
    /// Values of the environment with these `names`; `variable` looks one up. An empty variable counts as unset,
    /// because container platforms unset variables that way.
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
            lease: one(&keys::LEASE.entry),
            fleet_size: one(&keys::FLEET_SIZE.entry),
            store_down: one(&keys::STORE_DOWN.entry),
            floor: one(&keys::FLOOR.entry),
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
