//! What one source says: a file, the environment, or the flags. All of it read, nothing of it compared yet.

use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf, time::Duration};

use super::{
    AccessLog, Dns, LogFormat, Timeouts,
    answers::Answers,
    gateways,
    problem::{Place, Placed, Problem},
    reader::{self, Reader, Table},
    rules::{self, Draft},
    source::{File, Settings},
    value::{self, Client, Grammar, answers, upstream, upstream::Resolver},
};
use crate::{
    limit::Limits,
    policy::{Gateway, HostPattern},
};

/// Keys outside of any table.
pub(super) const TOP: &[&str] = &[
    "listen",
    "admin",
    "threads",
    "log",
    "access-log",
    "clients",
    "drain",
    "intercept",
    "upstream-ca",
    "upstream-crl",
    "dns",
    "data",
    "spend",
    "trust",
    "retry",
    "breaker",
    "timeouts",
    "gateway",
    "rule",
];
/// Keys of `[timeouts]`.
pub(super) const TIMEOUTS: &[&str] = &["connect", "answer", "idle", "head", "keep-alive", "upstream-keep-alive"];

/// What every source can say.
#[derive(Default)]
pub(super) struct Layer {
    pub(super) listen: Option<Vec<Placed<SocketAddr>>>,
    pub(super) admin: Option<Placed<Option<SocketAddr>>>,
    pub(super) threads: Option<Placed<Option<NonZeroUsize>>>,
    pub(super) log: Option<Placed<LogFormat>>,
    pub(super) access_log: Option<Placed<Option<AccessLog>>>,
    pub(super) clients: Option<Vec<Placed<Client>>>,
    /// Limits by host; of a file these are in its rules instead.
    pub(super) limits: Vec<Placed<(HostPattern, Limits)>>,
    pub(super) intercept: Option<Vec<Placed<Option<HostPattern>>>>,
    pub(super) upstream_ca: Option<Vec<Placed<PathBuf>>>,
    pub(super) data: Option<Placed<PathBuf>>,
    /// What holds for every rule that does not say, and without one.
    pub(super) answers: Answers,
}

/// What a file can say.
#[derive(Default)]
pub(super) struct FileLayer {
    pub(super) common: Layer,
    pub(super) drain: Option<Duration>,
    pub(super) timeouts: Option<Timeouts>,
    pub(super) upstream_crl: Option<Vec<Placed<PathBuf>>>,
    pub(super) dns: Option<Dns>,
    pub(super) gateways: Option<Vec<Gateway>>,
    pub(super) rules: Vec<Draft>,
}

// === impl FileLayer ===

impl FileLayer {
    /// Reads a file; as much of it as can be read.
    pub(super) fn read(file: &File, base: Timeouts, problems: &mut Vec<Problem>) -> Self {
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
        reader.only(
            root,
            TOP,
            &[("[timeouts]", TIMEOUTS), ("a [[rule]]", rules::KEYS), ("a [[gateway]]", gateways::KEYS)],
        );
        let data = reader.one(root, "data", &upstream::FOLDER);
        Self {
            common: Layer {
                listen: listen(reader, root),
                admin: reader.one(root, "admin", &value::ADMIN),
                threads: reader.one(root, "threads", &value::THREADS),
                log: reader.one(root, "log", &value::LOG),
                access_log: access_log(reader, root),
                clients: reader.several(root, "clients", &value::CLIENT).map(|clients| clients.value),
                limits: Vec::new(),
                intercept: reader.several(root, "intercept", &value::INTERCEPT).map(|hosts| hosts.value),
                upstream_ca: reader.files(root, "upstream-ca"),
                data: data.map(|data| reader.beside(data)),
                answers: Answers::read(reader, root),
            },
            drain: reader.one(root, "drain", &value::DURATION).map(|drain| drain.value),
            timeouts: Some(timeouts(reader, root, base)),
            upstream_crl: reader.files(root, "upstream-crl"),
            dns: dns(reader, root),
            gateways: root.has("gateway").then(|| gateways::read(reader, root)),
            rules: rules::read(reader, root),
        }
    }
}

fn access_log<'a>(reader: &mut Reader<'a>, root: &Table<'a>) -> Option<Placed<Option<AccessLog>>> {
    let mut written = reader.one(root, "access-log", &value::ACCESS_LOG)?;
    if let Some(AccessLog::File(path)) = &mut written.value {
        *path = reader.folder().join(&*path);
    }
    Some(written)
}

fn listen<'a>(reader: &mut Reader<'a>, root: &Table<'a>) -> Option<Vec<Placed<SocketAddr>>> {
    let before = reader.problems.len();
    let listen = reader.several(root, "listen", &value::LISTEN)?;
    if listen.value.is_empty() && reader.problems.len() == before {
        let problem = Problem::error(
            &listen,
            "expected at least one address, found an empty list",
            format!("write {}", value::LISTEN.example),
        );
        reader.problems.push(problem);
    }
    Some(listen.value)
}

fn timeouts<'a>(reader: &mut Reader<'a>, root: &Table<'a>, mut timeouts: Timeouts) -> Timeouts {
    let Some(table) = reader.table(root, "timeouts", "timeouts.") else { return timeouts };
    reader.only(&table, TIMEOUTS, &[("a [[rule]]", rules::KEYS)]);
    let Timeouts { connect, answer, idle, head, keep_alive, upstream_keep_alive } = &mut timeouts;
    for (key, timeout) in TIMEOUTS.iter().zip([connect, answer, idle, head, keep_alive, upstream_keep_alive]) {
        if let Some(written) = reader.one(&table, key, &value::TIMEOUT) {
            *timeout = written.value;
        }
    }
    timeouts
}

fn dns<'a>(reader: &mut Reader<'a>, root: &Table<'a>) -> Option<Dns> {
    let before = reader.problems.len();
    let dns = reader.several(root, "dns", &upstream::DNS)?;
    let mut servers = Vec::new();
    for entry in &dns.value {
        match entry.value {
            Resolver::Server(server) => servers.push(server),
            Resolver::Cached if dns.value.len() == 1 => return Some(Dns::Cached),
            Resolver::System if dns.value.len() == 1 => return Some(Dns::System),
            Resolver::Cached | Resolver::System => {
                let what = format!("{:?} makes what is beside it meaningless", entry.text);
                let hint = "write it alone, or the servers without it";
                reader.problems.push(Problem::error(entry, what, hint));
            }
        }
    }
    if servers.is_empty() && reader.problems.len() == before {
        let hint = format!("write {}", upstream::DNS.example);
        reader.problems.push(Problem::error(&dns, "expected at least one server, found an empty list", hint));
    }
    Some(Dns::Servers(servers))
}

fn name(file: &File) -> std::sync::Arc<str> {
    file.path.to_string_lossy().into()
}

/// The text of `file`, or why there is none.
fn text(file: &File) -> Result<&str, Problem> {
    let at = |at| Placed { value: (), text: String::new(), key: None, place: Place::File { name: name(file), at } };
    let bytes = file.content.as_ref().map_err(|error| {
        Problem::error(
            &at(None),
            format!("cannot be read: {error}"),
            "name a file that exists and that andante may read",
        )
    })?;
    std::str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
        Problem::error(&at(Some((line, column))), "not UTF-8", "save the file as UTF-8, as TOML demands")
    })
}

// === impl Layer ===

impl Layer {
    /// This, and where it says nothing, what `weaker` says. Limits are for one host each, and stand in this order.
    pub(super) fn or(mut self, weaker: Self) -> Self {
        self.limits.extend(weaker.limits);
        Self {
            listen: self.listen.or(weaker.listen),
            admin: self.admin.or(weaker.admin),
            threads: self.threads.or(weaker.threads),
            log: self.log.or(weaker.log),
            access_log: self.access_log.or(weaker.access_log),
            clients: self.clients.or(weaker.clients),
            limits: self.limits,
            intercept: self.intercept.or(weaker.intercept),
            upstream_ca: self.upstream_ca.or(weaker.upstream_ca),
            data: self.data.or(weaker.data),
            answers: self.answers.or(weaker.answers),
        }
    }

    /// Reads what variables said.
    pub(super) fn environment(said: &Settings, problems: &mut Vec<Problem>) -> Self {
        Self::read(said, problems, |flag| {
            Place::Variable(match flag {
                "--listen" => "ANDANTE_LISTEN",
                "--admin" => "ANDANTE_ADMIN",
                "--threads" => "ANDANTE_THREADS",
                "--log" => "ANDANTE_LOG_FORMAT",
                "--access-log" => "ANDANTE_ACCESS_LOG",
                "--clients" => "ANDANTE_CLIENTS",
                "--intercept" => "ANDANTE_INTERCEPT",
                "--upstream-ca" => "ANDANTE_UPSTREAM_CA",
                "--data" => "ANDANTE_DATA",
                "--spend" => "ANDANTE_SPEND",
                "--trust" => "ANDANTE_TRUST",
                "--retry" => "ANDANTE_RETRY",
                "--breaker" => "ANDANTE_BREAKER",
                _ => "ANDANTE_LIMIT",
            })
        })
    }

    /// Reads what flags said.
    pub(super) fn flags(said: &Settings, problems: &mut Vec<Problem>) -> Self {
        Self::read(said, problems, Place::Flag)
    }

    fn read(said: &Settings, problems: &mut Vec<Problem>, place: impl Fn(&'static str) -> Place) -> Self {
        let clients = word_list(&said.clients, &place("--clients"), &value::CLIENT, problems);
        let intercept = word_list(&said.intercept, &place("--intercept"), &value::INTERCEPT, problems);
        let upstream_ca = word_list(&said.upstream_ca, &place("--upstream-ca"), &upstream::FILE, problems);
        let answers = Answers {
            spend: word(said.spend.as_deref(), &place("--spend"), &answers::SPEND, problems).map(|said| said.value),
            trust: word(said.trust.as_deref(), &place("--trust"), &answers::TRUST, problems).map(|said| said.value),
            retry: word(said.retry.as_deref(), &place("--retry"), &answers::RETRY, problems).map(|said| said.value),
            body: None,
            breaker: word(said.breaker.as_deref(), &place("--breaker"), &answers::BREAKER, problems)
                .map(|said| said.value),
        };
        let listen = word_list(&said.listen, &place("--listen"), &value::LISTEN, problems);
        Self {
            listen: (!said.listen.is_empty()).then_some(listen),
            admin: word(said.admin.as_deref(), &place("--admin"), &value::ADMIN, problems),
            threads: word(said.threads.as_deref(), &place("--threads"), &value::THREADS, problems),
            log: word(said.log.as_deref(), &place("--log"), &value::LOG, problems),
            access_log: word(said.access_log.as_deref(), &place("--access-log"), &value::ACCESS_LOG, problems),
            clients: (!said.clients.is_empty()).then_some(clients),
            limits: word_list(&said.limits, &place("--limit"), &value::LIMIT_OF_HOST, problems),
            intercept: (!said.intercept.is_empty()).then_some(intercept),
            upstream_ca: (!said.upstream_ca.is_empty()).then_some(upstream_ca),
            data: word(said.data.as_deref(), &place("--data"), &upstream::FOLDER, problems),
            answers,
        }
    }
}

fn word_list<T>(texts: &[String], place: &Place, grammar: &Grammar<T>, problems: &mut Vec<Problem>) -> Vec<Placed<T>> {
    texts.iter().filter_map(|text| word(Some(text), place, grammar, problems)).collect()
}

fn word<T>(text: Option<&str>, place: &Place, grammar: &Grammar<T>, problems: &mut Vec<Problem>) -> Option<Placed<T>> {
    let text = text?;
    let placed = |value| Placed { value, text: text.to_owned(), key: None, place: place.clone() };
    match grammar.read(text) {
        Ok(value) => Some(placed(value)),
        Err(wrong) => {
            let at = Placed { value: (), text: String::new(), key: None, place: place.clone() };
            // Quotes belong into files; in a shell they would be taken literally or lost.
            problems.push(Problem::error(&at, wrong.what, wrong.hint.replace('"', "")));
            None
        }
    }
}
