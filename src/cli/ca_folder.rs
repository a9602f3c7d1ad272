//! The folder of the CA in the commands, and their reports of the CA's failures.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use super::Failure;
use crate::ca::{self, CaError, Certificate};

/// Choice of the CA.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct DataArgs {
    /// The folder of the CA [env: ANDANTE_DATA] [default: $XDG_DATA_HOME/andante or ~/.local/share/andante]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

// === impl DataArgs ===

impl DataArgs {
    pub(super) fn dir(&self) -> Result<PathBuf, Failure> {
        data_dir(self.data.as_deref())
    }

    /// The public part of the existing CA, and its folder. Needs no access to its key.
    pub(super) fn certificate(&self) -> Result<(PathBuf, Certificate), Failure> {
        let dir = self.dir()?;
        let certificate = Certificate::open(&dir).map_err(|error| failed("the CA cannot be read", error))?;
        Ok((dir, certificate))
    }
}

/// The given folder, else the folder in ANDANTE_DATA, else the default one.
pub(super) fn data_dir(named: Option<&Path>) -> Result<PathBuf, Failure> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let dir = named.map(Path::to_owned).or_else(|| variable("ANDANTE_DATA").map(PathBuf::from));
    let dir = dir.or_else(|| ca::default_dir(variable)).ok_or_else(|| {
        Failure::new("there is no folder for the CA, since there is no home directory")
            .hinting("name one with --data DIR or ANDANTE_DATA")
    })?;
    // Absolute, because the printed path is used in other working directories.
    Ok(std::path::absolute(&dir).unwrap_or(dir))
}

/// A failure, with the action that failed and the reason.
pub(super) fn failed(what: &str, error: CaError) -> Failure {
    let hint = error.hint();
    let failure = Failure::new(what).because(error);
    match hint {
        Some(hint) => failure.hinting(hint),
        None => failure,
    }
}

pub(super) fn say(text: &str) -> Result<(), Failure> {
    io::stdout().write_all(text.as_bytes()).map_err(Failure::writing)
}
