//! `andante top`: the lanes of a running andante, live in a terminal.

mod keys;
mod opened;
mod screen;
mod view;

use std::{process::ExitCode, time::Duration};

use serde_json::{Value, json};
use tokio::{
    signal::unix::{SignalKind, signal},
    time,
};

use self::{
    screen::TopScreen,
    view::{TopAction, TopView},
};
use super::{
    Failure,
    admin_client::{AdminArgs, AdminClient},
    signals::Signals,
    status::{self, ListArgs},
    terminal,
};
use crate::config::duration;

/// Shows the lanes of a running andante, live: sort, filter, open, pause and resume
///
/// Arrows or j and k choose a lane, and Enter opens it. s sorts by the next column, and / filters. p pauses the lane
/// and r resumes it (P and R every lane) after a y. q ends. Pausing needs --token.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    list: ListArgs,
    /// Print the table once, and exit
    #[arg(long)]
    once: bool,
    /// Interval of updates
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "1s")]
    interval: Duration,
}

const EXAMPLES: &str = "\
Examples:
  andante top
  andante top --admin http://127.0.0.1:9129 --token token
  andante top --once --sort eta --filter api.

Exit codes: 0 ended by q or Ctrl-C, 1 no andante answers, or there is no terminal; 2 wrong usage.";

/// Shortest interval: more frequent updates would show nothing more.
const QUICKEST: Duration = Duration::from_millis(100);

/// Shows the lanes until the user quits.
pub async fn run(args: &Args) -> ExitCode {
    let client = match args.admin.client("top").await {
        Ok(client) => client,
        Err(code) => return code,
    };
    if args.once || args.list.json {
        return status::print(&client, &args.list).await;
    }
    match show(args, &client).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => terminal::failure(&failure),
    }
}

async fn show(args: &Args, client: &AdminClient) -> Result<(), Failure> {
    let deaf = |error| Failure::new("could not listen for signals").because(error);
    let mut view = TopView::new(args.list.sort, args.list.filter.clone());
    // Asked before the screen changes, so that a missing andante is reported on the old screen.
    view.update(status::ask(client).await?);
    let (mut signals, mut resized) =
        (Signals::listen().map_err(deaf)?, signal(SignalKind::window_change()).map_err(deaf)?);
    let mut screen = TopScreen::open()?;
    let mut turns = time::interval(args.interval.max(QUICKEST));
    turns.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    loop {
        screen.draw(&view).map_err(Failure::writing)?;
        let action = tokio::select! {
            key = screen.key() => match key {
                Some(key) => view.pressed(key),
                // The terminal is gone.
                None => TopAction::End,
            },
            _ = turns.tick() => TopAction::Refresh,
            _ = resized.recv() => TopAction::None,
            _ = signals.stop() => TopAction::End,
        };
        match action {
            TopAction::None => {}
            TopAction::End => return Ok(()),
            TopAction::Refresh => ask(client, &mut view).await,
            TopAction::Change { path, lane, what } => {
                let change = lane.map_or_else(|| json!({}), |lane| json!({ "rule": &*lane.rule, "host": &*lane.host }));
                match client.change::<Value>(path, &change).await {
                    Ok(_) => view.say(what),
                    Err(failure) => view.say(said(&failure)),
                }
                ask(client, &mut view).await;
            }
        }
    }
}

/// Updates the status; a failure is shown beside the last one.
async fn ask(client: &AdminClient, view: &mut TopView) {
    match status::ask(client).await {
        Ok(status) => view.update(status),
        Err(failure) => view.say(said(&failure)),
    }
}

fn said(failure: &Failure) -> String {
    failure.hint().map_or_else(|| failure.to_string(), |hint| format!("{failure}: {hint}"))
}
