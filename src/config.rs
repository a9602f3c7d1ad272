//! The checked configuration: everything that andante runs on, free of contradictions. Starts nothing.

mod answers;
mod check;
pub mod duration;
mod files;
mod gateways;
mod layer;
mod problem;
mod reader;
mod rules;
mod source;
#[cfg(test)]
mod tests;
mod value;

use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf, sync::Arc, time::Duration};

use ipnet::IpNet;

use self::{
    files::{Holds, Named},
    layer::{FileLayer, Layer},
    problem::Placed,
    rules::Extent,
};
pub use self::{
    problem::{Place, Problem, Severity},
    source::{File, Settings, Sources},
};
use crate::policy::{Gateway, Rules};

/// All that a running andante needs to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where workers connect.
    pub listen: Vec<SocketAddr>,
    /// Where `/metrics`, `/status`, `/healthz` and `/readyz` answer; `None` switches them off.
    pub admin: Option<SocketAddr>,
    /// Runtime threads; `None` is one per core, four at most.
    pub threads: Option<NonZeroUsize>,
    /// How logs are written.
    pub log: LogFormat,
    /// Where each request is logged; `None` is nowhere.
    pub access_log: Option<AccessLog>,
    /// Who may use the proxy.
    pub clients: Clients,
    /// How long queued and running requests may take to finish after SIGTERM.
    pub drain: Duration,
    /// Bounds on everything that can hang.
    pub timeouts: Timeouts,
    /// Which limits hold where.
    pub rules: Rules,
    /// Paths that stand for an API: `/openai` for `https://api.openai.com`.
    pub gateways: Vec<Gateway>,
    /// PEM files with authorities that upstreams are verified by, besides the system's.
    pub upstream_ca: Vec<PathBuf>,
    /// PEM files with lists of certificates that are revoked.
    pub upstream_crl: Vec<PathBuf>,
    /// Who resolves names.
    pub dns: Dns,
    /// Where the certificate authority is kept; `None` is the user's own place for such things.
    pub data: Option<PathBuf>,
    /// The file it came from, if any.
    pub file: Option<PathBuf>,
}

/// A configuration that was looked at closely, with all that is wrong with it.
#[derive(Debug)]
pub struct Checked {
    /// As much as could be made of it: what andante runs on, if there is no error among the problems.
    pub config: Config,
    /// Errors and warnings, in the order of the lines.
    pub problems: Vec<Problem>,
    /// The names of the rules, and whether each is without an error.
    pub rules: Vec<(Arc<str>, bool)>,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One object a line.
    Json,
}

/// Where a line for each request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// Standard output.
    Stdout,
    /// Standard error, with the rest of the log.
    Stderr,
    /// A file, to whose end it is added.
    File(PathBuf),
}

/// Who resolves names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Dns {
    /// The servers of `/etc/resolv.conf`, and `/etc/hosts`; answers are kept for as long as they say.
    #[default]
    Cached,
    /// The system's resolver, with all that `/etc/nsswitch.conf` has in it; nothing is kept.
    System,
    /// These servers; answers are kept for as long as they say.
    Servers(Vec<SocketAddr>),
}

/// Who may use the proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Clients {
    /// Whoever reaches a loopback address: the default, and only good for loopback listeners.
    #[default]
    Loopback,
    /// Loopback and these networks.
    Networks(Vec<IpNet>),
    /// Anybody who can connect: said explicitly (`clients = ["any"]`), never a default.
    Any,
}

/// Bounds on everything that can hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Resolving and connecting to an upstream.
    pub connect: Duration,
    /// From the request's last byte to the answer's head.
    pub answer: Duration,
    /// Silence in the middle of a body or a tunnel, in either direction.
    pub idle: Duration,
    /// From the first byte of a request's head to its last.
    pub head: Duration,
    /// A worker's connection without a request.
    pub keep_alive: Duration,
    /// An unused connection to an upstream.
    pub upstream_keep_alive: Duration,
}

/// What reading the sources has brought.
struct Found {
    config: Config,
    problems: Vec<Problem>,
    /// The files that are named.
    files: Vec<Named>,
    /// The rules of the file.
    rules: Vec<Extent>,
}

// === impl Checked ===

impl Checked {
    /// Whether andante would start.
    pub fn is_good(&self) -> bool {
        !self.problems.iter().any(Problem::is_error)
    }
}

// === impl Config ===

impl Config {
    /// Puts together what `sources` say. Flags win over environment, environment over file.
    ///
    /// Returns the configuration and warnings about it, or all that is wrong, errors and warnings, in the order of the
    /// lines. Does no I/O: the sources have been read.
    pub fn load(sources: &Sources) -> Result<(Self, Vec<Problem>), Vec<Problem>> {
        Self::load_over(Self::default(), sources)
    }

    /// Like [`load`](Self::load), with `base` in the place of the defaults. Its clients do not count, and of its rules
    /// only what they say of interception.
    pub fn load_over(base: Self, sources: &Sources) -> Result<(Self, Vec<Problem>), Vec<Problem>> {
        let Found { config, problems, .. } = Self::read(base, sources);
        let problems = in_order(problems);
        if problems.iter().any(Problem::is_error) { Err(problems) } else { Ok((config, problems)) }
    }

    /// Like [`load`](Self::load), and then opens the files that are named: what is wrong with them is among the
    /// problems.
    pub fn check(sources: &Sources) -> Checked {
        let Found { config, mut problems, files, rules } = Self::read(Self::default(), sources);
        let mut looked: Vec<Problem> = files.iter().filter_map(Named::look).collect();
        // A certificate's file is opened once more for its key.
        looked.dedup();
        problems.append(&mut looked);
        let errors = || problems.iter().filter(|problem| problem.is_error());
        let rules = rules.into_iter().map(|rule| {
            let good = !errors().any(|error| rule.holds(&error.place));
            (rule.name, good)
        });
        Checked { rules: rules.collect(), config, problems: in_order(problems) }
    }

    /// As much as can be made of the sources, with what is wrong in no order.
    fn read(base: Self, sources: &Sources) -> Found {
        let (mut problems, mut files) = (Vec::new(), Vec::new());
        let (said, file) = layers(sources, base.timeouts, &mut problems);
        let rules = rules::extents(&file.rules);
        let config = Self::combine(base, said, file, &mut problems, &mut files);
        let file = sources.file.as_ref().map(|file| file.path.clone());
        Found { config: Self { file, ..config }, problems, files, rules }
    }

    /// Where the admin pages of an andante with these `sources` are. What else is wrong with them does not matter: it may
    /// have been written after that andante has started.
    pub fn admin_of(sources: &Sources) -> Result<Option<SocketAddr>, Vec<Problem>> {
        let (base, mut problems) = (Self::default(), Vec::new());
        let (said, _) = layers(sources, base.timeouts, &mut problems);
        if let Some(admin) = said.admin {
            return Ok(admin.value);
        }
        problems.retain(|problem| problem.is_error() && problem.key.as_deref().is_none_or(|key| key == "admin"));
        if problems.is_empty() { Ok(base.admin) } else { Err(problems) }
    }

    /// Puts what was `said` in the place of `base`, and checks what came together.
    fn combine(base: Self, said: Layer, file: FileLayer, problems: &mut Vec<Problem>, files: &mut Vec<Named>) -> Self {
        let default = || base.listen.iter().map(|address| Placed::default(*address)).collect();
        let listen = said.listen.unwrap_or_else(default);
        let admin = said.admin.unwrap_or_else(|| Placed::default(base.admin));
        // A list of clients in which a mistake was found is not a missing one.
        let named = said.clients.as_ref().is_some_and(|clients| !clients.is_empty());
        let mistaken =
            problems.iter().any(|problem| problem.key.as_deref().is_some_and(|key| key.starts_with("clients")));
        let clients = check::clients(said.clients, problems);
        check::addresses(&listen, &admin, named || mistaken, problems);

        let mut rules = file.rules;
        rules::overlay(&mut rules, said.limits, problems);
        rules::check(&rules, problems);
        let (interception, named) = check::interception(said.intercept, base.rules.interception(), problems);
        rules::intercepted(&rules, &named, problems);

        files.extend(Named::all(said.upstream_ca.as_deref(), Holds::Certificates));
        files.extend(Named::all(file.upstream_crl.as_deref(), Holds::RevocationLists));
        files.extend(rules::files(&rules).cloned());
        Self {
            listen: values(listen),
            admin: admin.value,
            threads: said.threads.map_or(base.threads, |threads| threads.value),
            log: said.log.map_or(base.log, |log| log.value),
            access_log: said.access_log.map_or(base.access_log, |access_log| access_log.value),
            clients,
            drain: file.drain.unwrap_or(base.drain),
            timeouts: file.timeouts.unwrap_or(base.timeouts),
            rules: rules::finish(rules, said.answers).intercepting(interception),
            gateways: file.gateways.unwrap_or(base.gateways),
            upstream_ca: said.upstream_ca.map_or(base.upstream_ca, values),
            upstream_crl: file.upstream_crl.map_or(base.upstream_crl, values),
            dns: file.dns.unwrap_or(base.dns),
            data: said.data.map_or(base.data, |data| Some(data.value)),
            file: None,
        }
    }
}

/// What `sources` say, each value from the strongest that names it; and what only a file can say.
fn layers(sources: &Sources, base: Timeouts, problems: &mut Vec<Problem>) -> (Layer, FileLayer) {
    let mut file = sources.file.as_ref().map(|file| FileLayer::read(file, base, problems)).unwrap_or_default();
    let environment = Layer::environment(&sources.environment, problems);
    let flags = Layer::flags(&sources.flags, problems);
    (flags.or(environment).or(std::mem::take(&mut file.common)), file)
}

/// In the order of the lines.
fn in_order(mut problems: Vec<Problem>) -> Vec<Problem> {
    problems.sort_by(|a, b| a.place.cmp(&b.place));
    problems
}

fn values<T>(placed: Vec<Placed<T>>) -> Vec<T> {
    placed.into_iter().map(|placed| placed.value).collect()
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 3128))],
            admin: Some(SocketAddr::from(([127, 0, 0, 1], 9128))),
            threads: None,
            log: LogFormat::Text,
            access_log: None,
            clients: Clients::Loopback,
            drain: Duration::from_secs(30),
            timeouts: Timeouts::default(),
            rules: Rules::default(),
            gateways: Vec::new(),
            upstream_ca: Vec::new(),
            upstream_crl: Vec::new(),
            dns: Dns::default(),
            data: None,
            file: None,
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            answer: Duration::from_secs(600),
            idle: Duration::from_secs(300),
            head: Duration::from_secs(30),
            keep_alive: Duration::from_secs(600),
            upstream_keep_alive: Duration::from_secs(60),
        }
    }
}
