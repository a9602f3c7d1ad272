//! `andante demo`: the same burst without andante and with it, offline.

mod burst;
mod burst_outcome;
mod remark;
mod stalls;
mod table;

use std::{
    convert::Infallible,
    env,
    io::{self, IsTerminal as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

use tokio::sync::oneshot;

use self::{
    burst::{BurstProgress, DemoLoad},
    burst_outcome::BurstOutcome,
    stalls::Stalls,
    table::{Style, table},
};
use super::{failure::Failure, whole_number::whole_number, wording};
use crate::{
    app::Running,
    clock::Clock,
    config::Config,
    limit::Rate,
    listen::Given,
    mock::{self, Api, Options},
    policy::{HostPattern, Policy, Rules},
};

/// The whole story in under a minute, offline: one burst, without andante and with it, side by side.
///
/// Starts an API on loopback that enforces its limit exactly, and many workers that all have requests for it. First the
/// workers call the API directly and react to refusals like worker programs: they sleep for Retry-After plus a little,
/// and try again. Then the same workers go through andante. All traffic stays on this machine.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The limit that the API enforces, in a sliding window.
    #[arg(long, value_name = "N/W", default_value = "50/s", value_parser = super::mock::rate)]
    limit: Rate,
    /// Number of requests.
    #[arg(long, value_name = "N", default_value_t = 700, value_parser = whole_number(2..=100_000, 700))]
    requests: u64,
    /// Number of workers that send them, with a connection each.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = whole_number(1..=5000, 60))]
    workers: u64,
}

const EXAMPLES: &str = "\
Examples:
  andante demo
      700 requests from 60 workers at 50 a second, in about half a minute

  andante demo --limit 100/s --requests 1000 --workers 400
      more workers, more refusals";

const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Answer time of a quick API over a network.
const LATENCY: Duration = Duration::from_millis(20);
const JITTER: Duration = Duration::from_millis(5);
/// Interval of drawing the live line.
const FRAME: Duration = Duration::from_millis(100);

/// Sends both bursts, then prints the two side by side.
///
/// # Errors
/// If something cannot be started on loopback, a request finds no way, or the table cannot be printed.
pub async fn run(args: Args) -> Result<(), Failure> {
    let clock = Clock::start();
    say(&format!(
        "An API that allows {}, and {} workers with {} requests for it.\n",
        args.limit,
        wording::count(args.workers),
        wording::count(args.requests)
    ))?;
    let without = directly(&args, clock).await?;
    let with = through_andante(&args, clock).await?;
    let coloured = io::stdout().is_terminal() && env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    let style = if coloured { Style::Coloured } else { Style::Plain };
    say(&table(args.requests, args.limit, &without, &with, style))?;
    match remark::remark(&without, &with) {
        Some(remark) => say(&remark),
        None => Ok(()),
    }
}

/// The API, on a thread of its own. A real API counts requests when they arrive, and not when sixty workers leave it
/// time.
struct OwnApi {
    api: Api,
    /// Dropping this ends the thread.
    _stop: oneshot::Sender<()>,
}

async fn directly(args: &Args, clock: Clock) -> Result<BurstOutcome, Failure> {
    let own = start_api(args, clock)?;
    send("without andante", args, &own.api, None, clock).await
}

/// Runs andante in this process, as `andante serve --limit HOST=LIMIT` would.
async fn through_andante(args: &Args, clock: Clock) -> Result<BurstOutcome, Failure> {
    let OwnApi { api, _stop } = start_api(args, clock)?;
    let config = config(api.addr(), args.limit)?;
    let running = Running::start(config, Given::default(), None)
        .await
        .map_err(|error| Failure::new("could not start andante").because(error))?;
    let proxy = running.listen().first().copied().ok_or_else(|| Failure::new("andante listens nowhere"))?;
    let outcome = send("with andante", args, &api, Some(proxy), clock).await;
    running.drain().await;
    outcome
}

fn config(api: SocketAddr, limit: Rate) -> Result<Config, Failure> {
    let host: HostPattern =
        api.to_string().parse().map_err(|error| Failure::new("could not make a rule for the API").because(error))?;
    let policy = Policy { limits: vec![limit.into()], ..Policy::new("demo", vec![host]) };
    let rules = Rules::new(vec![policy]);
    Ok(Config { listen: vec![ANY_PORT], admin: None, drain: Duration::from_secs(1), rules, ..Config::default() })
}

fn start_api(args: &Args, clock: Clock) -> Result<OwnApi, Failure> {
    let no_thread = |error| Failure::new("could not start a thread for the API").because(error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
    let options = Options { limit: Some(args.limit), latency: LATENCY, jitter: JITTER, ..Options::default() };
    let api = {
        let _there = runtime.enter();
        let listener = mock::listen(ANY_PORT).map_err(|error| {
            Failure::new(format!("could not listen on {ANY_PORT}"))
                .because(error)
                .hinting("the demo needs a free port of the loopback interface")
        })?;
        Api::start(options, listener, clock)
    };
    let (stop, stopped) = oneshot::channel();
    let serve = move || drop(runtime.block_on(stopped));
    thread::Builder::new().name("api".into()).spawn(serve).map_err(no_thread)?;
    Ok(OwnApi { api, _stop: stop })
}

async fn send(
    name: &str,
    args: &Args,
    api: &Api,
    proxy: Option<SocketAddr>,
    clock: Clock,
) -> Result<BurstOutcome, Failure> {
    let burst = DemoLoad { workers: args.workers, requests: args.requests, api: api.addr(), proxy };
    let (progress, mut stalls) = (Arc::new(BurstProgress::default()), Stalls::default());
    let on_terminal = io::stderr().is_terminal();
    let took = tokio::select! {
        took = burst::send(&burst, &progress, clock) => took?,
        never = live(name, args.requests, &progress, clock), if on_terminal => match never {},
        never = stalls.watch(clock) => match never {},
    };
    if on_terminal {
        // The live line ends here.
        show("");
    }
    Ok(BurstOutcome { stats: api.stats(), took, stalls })
}

/// Draws the live line until the future is dropped.
async fn live(name: &str, requests: u64, progress: &BurstProgress, clock: Clock) -> Infallible {
    let began = clock.now();
    loop {
        show(&live_line(name, requests, progress, clock.now().since(began)));
        clock.sleep_until(clock.now() + FRAME).await;
    }
}

/// `without andante  ━━━━━━━━━━──────────  350/700  429s 612   8.1 s`: never as wide as a terminal.
fn live_line(name: &str, requests: u64, progress: &BurstProgress, elapsed: Duration) -> String {
    const WIDTH: u64 = 24;
    let done = progress.done.load(Ordering::Relaxed);
    let refused = progress.refused.load(Ordering::Relaxed);
    let filled = (done * WIDTH / requests.max(1)).min(WIDTH);
    let bar = format!("{}{}", "━".repeat(filled as usize), "─".repeat((WIDTH - filled) as usize));
    format!("{name:<16} {bar} {done:>6}/{requests}  429s {refused:<6} {:>4.1} s", elapsed.as_secs_f64())
}

/// Replaces the live line; failures to draw are ignored.
fn show(line: &str) {
    let _ = write!(io::stderr().lock(), "\r\x1b[K{line}");
}

fn say(text: &str) -> Result<(), Failure> {
    writeln!(io::stdout().lock(), "{text}").map_err(Failure::writing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_live_line_fits_a_terminal() {
        let progress = BurstProgress::default();
        progress.done.store(50_000, Ordering::Relaxed);
        progress.refused.store(123_456, Ordering::Relaxed);
        let line = live_line("without andante", 100_000, &progress, Duration::from_secs(59));
        assert!(line.chars().count() < 80, "{line}");
        assert!(line.contains("━━━━━━━━━━━━────────────  50000/100000  429s 123456"), "{line}");
    }

    #[test]
    fn the_rule_is_for_the_api_and_nobody_else() {
        let api = SocketAddr::from(([127, 0, 0, 1], 9100));
        let config = config(api, "50/s".parse().unwrap()).unwrap();
        let rule = |origin: &str| {
            config.rules.find(&crate::policy::Origin::parse(crate::policy::Scheme::Http, origin, None).unwrap())
        };
        assert_eq!(rule("127.0.0.1:9100").unwrap().limits.len(), 1);
        assert!(rule("127.0.0.1:9101").is_none());
        assert!(config.listen[0].ip().is_loopback());
    }
}
