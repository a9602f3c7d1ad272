//! `andante batch FILE`: sends a file of requests, and writes a file of answers, despite crashes in between.

mod input;
mod report;
mod stream;

use std::{
    error::Error as _,
    io::Write as _,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{self, ExitCode},
    sync::Arc,
    time::Duration,
};

use http::Method;
use url::Url;

use self::{
    input::Prepared,
    report::Report,
    stream::{Stream, StreamProgress},
};
use super::{
    FAILED, Failure,
    run::{LAST_NEWS, diagnosis::unmatched as unmatched_lines, footer::Footer, progress::Pace, with_defaults},
    signals::{Signals, Stop},
    terminal,
    whole_number::whole_number,
};
use crate::{
    admin::Status,
    app::{Running, Unmatched},
    batch::{JournalError, Stopped, Work, WorkInput, WorkParts, input::Defaults, is_other_server},
    clock::{Clock, Instant},
    config::{Config, StatePlace},
    listen::Given,
};

/// End of `--help`.
pub const EXAMPLES: &str = "\
Examples:
  andante batch urls.txt --out answers.jsonl --limit api.example.com=500/min
  andante batch ids.csv --url 'https://api.example.com/v1/items/{id}' --out answers.jsonl
  andante batch names.csv --url https://a.example/q --body '{\"q\": \"{name}\"}' --id name -o a.jsonl
  andante batch openai.jsonl --base-url https://api.openai.com --header @key.txt --out answers.jsonl
  andante batch jobs.jsonl --out answers.jsonl --proxy http://gateway:3128

Each line of a .jsonl FILE is one request: {\"id\": \"a\", \"method\": \"POST\", \"url\": \"https://…\", \"headers\": {}, \
\"body\": {}}, where only the url is required; also \"custom_id\" instead of id, \"priority\" (0 to 7), \"cost\" and \
\"flow\". A .csv FILE (separated by commas, semicolons or tabs) fills the places of --url and --body. Anything else has one URL a line.

After a crash or Ctrl-C the same command resumes the batch. ANSWERS.journal and ANSWERS.state keep its progress until all \
requests are answered; the journal stays if requests have no id. Requests that may have been executed, and must not be \
executed twice (POST and PATCH without Idempotency-Key), are not sent again: they are listed, and --resend-unknown sends \
them.

Exit codes: 0 all answered with a status below 400, 1 not all, 130 after Ctrl-C, 143 after SIGTERM.";

/// Arguments of `batch` besides the flags of `serve`.
#[derive(Clone, Debug, clap::Args)]
pub struct BatchOptions {
    /// The requests; `-` reads them from standard input. Requests from a pipe are sent as they arrive
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// File for the answers, one line of JSON each
    #[arg(long, short, value_name = "ANSWERS")]
    pub out: PathBuf,
    /// Base of relative URLs in FILE: the API's scheme and host
    #[arg(long, value_name = "URL", value_parser = base_url)]
    pub base_url: Option<Url>,
    /// URL for each row of a .csv FILE, with {COLUMN} for the row's value
    #[arg(long, value_name = "TEMPLATE")]
    pub url: Option<String>,
    /// Body for each row of a .csv FILE, with {COLUMN} for the row's value, as in '{"q": "{name}"}'; values are escaped
    /// as JSON if the body is JSON. @FILE reads the body from a file
    #[arg(long, value_name = "TEMPLATE", requires = "url")]
    pub body: Option<String>,
    /// The column of a .csv FILE that names its rows in ANSWERS [default: id or custom_id if there is one, else the line]
    #[arg(long, value_name = "COLUMN")]
    pub id: Option<String>,
    /// Method of requests for which FILE names none [default: GET, or POST with a body]
    #[arg(long, value_name = "METHOD", value_parser = method)]
    pub method: Option<Method>,
    /// A header field for each request that has none of this name, as in 'Accept: text/csv', or @FILE with one field
    /// per line; may be repeated
    #[arg(long, value_name = "FIELD|@FILE")]
    pub header: Vec<String>,
    /// Format of FILE, where its name does not show it
    #[arg(long, value_name = "jsonl|csv|urls", value_parser = ["jsonl", "csv", "urls"])]
    pub format: Option<String>,
    /// Send through a running andante instead of a private one
    #[arg(long, value_name = "URL", conflicts_with_all = ["limit", "config", "listen"], value_parser = proxy)]
    pub proxy: Option<Url>,
    /// Number of requests that wait or are in flight at a time
    #[arg(long, value_name = "N", default_value = "1000", value_parser = whole_number(1..=u64::MAX, 50))]
    pub parallel: u64,
    /// Send equal requests once, and give all of them the same answer
    #[arg(long)]
    pub dedupe: bool,
    /// Stop after this many failures [default: never]
    #[arg(long, value_name = "N", value_parser = whole_number(1..=u64::MAX, 20))]
    pub max_failures: Option<u64>,
    /// Send requests again that may have been executed before a crash
    #[arg(long)]
    pub resend_unknown: bool,
    /// Show neither progress nor a summary
    #[arg(long, short)]
    pub quiet: bool,
    /// Instead of these, end with the summary as one line of JSON on standard error
    #[arg(long)]
    pub json: bool,
}

/// Interval of updates of the progress line.
const REFRESH: Duration = Duration::from_millis(200);

/// Rules that a warning names at most.
const RULES: usize = 5;

/// Flags of `serve` without a meaning here. `batch` accepts them, because a file or a variable may set the same keys.
const UNUSED: [&str; 3] = ["listen", "clients", "admin_token"];

/// The command line of `batch`: the help of the flags of `serve` shows the defaults of `batch`.
pub fn command(serve: clap::Command) -> clap::Command {
    let free = "a free port of 127.0.0.1";
    let serve = with_defaults(serve, &[("listen", free), ("admin", free), ("state", "ANSWERS.state")]);
    // No other client connects to the andante of a batch.
    UNUSED.into_iter().fold(serve, |serve, name| serve.mut_arg(name, |arg| arg.hide(true)))
}

/// Configuration of `batch` without flags, environment and file.
pub fn base(options: &BatchOptions) -> Config {
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let state = StatePlace::At(beside(&options.out, "state"));
    Config { listen: vec![free], admin: Some(free), state, ..Config::default() }
}

/// Sends the batch, and returns the exit code.
pub async fn run(config: Config, options: BatchOptions) -> ExitCode {
    match send(config, options).await {
        Ok(code) => code,
        Err(failure) => terminal::failure(&failure),
    }
}

/// The andante that sends the requests, and whether the batch owns it.
struct Through {
    proxy: String,
    own: Option<Running>,
}

async fn send(config: Config, options: BatchOptions) -> Result<ExitCode, Failure> {
    let defaults = defaults(&options)?;
    let prepared = Prepared::read(&options, &defaults)?;
    let journal = beside(&options.out, "journal");
    let own_state = options.proxy.is_none().then(|| beside(&options.out, "state"));
    let mut opened = prepared.open(&options, &journal).await?;
    let mut report = Report::new(&prepared, &opened, &options);
    if opened.left == 0 {
        report.say(None, Duration::ZERO, None);
        if report.is_done() {
            opened.journal.finish().map_err(not_removed)?;
        }
        return Ok(report.exit_code(None, None));
    }
    if own_state.is_some() {
        warn_of_unasked(&prepared.unasked(&config.rules));
    }
    let mut signals = Signals::listen().map_err(|error| Failure::new("could not listen for signals").because(error))?;
    let through = Through::start(config, options.proxy.as_ref()).await?;
    let clock = Clock::start();
    let (input, progress) = open_input(&prepared, &options, &defaults)?;
    let work = Arc::new(Work::new(WorkParts {
        proxy: through.proxy.clone(),
        input,
        skipped: opened.skipped,
        twins: prepared.twins.clone(),
        answers: opened.answers,
        journal: opened.journal,
        left: opened.left,
        max_failures: options.max_failures.unwrap_or(u64::MAX),
        clock,
    }));
    let parallel = usize::try_from(options.parallel.min(opened.left)).unwrap_or(usize::MAX);
    let left = || progress.as_ref().map_or(opened.left, StreamProgress::read);
    let (stopped, signal) = follow(&work, &through, &mut signals, &report, parallel, left, &clock).await;
    if let Some(progress) = &progress {
        report.learned_total(progress.total());
    }
    let elapsed = clock.now().since(Instant::START);
    report.ended(work.counts());
    let (status, unmatched) = end(through.own, work.counts().given_up()).await;
    if report.is_done() {
        work.finish().map_err(not_removed)?;
        // The state is removed together with its counts: the next batch begins with all of its limits.
        let of_state = own_state.iter().flat_map(|state| [state.clone(), beside(state, "lock")]);
        of_state.chain([stream::kept(&options)]).for_each(|file| {
            let _ = std::fs::remove_file(file);
        });
    }
    if let Some(why) = stopped.as_deref().filter(|why| !matches!(why, Stopped::Interrupted | Stopped::Failures(_))) {
        print_stop(why);
    }
    report.say(status.as_ref(), elapsed, stopped.as_deref());
    if !report.is_quiet() {
        let _ = std::io::stderr().write_all(unmatched_lines(&unmatched).as_bytes());
    }
    Ok(report.exit_code(stopped.as_deref(), signal))
}

/// Opens the input for sending. A pipe's input has a progress.
fn open_input(
    prepared: &Prepared,
    options: &BatchOptions,
    defaults: &Defaults,
) -> Result<(WorkInput, Option<StreamProgress>), Failure> {
    if prepared.streams() {
        let Stream { items, progress } = stream::start(options, defaults)?;
        return Ok((WorkInput::Stream(items), Some(progress)));
    }
    Ok((WorkInput::File(Box::new(prepared.again(options, defaults)?)), None))
}

/// Prints why a batch has stopped before its end.
fn print_stop(why: &Stopped) {
    let hint = "fix this, then run the same command again: it resumes where it stopped";
    let mut failure = Failure::new(why.to_string()).hinting(hint);
    // Adds the system's own message, such as a full disk.
    if let Some(cause) = why.source() {
        failure = failure.because(cause.to_string());
    }
    terminal::failure(&failure);
}

/// Ends the batch's own andante, if there is one. Returns its last status, and the rules that no request matched.
async fn end(own: Option<Running>, given_up: u64) -> (Option<Status>, Vec<Unmatched>) {
    let Some(own) = own else { return (None, Vec::new()) };
    // The proxy will notice in a moment which requests were given up.
    own.settled(LAST_NEWS).await;
    let (mut status, unmatched) = (own.status(), own.unmatched_rules());
    report::take_back(&mut status, given_up);
    own.drain().await;
    (Some(status), unmatched)
}

/// Warns of rules that match no request of the batch, before the batch is sent without their limits.
fn warn_of_unasked(unasked: &[Unmatched]) {
    if !unasked.is_empty() {
        let rules: Vec<&str> = unasked.iter().take(RULES).map(|unmatched| &*unmatched.rule).collect();
        let nearest = unasked.iter().find_map(|unmatched| unmatched.nearest.as_deref());
        let nearest = nearest.map_or_else(String::new, |host| format!("; the most similar host is {host}"));
        terminal::warning(
            &format!("no request is for {}, so that its limit does not hold{nearest}", rules.join(", ")),
            "name the host as the URLs do: 127.0.0.1 and localhost are two hosts",
        );
    }
}

/// Sends the requests, shows the progress, and reacts to signals, until the end. Returns why not all was sent, and the
/// signal that asked for the end.
async fn follow(
    work: &Arc<Work>,
    through: &Through,
    signals: &mut Signals,
    report: &Report,
    parallel: usize,
    left: impl Fn() -> u64,
    clock: &Clock,
) -> (Option<Arc<Stopped>>, Option<Stop>) {
    let mut footer = if report.is_quiet() { None } else { Footer::open() };
    let mut pace = Pace::default();
    let mut tick = tokio::time::interval(REFRESH);
    let mut running = std::pin::pin!(work.run(parallel));
    let mut asked = None;
    let stopped = loop {
        tokio::select! {
            stopped = &mut running => break stopped,
            stop = signals.stop() => {
                if asked.is_some() {
                    process::exit(stop.exit_code().into());
                }
                asked = Some(stop);
                work.stop(Stopped::Interrupted);
            }
            _ = tick.tick(), if footer.is_some() => {
                let pace = pace.at(clock.now(), work.counts().done());
                let status = through.own.as_ref().map(Running::status);
                footer.iter().for_each(|footer| footer.show(report::line(work.counts(), left(), pace, status.as_ref(), asked.is_some())));
            }
        }
    };
    if let Some(footer) = footer.take() {
        footer.close();
    }
    (stopped, asked)
}

/// Settings for each request.
fn defaults(options: &BatchOptions) -> Result<Defaults, Failure> {
    let mut defaults = Defaults {
        method: options.method.clone(),
        base: options.base_url.clone(),
        template: options.url.clone(),
        body: options.body.clone(),
        id: options.id.clone(),
        ..Defaults::default()
    };
    if let Some(file) = options.body.as_deref().and_then(|body| body.strip_prefix('@')) {
        let unread = |error| Failure::new(format!("could not read {file}, which --body names")).because(error);
        defaults.body = Some(std::fs::read_to_string(file).map_err(unread)?);
    }
    if let Some(base) = options.base_url.as_ref().filter(|base| !matches!(base.scheme(), "http" | "https")) {
        let what = format!("--base-url begins with {}://, and requests are http or https", base.scheme());
        return Err(Failure::new(what).hinting("write --base-url https://HOST"));
    }
    for argument in &options.header {
        let lines = match argument.strip_prefix('@') {
            Some(path) => std::fs::read_to_string(path)
                .map_err(|error| Failure::new(format!("could not read {path}, which --header names")).because(error))?,
            None => argument.clone(),
        };
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            let field = line.split_once(':').ok_or_else(|| "it has no colon".to_owned());
            let field = field.and_then(|(name, value)| crate::batch::input::header(name, value));
            // Leaves out the line itself, whose value may be a secret.
            let (name, value) = field.map_err(|why| {
                Failure::new(format!("a field of --header cannot be sent: {why}")).hinting("write 'Name: value'")
            })?;
            defaults.headers.append(name, value);
        }
    }
    Ok(defaults)
}

/// The base of relative URLs.
fn base_url(text: &str) -> Result<Url, String> {
    text.parse().map_err(|_| format!("expected a URL, found {text:?}; write https://HOST"))
}

fn method(text: &str) -> Result<Method, String> {
    text.parse().map_err(|_| format!("expected a method, found {text:?}; write POST"))
}

/// The address of an andante, as `--proxy` names it.
fn proxy(text: &str) -> Result<Url, String> {
    super::env::proxy(text)?.parse().map_err(|error: url::ParseError| error.to_string())
}

fn not_removed(error: JournalError) -> Failure {
    Failure::new("could not remove what is no longer needed").because(error)
}

/// `path` with one more ending.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

// === impl Through ===

impl Through {
    /// The andante at `proxy`, or else a private one.
    async fn start(config: Config, proxy: Option<&Url>) -> Result<Self, Failure> {
        if let Some(url) = proxy {
            let wrong = || Failure::new("--proxy names no andante").hinting("write it as in http://127.0.0.1:3128");
            let host =
                url.host_str().filter(|_| url.scheme() == "http" && url.username().is_empty()).ok_or_else(wrong)?;
            let port = url.port_or_known_default().ok_or_else(wrong)?;
            let proxy = format!("{host}:{port}");
            if is_other_server(&proxy).await {
                let hint = "name the address that workers connect to: `andante serve` prints it first, the admin address second";
                return Err(
                    Failure::new(format!("{proxy} answers, and is no andante that takes requests")).hinting(hint)
                );
            }
            return Ok(Self { proxy, own: None });
        }
        let running = Running::start(config, Given::default(), None).await.map_err(|error| {
            let hint = error.hint();
            let failure = Failure::new("the proxy did not start").because(error);
            match hint {
                Some(hint) => failure.hinting(hint),
                None => failure,
            }
        })?;
        running.serves_own_clients();
        let address = running.listen().first().copied().ok_or_else(|| Failure::new("the proxy listens nowhere"))?;
        Ok(Self { proxy: address.to_string(), own: Some(running) })
    }
}
