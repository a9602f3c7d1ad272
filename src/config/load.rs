//! Combines the sources, flags over environment over file, and checks the result.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use super::{
    check,
    diagnostic::{Diagnostic, Spanned},
    files::{FileRef, PemKind},
    fleet::FleetConfig,
    layer::{FileLayer, Layer},
    model::{Config, LogFormat, Timeouts},
    otlp::OtlpConfig,
    rules::{self, RuleExtent},
    source::Sources,
};

/// A configuration with all of its problems, including those of its files.
#[derive(Debug)]
pub struct Checked {
    /// Configuration that andante runs with if the problems include no error; otherwise the readable parts.
    pub config: Config,
    /// Errors and warnings, in the order of the lines.
    pub problems: Vec<Diagnostic>,
    /// Names of the rules; true for a rule without errors.
    pub rules: Vec<(Arc<str>, bool)>,
}

/// The result of reading the sources.
struct Loaded {
    config: Config,
    problems: Vec<Diagnostic>,
    /// The files that the configuration names.
    files: Vec<FileRef>,
    /// The rules of the file.
    rules: Vec<RuleExtent>,
}

/// Problems of the content of `files`.
fn look(files: &[FileRef]) -> Vec<Diagnostic> {
    let mut looked: Vec<Diagnostic> = files.iter().filter_map(FileRef::look).collect();
    // A certificate's file may appear twice, because it may contain the key too.
    looked.dedup();
    looked
}

// === impl Checked ===

impl Checked {
    /// Returns whether andante would start.
    pub fn is_good(&self) -> bool {
        !self.problems.iter().any(Diagnostic::is_error)
    }

    /// Returns whether a running andante can apply it. Expired certificates do not prevent other changes: a start
    /// reports them as well.
    pub fn is_usable(&self) -> bool {
        !self.problems.iter().any(|problem| problem.is_error() && !problem.is_expiry())
    }
}

// === impl Config ===

impl Config {
    /// Combines `sources`: flags win over the environment, the environment over the file.
    ///
    /// Returns the configuration with its warnings, or all errors and warnings, in the order of the lines. Does no I/O:
    /// the sources were read before.
    pub fn load(sources: &Sources) -> Result<(Self, Vec<Diagnostic>), Vec<Diagnostic>> {
        Self::load_over(Self::default(), sources)
    }

    /// Like [`load`](Self::load), with `base` instead of the defaults. Ignores `clients` of `base`, and all of its
    /// rules except the interception.
    pub fn load_over(base: Self, sources: &Sources) -> Result<(Self, Vec<Diagnostic>), Vec<Diagnostic>> {
        let Loaded { config, problems, .. } = Self::read(base, sources);
        let problems = in_order(problems);
        if problems.iter().any(Diagnostic::is_error) { Err(problems) } else { Ok((config, problems)) }
    }

    /// Like [`load`](Self::load), and then opens the configured files: the problems include theirs.
    pub fn check(sources: &Sources) -> Checked {
        let Loaded { config, mut problems, files, rules } = Self::read(Self::default(), sources);
        problems.extend(look(&files));
        let errors = || problems.iter().filter(|problem| problem.is_error());
        let rules = rules.into_iter().map(|rule| {
            let good = !errors().any(|error| rule.holds(&error.place));
            (rule.name, good)
        });
        Checked { rules: rules.collect(), config, problems: in_order(problems) }
    }

    /// Opens the files that `sources` name, and returns their problems.
    pub fn check_files(sources: &Sources) -> Vec<Diagnostic> {
        in_order(look(&Self::read(Self::default(), sources).files))
    }

    /// Reads the sources as far as possible; the problems are unordered.
    fn read(base: Self, sources: &Sources) -> Loaded {
        let (mut problems, mut files) = (Vec::new(), Vec::new());
        let (said, file) = layers(sources, base.timeouts, &mut problems);
        let rules = rules::extents(&file.rules);
        let config = Self::combine(base, said, file, &mut problems, &mut files);
        let file = sources.file.as_ref().map(|file| file.path.clone());
        Loaded { config: Self { file, ..config }, problems, files, rules }
    }

    /// The address of the admin pages of an andante with these `sources`. Ignores other errors, because the file may
    /// have been edited since that andante started.
    pub fn admin_of(sources: &Sources) -> Result<Option<SocketAddr>, Vec<Diagnostic>> {
        let (base, mut problems) = (Self::default(), Vec::new());
        let (said, _) = layers(sources, base.timeouts, &mut problems);
        if let Some(admin) = said.admin {
            return Ok(admin.value);
        }
        problems.retain(|problem| problem.is_error() && problem.key.as_deref().is_none_or(|key| key == "admin"));
        if problems.is_empty() { Ok(base.admin) } else { Err(problems) }
    }

    /// Log format in `sources`, whatever their errors.
    pub fn log_of(sources: &Sources) -> LogFormat {
        let base = Self::default();
        let (said, _) = layers(sources, base.timeouts, &mut Vec::new());
        said.log.map_or(base.log, |log| log.value)
    }

    /// The parts of a configuration that its workers depend on: `listen`, `data` and the rules. Ignores errors in other
    /// keys, because the file may have been edited since that andante started.
    ///
    /// # Errors
    /// If `listen` or `data` cannot be read, or nothing can.
    pub fn for_workers(sources: &Sources) -> Result<Self, Vec<Diagnostic>> {
        let (base, mut problems) = (Self::default(), Vec::new());
        layers(sources, base.timeouts, &mut problems);
        let concerns = |key: &str| key == "data" || key.starts_with("listen");
        problems.retain(|problem| problem.is_error() && problem.key.as_deref().is_none_or(concerns));
        if problems.is_empty() { Ok(Self::read(base, sources).config) } else { Err(problems) }
    }

    /// Overlays `base` with the values in `said` and in the `file`, and checks the result.
    fn combine(
        base: Self,
        mut said: Layer,
        file: FileLayer,
        problems: &mut Vec<Diagnostic>,
        files: &mut Vec<FileRef>,
    ) -> Self {
        let fleet = fleet(&mut said, file.in_flight_hold, base.fleet, problems);
        let listen = said.listen.unwrap_or_else(|| base.listen.iter().copied().map(Spanned::default).collect());
        let admin = said.admin.unwrap_or_else(|| Spanned::default(base.admin));
        // A list of clients with a mistake is not a missing list: only the mistake is reported.
        let named = said.clients.as_ref().is_some_and(|clients| !clients.is_empty());
        let mistaken =
            problems.iter().any(|problem| problem.key.as_deref().is_some_and(|key| key.starts_with("clients")));
        let clients = check::clients(said.clients, problems);
        check::addresses(&listen, &admin, named || mistaken, problems);

        let mut rules = file.rules;
        rules::overlay(&mut rules, said.limits, problems);
        rules::settle_waits(&mut rules);
        rules::settle_uncosted(&mut rules);
        rules::check(&rules, problems);
        if fleet.store.is_some() {
            rules::divide(&mut rules, fleet.size, problems);
            rules::floors(&rules, fleet.down, problems);
        }
        let (interception, named) = check::interception(said.intercept, base.rules.interception(), problems);
        rules::intercepted(&rules, &named, problems);

        files.extend(said.admin_token.clone().map(|token| FileRef::new(token, PemKind::Token)));
        files.extend(FileRef::all(said.upstream_ca.as_deref(), PemKind::Authorities));
        files.extend(FileRef::all(file.upstream_crl.as_deref(), PemKind::RevocationLists));
        files.extend(rules::files(&rules).cloned());
        Self {
            listen: values(listen),
            admin: admin.value,
            admin_token: said.admin_token.map_or(base.admin_token, |token| Some(token.value)),
            threads: said.threads.map_or(base.threads, |threads| threads.value),
            max_memory: said.max_memory.map_or(base.max_memory, |bytes| bytes.value),
            log: said.log.map_or(base.log, |log| log.value),
            access_log: said.access_log.map_or(base.access_log, |access_log| access_log.value),
            otlp: OtlpConfig::settle(said.otlp.map(|otlp| otlp.value), &said.otel, problems),
            clients,
            identity: file.identity.unwrap_or(base.identity),
            drain: file.drain.unwrap_or(base.drain),
            timeouts: file.timeouts.unwrap_or(base.timeouts),
            rules: rules::finish(rules, said.answers).intercepting(interception),
            gateways: file.gateways.unwrap_or(base.gateways),
            upstream_ca: said.upstream_ca.map_or(base.upstream_ca, values),
            upstream_crl: file.upstream_crl.map_or(base.upstream_crl, values),
            dns: file.dns.unwrap_or(base.dns),
            data: said.data.map_or(base.data, |data| Some(data.value)),
            state: said.state.map_or(base.state, |state| state.value),
            fleet,
            file: None,
        }
    }
}

/// Overlays `base` with the terms of the fleet in `said`, and with the file's `hold`.
fn fleet(said: &mut Layer, hold: Option<Duration>, base: FleetConfig, problems: &mut Vec<Diagnostic>) -> FleetConfig {
    let size = said.fleet_size.take().map(|size| size.value).or(base.size);
    FleetConfig {
        down: check::store_down(said.store_down.take(), said.floor.take(), size, problems),
        store: said.store.take().map_or(base.store, |store| store.value),
        lease: said.lease.take().map_or(base.lease, |lease| lease.value),
        in_flight_hold: hold.unwrap_or(base.in_flight_hold),
        size,
    }
}

/// Values from the strongest source that has them, and the values that only a file can have.
fn layers(sources: &Sources, base: Timeouts, problems: &mut Vec<Diagnostic>) -> (Layer, FileLayer) {
    let mut file = sources.file.as_ref().map(|file| FileLayer::read(file, base, problems)).unwrap_or_default();
    let environment = Layer::environment(&sources.environment, problems);
    let flags = Layer::flags(&sources.flags, problems);
    (flags.or(environment).or(std::mem::take(&mut file.common)), file)
}

/// Sorts errors before warnings, which may follow from them; each kind by line.
fn in_order(mut problems: Vec<Diagnostic>) -> Vec<Diagnostic> {
    problems.sort_by(|a, b| b.is_error().cmp(&a.is_error()).then_with(|| a.place.cmp(&b.place)));
    problems
}

fn values<T>(placed: Vec<Spanned<T>>) -> Vec<T> {
    placed.into_iter().map(|placed| placed.value).collect()
}
