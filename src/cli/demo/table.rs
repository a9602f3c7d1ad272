//! The two bursts side by side. Pure: outcomes in, text out.

use std::time::Duration;

use super::burst_outcome::BurstOutcome;
use crate::{cli::wording, limit::Rate};

/// Colouring of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Coloured,
}

struct TableRow {
    label: &'static str,
    /// Values of the row: without and with andante.
    cells: [Cell; 2],
}

struct Cell {
    text: String,
    rating: Rating,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rating {
    Neutral,
    Good,
    Bad,
}

const LABEL: usize = 32;
const CELL: usize = 18;

/// 78 columns: `requests` under `limit`, without and with andante.
pub(super) fn table(requests: u64, limit: Rate, without: &BurstOutcome, with: &BurstOutcome, style: Style) -> String {
    let line = |left, middle, right| {
        let (label, cell) = ("─".repeat(LABEL + 2), "─".repeat(CELL + 2));
        format!("{left}{label}{middle}{cell}{middle}{cell}{right}\n")
    };
    let heading = |text: &str| paint(&format!("{text:>CELL$}"), "1", style);
    let mut table = line("┌", "┬", "┐");
    let title = format!("{} requests at {limit}", wording::count(requests));
    table.push_str(&format!("│ {title:<LABEL$} │ {} │ {} │\n", heading("without andante"), heading("with andante")));
    table.push_str(&line("├", "┼", "┤"));
    for TableRow { label, cells: [without, with] } in rows(requests, limit, without, with) {
        table.push_str(&format!("│ {label:<LABEL$} │ {} │ {} │\n", without.show(style), with.show(style)));
    }
    table.push_str(&line("└", "┴", "┘"));
    table
}

fn rows(requests: u64, limit: Rate, without: &BurstOutcome, with: &BurstOutcome) -> Vec<TableRow> {
    let row = |label, cell: &dyn Fn(&BurstOutcome) -> Cell| TableRow { label, cells: [cell(without), cell(with)] };
    let allowed = u64::from(limit.count.get());
    // Evenly spaced, the first one at once.
    let ideal = limit.per.mul_f64(requests.saturating_sub(1) as f64 / allowed as f64);
    vec![
        row("sent to the API", &|outcome| Cell::neutral(wording::count(sent(outcome)))),
        row("refused by the API (429)", &|outcome| {
            Cell::judged(wording::count(outcome.stats.refused), outcome.stats.refused == 0)
        }),
        row("wasted requests", &|outcome| {
            let share = outcome.stats.refused as f64 / sent(outcome).max(1) as f64;
            Cell::judged(percent(share), outcome.stats.refused == 0)
        }),
        row("most in one window / allowed", &|outcome| {
            let worst = outcome.stats.worst_window;
            Cell::judged(format!("{} / {}", wording::count(worst), wording::count(allowed)), worst <= allowed)
        }),
        row("share of the limit used", &|outcome| {
            Cell::neutral(outcome.stats.used_share.map_or_else(|| "–".to_owned(), percent))
        }),
        row("time", &|outcome| Cell::neutral(seconds(outcome.took))),
        row("ideal time, at an even pace", &|_| Cell::neutral(seconds(ideal))),
    ]
}

fn sent(outcome: &BurstOutcome) -> u64 {
    outcome.stats.accepted + outcome.stats.refused
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// Always two decimals, so that times align.
fn seconds(duration: Duration) -> String {
    format!("{:.2} s", duration.as_secs_f64())
}

fn paint(text: &str, code: &str, style: Style) -> String {
    match style {
        Style::Plain => text.to_owned(),
        Style::Coloured => format!("\x1b[{code}m{text}\x1b[0m"),
    }
}

// === impl Cell ===

impl Cell {
    fn neutral(text: String) -> Self {
        Self { text, rating: Rating::Neutral }
    }

    fn judged(text: String, good: bool) -> Self {
        Self { text, rating: if good { Rating::Good } else { Rating::Bad } }
    }

    fn show(&self, style: Style) -> String {
        // Padded before it is coloured: escape codes have no width.
        let padded = format!("{:>CELL$}", self.text);
        match self.rating {
            Rating::Neutral => padded,
            Rating::Good => paint(&padded, "32", style),
            Rating::Bad => paint(&padded, "31", style),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cli::demo::stalls::Stalls, mock::Stats};

    fn outcome(accepted: u64, refused: u64, worst_window: u64, millis: u64) -> BurstOutcome {
        let stats = Stats { accepted, refused, worst_window, used_share: Some(0.987), ..Stats::default() };
        BurstOutcome { stats, took: Duration::from_millis(millis), stalls: Stalls::default() }
    }

    fn sample(style: Style) -> String {
        let (without, with) = (outcome(700, 1204, 131, 17_420), outcome(700, 0, 50, 14_070));
        table(700, "50/s".parse().unwrap(), &without, &with, style)
    }

    #[test]
    fn both_bursts_stand_side_by_side() {
        let expected = "\
┌──────────────────────────────────┬────────────────────┬────────────────────┐
│ 700 requests at 50/s             │    without andante │       with andante │
├──────────────────────────────────┼────────────────────┼────────────────────┤
│ sent to the API                  │              1,904 │                700 │
│ refused by the API (429)         │              1,204 │                  0 │
│ wasted requests                  │              63.2% │               0.0% │
│ most in one window / allowed     │           131 / 50 │            50 / 50 │
│ share of the limit used          │              98.7% │              98.7% │
│ time                             │            17.42 s │            14.07 s │
│ ideal time, at an even pace      │            13.98 s │            13.98 s │
└──────────────────────────────────┴────────────────────┴────────────────────┘
";
        assert_eq!(sample(Style::Plain), expected);
    }

    #[test]
    fn it_fits_a_terminal() {
        assert!(sample(Style::Plain).lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn colours_are_all_that_a_style_adds() {
        let mut stripped = sample(Style::Coloured);
        for code in ["\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[0m"] {
            assert!(stripped.contains(code));
            stripped = stripped.replace(code, "");
        }
        assert_eq!(stripped, sample(Style::Plain));
    }
}
