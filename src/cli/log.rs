//! Sets up the log and the access log. The log goes to standard error, because standard output belongs to the command.

use std::{
    env,
    fs::{self, File},
    io,
    path::Path,
};

use tracing::{level_filters::LevelFilter, warn};
use tracing_appender::non_blocking::WorkerGuard;
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::Targets,
    fmt::{self, MakeWriter, format},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use super::{
    Failure, access_log_queue::LineQueue, access_log_writer::Sink, event_name::NamedEvents, json_text::MakeEscaping,
    terminal,
};
use crate::{
    config::{AccessLog, Config, LogFormat},
    metrics::access_log,
    proxy::ACCESS,
};

/// Guard that must live as long as the log is used.
#[must_use = "what is still to be written is lost without it"]
pub(super) struct Logging {
    access: Option<WorkerGuard>,
}

/// Starts logging according to `config`; `ANDANTE_LOG` overrides `level`.
pub(super) fn start(config: &Config, level: &str) -> Result<Logging, Failure> {
    let said = env::var("ANDANTE_LOG").unwrap_or_default();
    let filter = filter(if said.trim().is_empty() { level } else { said.trim() })?;
    let mut layers = vec![layer(config.log, io::stderr, terminal::colourful()).with_filter(filter).boxed()];
    let mut access = None;
    if let Some(to) = &config.access_log {
        let (writer, guard) = writer(to)?;
        access = Some(guard);
        let requests = Targets::new().with_target(ACCESS, LevelFilter::INFO);
        let colour = *to == AccessLog::Stderr && terminal::colourful();
        layers.push(layer(config.log, writer, colour).with_filter(requests).boxed());
    }
    tracing_subscriber::registry()
        .with(layers)
        .try_init()
        .map_err(|error| Failure::new("could not start logging").because(error))?;
    Ok(Logging { access })
}

fn layer<W>(format: LogFormat, writer: W, colour: bool) -> Box<dyn Layer<Registry> + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let layer = fmt::layer().with_ansi(colour).with_writer(writer);
    match format {
        LogFormat::Text => layer.boxed(),
        LogFormat::Json => {
            let json = format::format().json().flatten_event(true).with_current_span(false);
            let fields = format::JsonFields::new();
            layer.map_writer(MakeEscaping).event_format(NamedEvents(json)).fmt_fields(fields).boxed()
        }
    }
}

/// Writes on a thread of its own: a disk that hangs, or a reader that has stopped, must not delay requests. Lines are
/// lost when the thread is too far behind.
fn writer(to: &AccessLog) -> Result<(LineQueue, WorkerGuard), Failure> {
    let sink = match to {
        AccessLog::Stdout => Sink::Stream(Box::new(io::stdout())),
        AccessLog::Stderr => Sink::Stream(Box::new(io::stderr())),
        AccessLog::File(path) => Sink::open(path).map_err(|error| not_opened(path, error))?,
    };
    Ok(LineQueue::start(sink))
}

/// Returns the error about the access log with which `serve` would not start. Leaves no file behind.
pub(super) fn unusable(config: &Config) -> Option<Failure> {
    let Some(AccessLog::File(path)) = &config.access_log else { return None };
    let tried = match fs::metadata(path) {
        Ok(found) if found.is_file() || found.is_dir() => File::options().append(true).open(path),
        // A pipe without a reader would block.
        Ok(_) => return None,
        Err(_) => tempfile::tempfile_in(path.parent().filter(|folder| *folder != "").unwrap_or(Path::new("."))),
    };
    tried.err().map(|error| not_opened(path, error))
}

fn not_opened(path: &Path, error: io::Error) -> Failure {
    Failure::new(format!("could not open the access log {}", path.display()))
        .because(error)
        .hinting("name a file in a folder that is there and may be written to, or \"stderr\"")
}

/// h2 logs every frame for its own developers, so a peer could fill a disk. Such lines must be requested by name.
/// Requests have a log of their own.
const QUIET: &str = "h2=info,access=off";

fn filter(text: &str) -> Result<EnvFilter, Failure> {
    EnvFilter::try_new(format!("{QUIET},{text}")).map_err(|error| {
        Failure::new(format!("ANDANTE_LOG is not a log filter: {text:?}"))
            .because(error)
            .hinting("write a level, as in ANDANTE_LOG=debug, or levels by module: info,andante::lane=trace")
    })
}

// === impl Logging ===

impl Drop for Logging {
    fn drop(&mut self) {
        // The writer's thread ends before the report.
        drop(self.access.take());
        let lost = access_log::take_unreported();
        if lost > 0 {
            warn!(lost, "the access log lacks lines: they could not be written");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_a_level_or_levels_by_module() {
        assert!(filter("debug").is_ok() && filter("info,andante::lane=trace").is_ok());
        assert!(filter("andante=loud").unwrap_err().hint().is_some_and(|hint| hint.contains("ANDANTE_LOG=debug")));
    }

    #[test]
    fn requests_are_kept_out_of_the_usual_log() {
        assert!(QUIET.contains(&format!("{ACCESS}=off")));
    }
}
