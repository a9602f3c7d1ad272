//! Names of the events in a JSON log, by which alerts and parsers find them.

use std::fmt;

use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{Format, Json, Writer},
    },
    registry::LookupSpan,
};

/// Formats events as JSON. The member `event` is the first clause of the message in snake case:
/// `"event":"learned_a_limit"`.
pub(super) struct NamedEvents(pub(super) Format<Json>);

/// Name that an event's message gives it; empty until the message is visited. Not used if the event has a field `event`.
#[derive(Default)]
struct EventName {
    name: String,
    has_own: bool,
}

// === impl NamedEvents ===

impl<S, N> FormatEvent<S, N> for NamedEvents
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, ctx: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut found = EventName::default();
        event.record(&mut found);
        if found.has_own || found.name.is_empty() {
            return self.0.format_event(ctx, writer, event);
        }
        let mut line = String::new();
        self.0.format_event(ctx, Writer::new(&mut line), event)?;
        let members = line.strip_prefix('{').unwrap_or(&line);
        write!(writer, "{{\"event\":\"{}\",{members}", found.name)
    }
}

// === impl EventName ===

impl Visit for EventName {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "event" => self.has_own = true,
            "message" => self.name = snake_case(&format!("{value:?}")),
            _ => {}
        }
    }
}

/// The first clause of `message` in snake case.
fn snake_case(message: &str) -> String {
    let clause = message.split([':', ';', ',', '(']).next().unwrap_or_default().to_ascii_lowercase();
    let words = clause.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("_")
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc};

    use parking_lot::Mutex;
    use tracing_subscriber::{
        fmt::{self, format},
        layer::SubscriberExt as _,
    };

    use super::*;

    #[test]
    fn the_first_clause_is_the_name() {
        assert_eq!(snake_case("learned a limit"), "learned_a_limit");
        assert_eq!(snake_case("the store's ledger is new: it is read (again)"), "the_store_s_ledger_is_new");
        assert_eq!(snake_case(""), "");
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(buf);
            Ok(buf.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_line_is_one_object_with_one_event() {
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = fmt::layer()
            .event_format(NamedEvents(format::format().json().flatten_event(true)))
            .fmt_fields(format::JsonFields::new())
            .with_writer(move || writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::warn!(host = "api.test", "an upstream failed: it is gone");
            tracing::info!(event = "ready", "listening");
            tracing::info!(status = 200);
        });
        let text = String::from_utf8(lines.0.lock().clone()).unwrap();
        let read = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
        let events: Vec<_> = text.lines().map(|line| read(line)["event"].clone()).collect();
        assert_eq!(events, ["an_upstream_failed".into(), "ready".into(), serde_json::Value::Null]);
        assert_eq!(read(text.lines().next().unwrap())["host"], "api.test");
    }
}
