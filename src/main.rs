//! The binary. All code is in the library.

use std::{io::Write as _, process::ExitCode};

use andante::cli::Cli;

/// jemalloc, because glibc's malloc keeps 8 KiB more of a waiting connection resident
/// (docs/decisions/allocator.md).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(cli.run()),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: could not start the runtime\ncaused by: {error}");
            ExitCode::FAILURE
        }
    }
}
