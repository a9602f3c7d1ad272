//! `andante completions` and `andante man`: shell completions and manual pages, generated from the command
//! line itself.

use std::{
    fs,
    io::{self, Write as _},
    path::PathBuf,
};

use clap_complete::Shell;

use super::{Failure, command};

/// Shell completions of the command line
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// The manual: of `andante` itself on standard output, or a page per command into a folder
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = MAN_EXAMPLES)]
pub struct Man {
    /// Folder for all the pages
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  andante completions bash > ~/.local/share/bash-completion/completions/andante
  andante completions zsh > ~/.zfunc/_andante
  andante completions fish > ~/.config/fish/completions/andante.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  andante man | man -l -
  andante man /usr/local/share/man/man1
  man andante-run";

/// Prints the completions.
///
/// # Errors
/// If standard output has no reader.
pub fn completions(args: &Completions) -> Result<(), Failure> {
    // Generated into memory first: the generator panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "andante", &mut script);
    io::stdout().write_all(&script).map_err(Failure::writing)
}

/// Prints the manual, or writes all of its pages.
///
/// # Errors
/// If it cannot be written.
pub fn man(args: &Man) -> Result<(), Failure> {
    let Some(folder) = &args.folder else {
        let mut page = Vec::new();
        let made = clap_mangen::Man::new(command()).render(&mut page);
        return made.and_then(|()| io::stdout().write_all(&page)).map_err(Failure::writing);
    };
    // Without this, the `help` of each command would get a page of its own.
    let command = command().disable_help_subcommand(true);
    fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder)).map_err(|error| {
        Failure::new(format!("could not write the manual into {}", folder.display()))
            .because(error)
            .hinting("name a folder that may be written to, as in ~/.local/share/man/man1")
    })
}
