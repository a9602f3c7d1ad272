//! `andante fleet`: what several andantes share.

use std::io::{self, Write as _};

use super::Failure;
use crate::{
    clock,
    config::{FleetConfig, StoreUrl, duration},
    fleet::micros,
    store::RedisLedger,
};

/// Prepares the store by which several andantes share their limits
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: FleetCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum FleetCommand {
    /// Declares that a store is new: no andante holds anything of its limits
    ///
    /// Without that a store that knows nothing could be one that has forgotten: whatever no member reports is given out
    /// only after a lease and a window. Does nothing if the store knows of a fleet already.
    Init(InitArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct InitArgs {
    /// The Redis or Valkey, as in redis://store.example:6379 [env: ANDANTE_STORE]
    #[arg(long, value_name = "URL", env = "ANDANTE_STORE", hide_env = true, hide_env_values = true)]
    store: String,
    /// The lease of the fleet, as its configuration has it [default: 10s]
    #[arg(long, value_name = "DURATION")]
    lease: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  andante fleet init --store redis://store.example:6379
  ANDANTE_STORE=rediss://:PASSWORD@store.example:6380 andante fleet init";

/// Does what was asked for.
pub async fn run(args: Args) -> Result<(), Failure> {
    let FleetCommand::Init(InitArgs { store, lease }) = args.command;
    let url: StoreUrl =
        store.parse().map_err(|instead: &str| Failure::new("--store is not the URL of a Redis").hinting(instead))?;
    let lease = match lease {
        Some(text) => duration::parse(&text)
            .map_err(|_| Failure::new("--lease is not a duration").hinting("write it as in --lease 10s"))?,
        None => FleetConfig::default().lease,
    };
    let failed = |error| Failure::new(format!("could not use the store {url}")).because(error);
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
