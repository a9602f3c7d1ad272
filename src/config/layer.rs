//! A single source: a file, the environment, or the flags. Reads the whole source, and compares nothing.

use std::{
    net::SocketAddr,
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    time::Duration,
};

use super::{
    answers::AnswerKeys,
    diagnostic::{Diagnostic, Place, Spanned},
    fleet::StoreUrl,
    gateways,
    keys::{self, Flag, Key},
    model::{AccessLog, Dns, LogFormat, StatePlace, Timeouts},
    otlp::{OtelVariables, OtlpUrl},
    reader::{self, Reader, Table},
    rules::{self, RawRule},
    source::{self, File, Settings},
    synonyms,
    value::{
        ClientEntry, WhenDown, log_filter,
        preset::{PRESETS, Preset},
        upstream::Resolver,
    },
};
use crate::{
    limit::Limits,
    policy::{ClientIdentity, Gateway, HostPattern},
};

/// Values that every source can have.
#[derive(Default)]
pub(super) struct Layer {
    pub(super) listen: Option<Vec<Spanned<SocketAddr>>>,
    pub(super) admin: Option<Spanned<Option<SocketAddr>>>,
    pub(super) admin_token: Option<Spanned<PathBuf>>,
    pub(super) threads: Option<Spanned<Option<NonZeroUsize>>>,
    pub(super) max_memory: Option<Spanned<Option<u64>>>,
    pub(super) log: Option<Spanned<LogFormat>>,
    pub(super) access_log: Option<Spanned<Option<AccessLog>>>,
    pub(super) otlp: Option<Spanned<Option<OtlpUrl>>>,
    pub(super) otel: OtelVariables,
    pub(super) clients: Option<Vec<Spanned<ClientEntry>>>,
    /// Limits by host; a file has them in its rules instead.
    pub(super) limits: Vec<Spanned<(HostPattern, Limits)>>,
    pub(super) intercept: Option<Vec<Spanned<Option<HostPattern>>>>,
    pub(super) upstream_ca: Option<Vec<Spanned<PathBuf>>>,
    pub(super) data: Option<Spanned<PathBuf>>,
    pub(super) state: Option<Spanned<StatePlace>>,
    pub(super) store: Option<Spanned<Option<StoreUrl>>>,
    pub(super) lease: Option<Spanned<Duration>>,
    pub(super) fleet_size: Option<Spanned<NonZeroU32>>,
    pub(super) store_down: Option<Spanned<WhenDown>>,
    pub(super) floor: Option<Spanned<u8>>,
    /// The defaults of rules, and of hosts without a rule.
    pub(super) answers: AnswerKeys,
}

/// Values that only a file can have, and the common ones.
#[derive(Default)]
pub(super) struct FileLayer {
    pub(super) common: Layer,
    pub(super) identity: Option<ClientIdentity>,
    pub(super) drain: Option<Duration>,
    pub(super) timeouts: Option<Timeouts>,
    pub(super) upstream_crl: Option<Vec<Spanned<PathBuf>>>,
    pub(super) dns: Option<Dns>,
    pub(super) in_flight_hold: Option<Duration>,
    pub(super) gateways: Option<Vec<Gateway>>,
    pub(super) rules: Vec<RawRule>,
}

/// Reads the texts of flags or variables.
struct SettingsReader<'a> {
    /// Place of a flag's text.
    place: fn(Flag) -> Place,
    problems: &'a mut Vec<Diagnostic>,
}

// === impl FileLayer ===

impl FileLayer {
    /// Reads a file, and continues after each error.
    pub(super) fn read(file: &File, base: Timeouts, problems: &mut Vec<Diagnostic>) -> Self {
        match text(file) {
            Ok(text) => {
                let mut reader = Reader::new(&file.path, text);
                let root = reader::parse(&mut reader);
                let layer = root.as_ref().map(|root| Self::from_root(&mut reader, &Table::root(root), base));
                problems.append(&mut reader.problems);
                layer.unwrap_or_default()
            }
            Err(problem) => {
                problems.push(problem);
                Self::default()
            }
        }
    }

    fn from_root<'a>(reader: &mut Reader<'a>, root: &Table<'a>, base: Timeouts) -> Self {
        reader.only(root, &keys::TOP);
        let data = reader.one(root, &keys::DATA);
        let admin_token = reader.one(root, &keys::ADMIN_TOKEN);
        let state = state(reader, root);
        Self {
            common: Layer {
                listen: listen(reader, root),
                admin: reader.one(root, &keys::ADMIN),
                admin_token: admin_token.map(|token| reader.beside(token)),
                threads: reader.one(root, &keys::THREADS),
                max_memory: reader.one(root, &keys::MAX_MEMORY),
                log: reader.one(root, &keys::LOG),
                access_log: access_log(reader, root),
                otlp: reader.one(root, &keys::OTLP),
                otel: OtelVariables::default(),
                clients: reader.several(root, &keys::CLIENTS).map(|clients| clients.value),
                limits: Vec::new(),
                intercept: reader.several(root, &keys::INTERCEPT).map(|hosts| hosts.value),
                upstream_ca: reader.files(root, &keys::UPSTREAM_CA),
                data: data.map(|data| reader.beside(data)),
                state,
                store: reader.one(root, &keys::STORE),
                lease: reader.one(root, &keys::LEASE),
                fleet_size: reader.one(root, &keys::FLEET_SIZE),
                store_down: reader.one(root, &keys::STORE_DOWN),
                floor: reader.one(root, &keys::FLOOR),
                answers: AnswerKeys::read(reader, root),
            },
            identity: reader.one(root, &keys::IDENTITY).map(|identity| identity.value),
            drain: reader.one(root, &keys::DRAIN).map(|drain| drain.value),
            timeouts: Some(timeouts(reader, root, base)),
            upstream_crl: reader.files(root, &keys::UPSTREAM_CRL),
            dns: dns(reader, root),
            in_flight_hold: reader.one(root, &keys::IN_FLIGHT_HOLD).map(|hold| hold.value),
            gateways: root.has("gateway").then(|| gateways::read(reader, root)),
            rules: rules::read(reader, root),
        }
    }
}

/// A path in a configuration file is relative to that file's folder.
fn state<'a>(reader: &mut Reader<'a>, root: &Table<'a>) -> Option<Spanned<StatePlace>> {
    let mut written = reader.one(root, &keys::STATE)?;
    if let StatePlace::At(path) = &mut written.value {
        *path = reader.folder().join(&*path);
    }
    Some(written)
}

fn access_log<'a>(reader: &mut Reader<'a>, root: &Table<'a>) -> Option<Spanned<Option<AccessLog>>> {
    let mut written = reader.one(root, &keys::ACCESS_LOG)?;
    if let Some(AccessLog::File(path)) = &mut written.value {
        *path = reader.folder().join(&*path);
    }
    Some(written)
}

fn listen<'a>(reader: &mut Reader<'a>, root: &Table<'a>) -> Option<Vec<Spanned<SocketAddr>>> {
    let before = reader.problems.len();
    let listen = reader.several(root, &keys::LISTEN)?;
    if listen.value.is_empty() && reader.problems.len() == before {
        let problem = Diagnostic::error(
            &listen,
            "expected at least one address, found an empty list",
            format!("write {}", keys::LISTEN.grammar.example),
        );
        reader.problems.push(problem);
    }
    Some(listen.value)
}

fn timeouts<'a>(reader: &mut Reader<'a>, root: &Table<'a>, mut timeouts: Timeouts) -> Timeouts {
    let Some(table) = reader.table(root, "timeouts", "timeouts.") else { return timeouts };
    reader.only(&table, &keys::TIMEOUT);
    for (key, timeout) in [
        (keys::CONNECT, &mut timeouts.connect),
        (keys::ANSWER, &mut timeouts.answer),
        (keys::IDLE, &mut timeouts.idle),
        (keys::HEAD, &mut timeouts.head),
        (keys::KEEP_ALIVE, &mut timeouts.keep_alive),
        (keys::UPSTREAM_KEEP_ALIVE, &mut timeouts.upstream_keep_alive),
        (keys::UPSTREAM_MAX_AGE, &mut timeouts.upstream_max_age),
    ] {
        if let Some(written) = reader.one(&table, &key) {
            *timeout = written.value;
        }
    }
    timeouts
}

fn dns<'a>(reader: &mut Reader<'a>, root: &Table<'a>) -> Option<Dns> {
    let before = reader.problems.len();
    let dns = reader.several(root, &keys::DNS)?;
    let mut servers = Vec::new();
    for entry in &dns.value {
        match entry.value {
            Resolver::Server(server) => servers.push(server),
            Resolver::Cached if dns.value.len() == 1 => return Some(Dns::Cached),
            Resolver::System if dns.value.len() == 1 => return Some(Dns::System),
            Resolver::Cached | Resolver::System => {
                let what = format!("{:?} makes what is beside it meaningless", entry.text);
                let hint = "write it alone, or the servers without it";
                reader.problems.push(Diagnostic::error(entry, what, hint));
            }
        }
    }
    if servers.is_empty() && reader.problems.len() == before {
        let hint = format!("write {}", keys::DNS.grammar.example);
        reader.problems.push(Diagnostic::error(&dns, "expected at least one server, found an empty list", hint));
    }
    Some(Dns::Servers(servers))
}

fn name(file: &File) -> std::sync::Arc<str> {
    file.path.to_string_lossy().into()
}

/// The text of `file`, or the reason why there is none.
fn text(file: &File) -> Result<&str, Diagnostic> {
    let at = |at| Spanned { value: (), text: String::new(), key: None, place: Place::File { name: name(file), at } };
    let bytes = file.content.as_ref().map_err(|error| {
        Diagnostic::error(
            &at(None),
            format!("cannot be read: {error}"),
            "name a file that exists and that andante may read",
        )
    })?;
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
        Diagnostic::error(&at(Some((line, column))), "not UTF-8", "save the file as UTF-8, as TOML demands")
    })?;
    match PRESETS.iter().find(|preset| preset.text == text) {
        Some(Preset { name, .. }) => {
            let hint =
                format!("write preset = \"{name}\" in a [[rule]] for the API's host: andante has its text already");
            Err(Diagnostic::error(&at(None), "this is a preset for rules, and no configuration", hint))
        }
        None => Ok(text),
    }
}

// === impl Layer ===

impl Layer {
    /// Fills in the gaps from `weaker`. Limits are for one host each, so both lists are kept, these first.
    pub(super) fn or(mut self, weaker: Self) -> Self {
        self.limits.extend(weaker.limits);
        Self {
            listen: self.listen.or(weaker.listen),
            admin: self.admin.or(weaker.admin),
            admin_token: self.admin_token.or(weaker.admin_token),
            threads: self.threads.or(weaker.threads),
            max_memory: self.max_memory.or(weaker.max_memory),
            log: self.log.or(weaker.log),
            access_log: self.access_log.or(weaker.access_log),
            otlp: self.otlp.or(weaker.otlp),
            otel: self.otel.or(weaker.otel),
            clients: self.clients.or(weaker.clients),
            limits: self.limits,
            intercept: self.intercept.or(weaker.intercept),
            upstream_ca: self.upstream_ca.or(weaker.upstream_ca),
            data: self.data.or(weaker.data),
            state: self.state.or(weaker.state),
            store: self.store.or(weaker.store),
            lease: self.lease.or(weaker.lease),
            fleet_size: self.fleet_size.or(weaker.fleet_size),
            store_down: self.store_down.or(weaker.store_down),
            floor: self.floor.or(weaker.floor),
            answers: self.answers.or(weaker.answers),
        }
    }

    /// Reads the variables.
    pub(super) fn environment(said: &Settings, problems: &mut Vec<Diagnostic>) -> Self {
        problems.extend(said.unknown.iter().filter_map(|name| slip(name)));
        problems.extend(said.log_filter.as_deref().and_then(not_a_log_filter));
        Self::read(said, &mut SettingsReader { place: |flag| Place::Variable(flag.variable.into()), problems })
    }

    /// Reads the flags.
    pub(super) fn flags(said: &Settings, problems: &mut Vec<Diagnostic>) -> Self {
        Self::read(said, &mut SettingsReader { place: |flag| Place::Flag(flag.name), problems })
    }

    fn read(said: &Settings, words: &mut SettingsReader<'_>) -> Self {
        let clients = words.several(&said.clients, &keys::CLIENTS);
        let intercept = words.several(&said.intercept, &keys::INTERCEPT);
        let upstream_ca = words.several(&said.upstream_ca, &keys::UPSTREAM_CA);
        let answers = AnswerKeys {
            spend: words.one(said.spend.as_deref(), &keys::SPEND).map(|said| said.value),
            trust: words.one(said.trust.as_deref(), &keys::TRUST).map(|said| said.value),
            retry: words.one(said.retry.as_deref(), &keys::RETRY).map(|said| said.value),
            body: None,
            tries: None,
            breaker: words.one(said.breaker.as_deref(), &keys::BREAKER).map(|said| said.value),
        };
        let listen = words.several(&said.listen, &keys::LISTEN);
        Self {
            listen: (!said.listen.is_empty()).then_some(listen),
            admin: words.one(said.admin.as_deref(), &keys::ADMIN),
            admin_token: words.one(said.admin_token.as_deref(), &keys::ADMIN_TOKEN),
            threads: words.one(said.threads.as_deref(), &keys::THREADS),
            max_memory: words.one(said.max_memory.as_deref(), &keys::MAX_MEMORY),
            log: words.one(said.log.as_deref(), &keys::LOG),
            access_log: words.one(said.access_log.as_deref(), &keys::ACCESS_LOG),
            otlp: words.one(said.otlp.as_deref(), &keys::OTLP),
            otel: said.otel.clone(),
            clients: (!said.clients.is_empty()).then_some(clients),
            limits: words.several(&said.limits, &keys::RULES),
            intercept: (!said.intercept.is_empty()).then_some(intercept),
            upstream_ca: (!said.upstream_ca.is_empty()).then_some(upstream_ca),
            data: words.one(said.data.as_deref(), &keys::DATA),
            state: words.one(said.state.as_deref(), &keys::STATE),
            store: words.one(said.store.as_deref(), &keys::STORE),
            lease: words.one(said.lease.as_deref(), &keys::LEASE),
            fleet_size: words.one(said.fleet_size.as_deref(), &keys::FLEET_SIZE),
            store_down: words.one(said.store_down.as_deref(), &keys::STORE_DOWN),
            floor: words.one(said.floor.as_deref(), &keys::FLOOR),
            answers,
        }
    }
}

// === impl SettingsReader ===

impl SettingsReader<'_> {
    fn several<T>(&mut self, texts: &[String], key: &Key<T>) -> Vec<Spanned<T>> {
        texts.iter().filter_map(|text| self.one(Some(text), key)).collect()
    }

    fn one<T>(&mut self, text: Option<&str>, key: &Key<T>) -> Option<Spanned<T>> {
        let text = text?;
        let place = (self.place)(key.entry.flag.expect("only keys with a flag are read here"));
        match key.read(text) {
            Ok(value) => Some(Spanned { value, text: text.to_owned(), key: None, place }),
            Err(wrong) => {
                let at = Spanned { value: (), text: String::new(), key: None, place };
                // Quotes belong into files: a shell would take them literally or remove them.
                self.problems.push(Diagnostic::error(&at, wrong.what, wrong.hint.replace('"', "")));
                None
            }
        }
    }
}

/// Problem with `text` in `ANDANTE_LOG`, which has no key in files.
fn not_a_log_filter(text: &str) -> Option<Diagnostic> {
    let wrong = log_filter::LOG_FILTER.read(text).err()?;
    let at = Spanned { place: Place::Variable(source::LOG_FILTER.into()), ..Spanned::default(()) };
    Some(Diagnostic::error(&at, wrong.what, wrong.hint))
}

/// Reports an unknown variable with andante's prefix. The problem is an error if the intended variable is clear:
/// andante must not start without a limit that the user tried to set.
fn slip(name: &str) -> Option<Diagnostic> {
    let plain = |name: &str| name[source::PREFIX.len()..].to_ascii_lowercase().replace('_', "-");
    let known: Vec<&str> = keys::with_flags().map(|(_, flag)| flag.variable).chain(source::NO_KEYS).collect();
    let words: Vec<String> = known.iter().map(|name| plain(name)).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let spelled_like = || {
        let meant = reader::nearest(&plain(name), &words)?;
        let (variable, _) = known.iter().zip(&words).find(|(_, word)| **word == meant)?;
        Some(format!("write {variable}"))
    };
    let at = Spanned { place: Place::Variable(name.to_owned().into()), ..Spanned::default(()) };
    let what = "andante knows no such variable";
    match synonyms::variable(name).or_else(spelled_like) {
        Some(hint) => Some(Diagnostic::error(&at, what, hint)),
        None => Some(Diagnostic::warning(&at, what, format!("it says nothing; known are {}", known.join(", ")))),
    }
}
