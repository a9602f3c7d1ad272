//! `andante status`: the lanes of a running andante, once.

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
use crate::admin::Status;

/// Lists the lanes of a running andante: what waits, how fast it goes, and why not
///
/// PACE is what was sent in a second so far, USED how far the fullest limit is used, ETA when all that wait now are sent. Below a lane
/// are the rules for some of its requests that some wait for.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    list: ListArgs,
}

/// Which lanes are listed, and how.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ListArgs {
    /// What comes first
    #[arg(long, value_enum, value_name = "COLUMN", default_value = "waiting")]
    pub(super) sort: SortBy,
    /// Only lanes with this in their names
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

Exit codes: 0 listed, 1 nobody answers, 2 wrong usage.";

/// More lanes than anybody has.
const ALL: &str = "/status?limit=1000000";

/// Prints the lanes.
pub async fn run(args: &Args) -> ExitCode {
    match args.admin.client("status").await {
        Ok(client) => print(&client, &args.list).await,
        Err(code) => code,
    }
}

/// The andante that `client` asks.
pub(super) async fn ask(client: &AdminClient) -> Result<Status, Failure> {
    client.get(ALL).await
}

/// What people have to know of it before its lanes, each in a line.
pub(super) fn troubles(status: &Status) -> impl Iterator<Item = String> {
    let first = status.config.problems.first();
    let config = first.map(|problem| {
        let line = format!("what was loaded last does not hold, and what held before it still does: {problem}");
        lane_table::plain(&line)
    });
    config.into_iter().chain(status.fleet.as_ref().and_then(fleet::trouble))
}

/// Prints its lanes.
pub(super) async fn print(client: &AdminClient, list: &ListArgs) -> ExitCode {
    let status = match ask(client).await {
        Ok(status) => status,
        Err(failure) => return terminal::failure(&failure),
    };
    let rows = lane_table::rows(&status, &list.filter, list.sort, lane_table::pace_so_far);
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
