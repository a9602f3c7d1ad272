//! `andante mock`: an API that enforces its limit, until a signal ends it.

use std::{
    io::{self, Write as _},
    net::SocketAddr,
    time::Duration,
};

use tokio::signal::unix::{SignalKind, signal};

use super::{failure::Failure, wording};
use crate::{
    clock::Clock,
    config::{duration, listen_address},
    limit::{Rate, SpecError},
    mock::{self, Api, CountingWindow, MockDialect, Options, Percent, Stats},
};

/// An API that really enforces its limit, for tests that must not touch a real one.
///
/// Every path answers every method with a small JSON object; uploads are read, measured and thrown away. Past the limit
/// it refuses in the dialect chosen. /__mock/stats has the numbers of accepted and refused requests, and the closest
/// distances between requests. andante prints the same report when SIGINT or SIGTERM ends the mock. PUT on
/// /__mock/limit, /__mock/next and /__mock/down changes the limit, prepares answers, and takes the API down. Any client
/// may do so, so let it listen on loopback.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Address to listen on; port 0 picks a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9100", value_parser = address)]
    listen: SocketAddr,
    /// The limit it enforces, e.g. 50/s or 500/min; without one it accepts everything.
    #[arg(long, value_name = "N/W", value_parser = rate)]
    limit: Option<Rate>,
    /// Way of counting [default: as the dialect does, mostly sliding]
    #[arg(long, value_enum, hide_default_value = true)]
    window: Option<CountingWindow>,
    /// Dialect in which it reports its limit; some dialects also decide the way of counting.
    #[arg(long, value_name = "NAME", value_enum, default_value_t)]
    dialect: MockDialect,
    /// Time until every answer.
    #[arg(long, value_name = "DURATION", default_value = "0ms", value_parser = duration::parse)]
    latency: Duration,
    /// Largest random addition to the latency.
    #[arg(long, value_name = "DURATION", default_value = "0ms", value_parser = duration::parse)]
    jitter: Duration,
    /// Share of the accepted requests that is answered with 500; they still count against the limit.
    #[arg(long, value_name = "PERCENT", default_value = "0%")]
    fail: Percent,
}

const EXAMPLES: &str = "\
Examples:
  andante mock --limit 50/s
      50 in any one second, counted exactly; 429 and Retry-After past that

  andante mock --limit 500/min --window bucket --dialect openai --latency 200ms --jitter 50ms
      an API that resembles a language model's

  andante mock --listen 127.0.0.1:0 --fail 1%
      no limit, on a free port, one answer in a hundred a 500

  curl -s http://127.0.0.1:9100/__mock/stats
      what it saw so far

  curl -X PUT -d 25/s http://127.0.0.1:9100/__mock/limit
      another limit, while it runs

  curl -X PUT -d '{\"how\":\"503\",\"for\":\"30s\"}' http://127.0.0.1:9100/__mock/down
      half a minute of trouble";

/// Serves until SIGINT or SIGTERM, then prints the report.
///
/// # Errors
/// If it cannot listen, hear signals, or print.
pub async fn run(args: Args) -> Result<(), Failure> {
    let deaf = |error| Failure::new("could not listen for SIGINT and SIGTERM").because(error);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(deaf)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(deaf)?;
    let listener = mock::listen(args.listen).map_err(|error| cannot_listen(args.listen, error))?;
    let options = Options {
        limit: args.limit,
        window: args.window,
        dialect: args.dialect,
        latency: args.latency,
        jitter: args.jitter,
        fail: args.fail,
        seed: fastrand::u64(..),
    };
    let ready = ready_line(&options);
    let api = Api::start(options, listener, Clock::start());
    say(&format!("andante mock: listening on http://{} ({ready})", api.addr()))?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    say(&report(&api.stats(), api.limit()))
}

fn ready_line(options: &Options) -> String {
    match options.limit {
        Some(limit) => format!("{limit}, {} window, {} dialect", options.counting(), options.dialect),
        None => "no limit".to_owned(),
    }
}

/// Report of the API's counts, for people.
fn report(stats: &Stats, limit: Option<Rate>) -> String {
    let (accepted, refused) = (wording::count(stats.accepted), wording::count(stats.refused));
    let mut report = format!("accepted {accepted}, refused {refused}");
    if stats.failed > 0 {
        report.push_str(&format!(", failed {}", wording::count(stats.failed)));
    }
    if stats.scripted > 0 {
        report.push_str(&format!(", answered as asked {}", wording::count(stats.scripted)));
    }
    let worst = wording::count(stats.worst_window);
    match limit {
        Some(limit) => {
            let allowed = wording::count(u64::from(limit.count.get()));
            report.push_str(&format!(", {worst} asked in the busiest window, {allowed} allowed"));
        }
        None => report.push_str(&format!(", {worst} asked in the busiest second")),
    }
    // A run shorter than a window has no meaningful share: the whole quota may be spent at once.
    let measured = limit.is_some_and(|limit| stats.span_seconds >= limit.per.as_secs_f64());
    if let Some(share) = stats.used_share.filter(|_| measured) {
        report.push_str(&format!(", {:.1}% of the limit used", share * 100.0));
    }
    report
}

fn cannot_listen(address: SocketAddr, error: io::Error) -> Failure {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => "something listens there already: choose another port with --listen, or 0 for any",
        io::ErrorKind::PermissionDenied => "ports below 1024 need privileges: choose another with --listen",
        io::ErrorKind::AddrNotAvailable => "no interface has this address: choose another with --listen",
        _ => "choose another address with --listen",
    };
    Failure::new(format!("could not listen on {address}")).because(error).hinting(hint)
}

/// Like `println!`, which would panic when the reader of standard output is gone.
pub(super) fn say(line: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(Failure::writing)
}

fn address(text: &str) -> Result<SocketAddr, String> {
    listen_address(text, 9100)
}

/// Parses a rate from the command line; an error includes advice.
pub(super) fn rate(text: &str) -> Result<Rate, String> {
    text.parse().map_err(|error: SpecError| format!("{error}; {}", error.hint()))
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;

    fn parse(words: &[&str]) -> Result<Args, clap::Error> {
        let command = Args::augment_args(clap::Command::new("mock").no_binary_name(true));
        Args::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    #[test]
    fn the_contract_of_the_command_line_is_read() {
        let args = parse(&[
            "--listen=[::1]:0",
            "--limit=50/s",
            "--window=fixed",
            "--dialect=retry-after",
            "--latency=20ms",
            "--jitter=5ms",
            "--fail=1%",
        ])
        .unwrap();
        assert_eq!(args.limit, "50/s".parse().ok());
        assert_eq!(parse(&["--limit=10 req/s"]).unwrap().limit, "10/s".parse().ok());
        assert_eq!((args.window, args.dialect), (Some(CountingWindow::Fixed), "retry-after".parse().unwrap()));
        assert_eq!((args.latency, args.jitter), (Duration::from_millis(20), Duration::from_millis(5)));
        assert_eq!(args.fail.to_string(), "1%");
        assert_eq!(parse(&[]).unwrap().listen.to_string(), "127.0.0.1:9100");
    }

    #[test]
    fn what_is_wrong_comes_with_what_to_write() {
        let said = |word| parse(&[word]).unwrap_err().to_string();
        assert!(said("--limit=500 a min").contains("write \"500/min\""));
        assert!(said("--latency=20").contains("write \"20s\" or \"20ms\""));
        assert!(said("--fail=200%").contains("from 0% to 100%"));
        assert!(said("--dialect=klingon").contains("retry-after"));
        assert!(said("--listen=22040").contains("expected an address, found \"22040\"; write 127.0.0.1:22040"));
        assert!(said("--listen=localhost").contains("write 127.0.0.1:9100"));
        assert!(said("--listen=mock.test:1").contains("write 127.0.0.1:9100"));
    }

    #[test]
    fn the_report_is_one_line() {
        let mut stats = Stats {
            accepted: 1234,
            refused: 5,
            worst_window: 51,
            used_share: Some(0.998),
            span_seconds: 24.7,
            ..Stats::default()
        };
        let limit = "50/s".parse().ok();
        assert_eq!(
            report(&stats, limit),
            "accepted 1,234, refused 5, 51 asked in the busiest window, 50 allowed, 99.8% of the limit used"
        );
        stats = Stats { span_seconds: 0.9, ..stats };
        assert_eq!(report(&stats, limit), "accepted 1,234, refused 5, 51 asked in the busiest window, 50 allowed");
        stats = Stats { failed: 2, used_share: None, ..stats };
        assert_eq!(report(&stats, None), "accepted 1,234, refused 5, failed 2, 51 asked in the busiest second");
    }

    #[test]
    fn a_port_in_use_says_what_to_do() {
        let address = SocketAddr::from(([127, 0, 0, 1], 9100));
        let failure = cannot_listen(address, io::ErrorKind::AddrInUse.into());
        assert_eq!(failure.to_string(), "could not listen on 127.0.0.1:9100");
        assert!(failure.hint().unwrap().contains("--listen"));
    }
}
