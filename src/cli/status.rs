//! `andante status`: lists the lanes of a running andante once.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use super::{
    Failure,
    admin_client::{AdminArgs, AdminClient},
    fleet, json_text,
    lane_table::{self, SortBy},
    terminal,
};
use crate::{
    admin::{Status, status::IncidentStatus},
    cli::wording,
};

/// Lists the lanes of a running andante: their queues, their pace, and why they wait
///
/// PACE is the number of requests sent per second over the last ten seconds. USED is the used part of the fullest
/// limit. ETA is the time until all requests that wait now are sent. HTTPS shows the handling of HTTPS to the host:
/// intercepted, turns (paced, requests not seen), blind (tunnelled, not paced) or refused. Problems of the last ten
/// minutes are shown above the lanes, and rules for which requests wait below their lane.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    list: ListArgs,
}

/// Choice and form of the listed lanes.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ListArgs {
    /// Column to sort by
    #[arg(long, value_enum, value_name = "COLUMN", default_value = "waiting")]
    pub(super) sort: SortBy,
    /// Only lanes with this text in their names
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(super) filter: String,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(super) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  andante status
  andante status --admin http://127.0.0.1:9129 --sort used
  andante status --filter github --json | jq '.lanes[] | .host, .gate'

Exit codes: 0 listed, 1 no andante answers, 2 wrong usage.";

/// A limit above any number of lanes.
const ALL: &str = "/status?limit=1000000";

/// Prints the lanes.
pub async fn run(args: &Args) -> ExitCode {
    match args.admin.client("status").await {
        Ok(client) => print(&client, &args.list).await,
        Err(code) => code,
    }
}

/// Gets the status of the andante that `client` asks.
pub(super) async fn ask(client: &AdminClient) -> Result<Status, Failure> {
    client.get(ALL).await
}

/// Problems to show before the lanes, one per line.
pub(super) fn troubles(status: &Status) -> Vec<String> {
    let problem = status.config.problems.first();
    let config = problem.map(|problem| format!("reload failed, the previous configuration stays in force: {problem}"));
    let state = status.state.as_ref().and_then(|state| state.problem.as_ref());
    let state = state.map(|problem| {
        format!("the state file cannot be written, so a restart loses the counts of sent requests: {problem}")
    });
    let mut lines: Vec<String> = config.into_iter().chain(status.fleet.as_ref().and_then(fleet::trouble)).collect();
    lines.extend(state);
    lines.extend(status.access_log.as_ref().and_then(|log| log.problem.as_ref()).map(|problem| {
        let lost = status.access_log.as_ref().map_or(0, |log| log.lost_total);
        format!("the access log cannot be written, and {} are lost: {problem}", wording::several(lost, "line"))
    }));
    let mut incidents: Vec<_> = status.incidents.iter().filter(|incident| incident.last_s <= RECENT_S).collect();
    incidents.sort_by(|a, b| a.last_s.total_cmp(&b.last_s));
    lines.extend(incidents.into_iter().take(MAX_INCIDENTS).map(of_incident));
    lines.into_iter().map(|line| lane_table::plain(&line)).collect()
}

/// Line of an incident:
/// `andante refused 167 requests, the last 2 s ago: a.test: no slot in the time that a request may wait`.
fn of_incident(incident: &IncidentStatus) -> String {
    let (times, ago) = (wording::several(incident.total, "time"), wording::seconds(incident.last_s));
    let detail = incident.detail.trim_end_matches('.');
    match incident.blame.as_str() {
        "proxy" => {
            let requests = wording::several(incident.total, "request");
            format!("andante refused {requests}, the last {ago} ago: {detail}; {}", incident.hint)
        }
        blame => format!("{detail} ({blame}, {times}, last {ago} ago): {}", incident.hint),
    }
}

/// Oldest age of incidents that are shown, in seconds; `/status` has older ones.
const RECENT_S: f64 = 600.0;
/// Incidents that are shown, so that they do not hide the lanes; `/status` has all.
const MAX_INCIDENTS: usize = 5;

/// Prints the lanes of the andante that `client` asks.
pub(super) async fn print(client: &AdminClient, list: &ListArgs) -> ExitCode {
    let status = match ask(client).await {
        Ok(status) => status,
        Err(failure) => return terminal::failure(&failure),
    };
    let rows = lane_table::rows(&status, &list.filter, list.sort);
    let text = if list.json {
        let place = |rule: &str, host: &str| rows.iter().position(|row| row.rule == rule && row.host == host);
        let mut listed = status;
        listed.lanes.retain(|lane| place(&lane.rule, &lane.host).is_some());
        listed.lanes.sort_by_key(|lane| place(&lane.rule, &lane.host));
        json_text::pretty(&listed)
    } else {
        let mut lines = vec![lane_table::headline(&status)];
        lines.extend(troubles(&status));
        match rows.is_empty() {
            true if list.filter.is_empty() => lines.push("no request has come yet".into()),
            true => lines.push(format!("no lane has {:?} in its name", list.filter)),
            false => lines.extend(lane_table::lines_with_rules(&rows)),
        }
        lines.join("\n")
    };
    match writeln!(io::stdout(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => terminal::failure(&Failure::writing(error)),
    }
}
