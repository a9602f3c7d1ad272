//! `andante fleet`: prepares the store that several andantes share.

use std::io::{self, Write as _};

use super::{Failure, lane_table::plain, wording};
use crate::{
    admin::status::FleetStatus,
    clock,
    config::{FleetConfig, StoreUrl, duration},
    fleet::micros,
    store::{LedgerError, RedisLedger},
};

/// Prepares the store through which several andantes share their limits
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: FleetCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum FleetCommand {
    /// Declares a store to be new: no andante holds any part of its limits
    ///
    /// Without this declaration an empty store may have forgotten its data. For a lease and a window the store then
    /// withholds all amounts that no member reports. Does nothing if the store already knows a fleet.
    Init(InitArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct InitArgs {
    /// The Redis or Valkey, as in redis://store.example:6379 [env: ANDANTE_STORE]
    #[arg(long, value_name = "URL", env = "ANDANTE_STORE", hide_env = true, hide_env_values = true)]
    store: String,
    /// Lease of the fleet, as in its configuration [env: ANDANTE_LEASE] [default: 10s]
    #[arg(long, value_name = "DURATION", env = "ANDANTE_LEASE", hide_env = true)]
    lease: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  andante fleet init --store redis://store.example:6379
  ANDANTE_STORE=rediss://:PASSWORD@store.example:6380 andante fleet init";

/// Executes the subcommand.
pub async fn run(args: Args) -> Result<(), Failure> {
    let FleetCommand::Init(InitArgs { store, lease }) = args.command;
    let url: StoreUrl =
        store.parse().map_err(|instead: &str| Failure::new("--store is not the URL of a Redis").hinting(instead))?;
    let lease = match lease {
        Some(text) => duration::parse(&text)
            .map_err(|_| Failure::new("--lease is not a duration").hinting("write it as in --lease 10s"))?,
        None => FleetConfig::default().lease,
    };
    let failed = |error: LedgerError| {
        let remedy = error.remedy();
        Failure::new(format!("could not use the store {url}")).because(error).hinting(remedy)
    };
    let mut ledger = RedisLedger::new(&url).map_err(failed)?;
    let nonce = clock::wall().subsec_nanos().max(1);
    let done = ledger.declare_new(micros(lease), nonce).await.map_err(failed)?;
    let said = if done {
        "is new: everything may be given out at once"
    } else {
        "knows of a fleet already; nothing was changed"
    };
    writeln!(io::stdout(), "{url} {said}").map_err(Failure::writing)
}

/// Problem with the sharing of limits, in one line for people.
pub(super) fn trouble(fleet: &FleetStatus) -> Option<String> {
    let FleetStatus { store, standing, lease_left_s, learns_for_s, problem, hint, .. } = fleet;
    let problem = problem.as_ref().map_or_else(String::new, |problem| format!(" ({problem})"));
    let unusable = format!("the store {store} cannot be used{problem}");
    let line = match &**standing {
        "shared" if problem.is_empty() => return None,
        "shared" => format!("the store {store}{problem}"),
        "silent" => format!("{unusable}: limits are shared for {} more", wording::seconds(*lease_left_s)),
        "cut-off" => format!("{unusable}: requests under shared limits wait until it can be used"),
        "floor" => format!("{unusable}: each shared limit falls back to this andante's floor"),
        "open" => format!("{unusable}: limits go on without it, and may be exceeded together"),
        "learning" => {
            let learns = wording::seconds(learns_for_s.unwrap_or_default());
            format!(
                "the store {store} is new, or has lost its data: tokens that no andante reports are given out in \
                 {learns} and a window"
            )
        }
        _ if problem.is_empty() => {
            format!("joining the fleet at {store}: requests under shared limits wait until then")
        }
        _ => format!("{unusable}: requests under shared limits wait until this andante has joined"),
    };
    let hint = hint.as_ref().map_or_else(String::new, |hint| format!("; {hint}"));
    Some(plain(&format!("{line}{hint}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_cannot_be_used_is_named_with_what_that_means() {
        let said = |standing: &str, problem: Option<&str>| {
            trouble(&FleetStatus {
                store: "redis://store:6379".into(),
                standing: standing.into(),
                lease_left_s: 7.0,
                problem: problem.map(str::to_owned),
                ..FleetStatus::default()
            })
        };
        assert_eq!(said("shared", None), None);
        let refused = Some("connection refused\x1b[2J");
        let without = "the store redis://store:6379 cannot be used (connection refused[2J): ";
        for (standing, means) in [
            ("silent", "limits are shared for 7.0 s more"),
            ("cut-off", "requests under shared limits wait until it can be used"),
            ("floor", "each shared limit falls back to this andante's floor"),
            ("open", "limits go on without it, and may be exceeded together"),
            ("joining", "requests under shared limits wait until this andante has joined"),
        ] {
            assert_eq!(said(standing, refused), Some(format!("{without}{means}")));
        }
        assert!(said("joining", None).unwrap().starts_with("joining the fleet at redis://store:6379"));
    }
}
