//! Content of the live table, and the effect of keys. Pure.

use super::{keys::TopKey, opened};
use crate::{
    admin::{Status, detail::LaneName, status::LaneStatus},
    cli::{
        lane_table::{self, LaneRow, SortBy},
        status,
    },
};

/// The table and its state.
pub(super) struct TopView {
    status: Status,
    sort: SortBy,
    filter: String,
    mode: TopMode,
    chosen: usize,
    /// Last message, until the next key.
    message: String,
}

/// Meaning of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TopMode {
    Table,
    /// A filter is being typed.
    Filter,
    /// A lane is shown in detail.
    Lane(String, String),
    /// A change waits for confirmation by y.
    Confirm(TopAction),
}

/// Action after a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TopAction {
    None,
    /// Ask for the status again.
    Refresh,
    End,
    /// A change of one lane, or of all lanes.
    Change {
        path: &'static str,
        lane: Option<LaneName>,
        what: String,
    },
}

/// A line of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TopLine {
    pub(super) text: String,
    pub(super) marked: bool,
}

/// The lines besides the rows: the headline, the titles, and the foot.
const FRAME: usize = 3;
/// Lanes that one key skips.
const PAGE: usize = 10;
const KEYS: &str = "q end  s sort  / filter  Enter open  p pause  r resume";

// === impl TopView ===

impl TopView {
    pub(super) fn new(sort: SortBy, filter: String) -> Self {
        Self { status: Status::default(), sort, filter, mode: TopMode::Table, chosen: 0, message: String::new() }
    }

    /// Takes over a new status.
    pub(super) fn update(&mut self, status: Status) {
        // The chosen lane stays chosen, wherever it is now.
        let chosen = self.rows().into_iter().nth(self.chosen).map(|row| row.name());
        self.status = status;
        let rows = self.rows();
        let found = chosen.and_then(|name| rows.iter().position(|row| row.name() == name));
        self.chosen = found.unwrap_or(self.chosen).min(rows.len().saturating_sub(1));
    }

    /// Shows a message at the foot.
    pub(super) fn say(&mut self, message: String) {
        self.message = lane_table::plain(&message);
    }

    /// Handles a key, and returns the action.
    pub(super) fn pressed(&mut self, key: TopKey) -> TopAction {
        self.message.clear();
        if key == TopKey::Interrupt {
            return TopAction::End;
        }
        match std::mem::replace(&mut self.mode, TopMode::Table) {
            TopMode::Table => self.in_table(key),
            TopMode::Filter => {
                self.in_filter(key);
                TopAction::None
            }
            TopMode::Lane(rule, host) => self.in_lane(key, rule, host),
            TopMode::Confirm(change) => match key {
                TopKey::Letter('y' | 'Y') => change,
                _ => {
                    self.say("nothing was changed".into());
                    TopAction::None
                }
            },
        }
    }

    /// Content of a screen with this number of rows.
    pub(super) fn lines(&self, rows: usize) -> Vec<TopLine> {
        let foot = TopLine { text: self.foot(), marked: true };
        let head = [lane_table::headline(&self.status)].into_iter().chain(status::troubles(&self.status));
        let mut lines: Vec<_> = head.map(|text| TopLine { text, marked: false }).collect();
        let frame = FRAME - 1 + lines.len();
        match &self.mode {
            TopMode::Lane(rule, host) => {
                let text = match self.lane(rule, host) {
                    Some(lane) => opened::lines(lane),
                    None => {
                        vec![format!("lane {rule} {host} no longer exists: no requests wait, and no state is left")]
                    }
                };
                lines.extend(text.into_iter().map(|text| TopLine { text, marked: false }));
                lines.truncate(rows.saturating_sub(1).max(1));
            }
            _ => lines.extend(self.table(rows.saturating_sub(frame))),
        }
        // The foot is at the bottom, whatever is above it.
        lines.resize(rows.saturating_sub(1).max(1), TopLine { text: String::new(), marked: false });
        lines.push(foot);
        lines
    }

    /// The titles and as many rows as fit, including the chosen one.
    fn table(&self, room: usize) -> impl Iterator<Item = TopLine> {
        let lines = lane_table::lines(&self.rows());
        let first = self.chosen.saturating_sub(room.saturating_sub(1));
        let chosen = self.chosen;
        lines.into_iter().enumerate().filter_map(move |(at, text)| match at.checked_sub(1) {
            None => Some(TopLine { text, marked: false }),
            Some(row) => (first..first + room).contains(&row).then_some(TopLine { text, marked: row == chosen }),
        })
    }

    fn foot(&self) -> String {
        match &self.mode {
            TopMode::Filter => format!(" filter: {}_", self.filter),
            TopMode::Confirm(TopAction::Change { path, lane, .. }) => {
                let what = if path.ends_with("/pause") { "pause" } else { "resume" };
                let lane = lane.as_ref().map_or_else(|| "every lane".to_owned(), |lane| lane.host.to_string());
                format!(" {what} {lane}? y or n ")
            }
            _ if !self.message.is_empty() => format!(" {} ", self.message),
            TopMode::Lane(..) => " q back  p pause  r resume ".into(),
            _ if self.filter.is_empty() => format!(" {KEYS}  by {} ", self.sort.as_str()),
            _ => format!(" {KEYS}  by {}  with {:?} ", self.sort.as_str(), self.filter),
        }
    }

    fn rows(&self) -> Vec<LaneRow> {
        lane_table::rows(&self.status, &self.filter, self.sort)
    }

    fn lane(&self, rule: &str, host: &str) -> Option<&LaneStatus> {
        self.status.lanes.iter().find(|lane| lane.rule == rule && lane.host == host)
    }

    fn in_table(&mut self, key: TopKey) -> TopAction {
        let rows = self.rows();
        let last = rows.len().saturating_sub(1);
        let chosen = rows.into_iter().nth(self.chosen);
        match key {
            TopKey::Up | TopKey::Letter('k') => self.chosen = self.chosen.saturating_sub(1),
            TopKey::Down | TopKey::Letter('j') => self.chosen = (self.chosen + 1).min(last),
            TopKey::PageUp => self.chosen = self.chosen.saturating_sub(PAGE),
            TopKey::PageDown => self.chosen = (self.chosen + PAGE).min(last),
            TopKey::Letter('s') => (self.sort, self.chosen) = (self.sort.next(), 0),
            TopKey::Letter('/') => self.mode = TopMode::Filter,
            TopKey::Escape => (self.filter, self.chosen) = (String::new(), 0),
            TopKey::Enter => self.mode = chosen.map_or(TopMode::Table, |row| TopMode::Lane(row.rule, row.host)),
            TopKey::Letter(letter @ ('p' | 'r')) => {
                self.mode = chosen.map_or(TopMode::Table, |row| confirm(letter, Some((&row.rule, &row.host))));
            }
            TopKey::Letter('P') => self.mode = confirm('p', None),
            TopKey::Letter('R') => self.mode = confirm('r', None),
            TopKey::Letter('q') => return TopAction::End,
            _ => {}
        }
        TopAction::None
    }

    fn in_filter(&mut self, key: TopKey) {
        self.mode = TopMode::Filter;
        self.chosen = 0;
        match key {
            TopKey::Letter(letter) => self.filter.push(letter),
            TopKey::Backspace => _ = self.filter.pop(),
            TopKey::Enter => self.mode = TopMode::Table,
            TopKey::Escape => (self.filter, self.mode) = (String::new(), TopMode::Table),
            _ => {}
        }
    }

    fn in_lane(&mut self, key: TopKey, rule: String, host: String) -> TopAction {
        match key {
            TopKey::Letter('q') | TopKey::Escape | TopKey::Enter | TopKey::Backspace => {}
            TopKey::Letter(letter @ ('p' | 'r')) => self.mode = confirm(letter, Some((&rule, &host))),
            _ => self.mode = TopMode::Lane(rule, host),
        }
        TopAction::None
    }
}

/// Asks for confirmation before a lane, or every lane, is paused (`p`) or resumed.
fn confirm(letter: char, lane: Option<(&str, &str)>) -> TopMode {
    let (path, done) = match letter {
        'p' => ("/api/v1/pause", "paused"),
        _ => ("/api/v1/resume", "resumed"),
    };
    let what = lane.map_or_else(|| format!("{done} every lane"), |(_, host)| format!("{done} {host}"));
    let lane = lane.map(|(rule, host)| LaneName { rule: rule.into(), host: host.into() });
    TopMode::Confirm(TopAction::Change { path, lane, what })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(at: f64, sent: u64) -> Status {
        let lane = |host: &str, waiting: u64| LaneStatus {
            rule: host.into(),
            host: host.into(),
            waiting,
            pace: sent as f64,
            ..LaneStatus::default()
        };
        let lanes = vec![lane("a.test", 1), lane("b.test", 3), lane("c.test", 2)];
        Status { lanes, lanes_total: 3, uptime_s: at, ..Status::default() }
    }

    fn view() -> TopView {
        let mut view = TopView::new(SortBy::Waiting, String::new());
        view.update(status(100.0, 0));
        view
    }

    fn marked(view: &TopView) -> String {
        let lines = view.lines(20);
        let line = lines.iter().take(19).find(|line| line.marked).map(|line| line.text.clone());
        line.and_then(|line| line.split(' ').next().map(str::to_owned)).unwrap_or_default()
    }

    fn press(view: &mut TopView, keys: &str) -> TopAction {
        keys.chars().map(|letter| view.pressed(TopKey::Letter(letter))).last().unwrap()
    }

    #[test]
    fn a_lane_that_is_chosen_stays_so_wherever_it_goes() {
        let mut view = view();
        assert_eq!(marked(&view), "b.test");
        press(&mut view, "j");
        assert_eq!(marked(&view), "c.test");
        let mut next = status(101.0, 0);
        next.lanes[2].waiting = 9;
        view.update(next);
        assert_eq!(marked(&view), "c.test");
        assert_eq!(view.chosen, 0);
    }

    #[test]
    fn the_pace_is_that_of_the_status_from_the_first_frame_on() {
        let mut view = view();
        view.update(status(131.0, 110));
        assert_eq!(view.rows()[0].pace, 110.0);
        view.update(status(1.0, 3));
        assert_eq!(view.rows()[0].pace, 3.0, "another process");
    }

    #[test]
    fn a_change_takes_a_yes() {
        let mut view = view();
        assert_eq!(press(&mut view, "p"), TopAction::None);
        assert!(view.lines(20)[19].text.contains("pause b.test? y or n"));
        assert_eq!(press(&mut view, "n"), TopAction::None);
        let TopAction::Change { path, lane, .. } = press(&mut view, "py") else { panic!("no change") };
        assert_eq!((path, lane.unwrap().to_string().as_str()), ("/api/v1/pause", "b.test b.test"));
        let TopAction::Change { path, lane, .. } = press(&mut view, "Ry") else { panic!("no change") };
        assert_eq!((path, lane), ("/api/v1/resume", None));
        assert_eq!(view.pressed(TopKey::Interrupt), TopAction::End);
    }

    #[test]
    fn a_filter_is_written_and_taken_back() {
        let mut view = view();
        press(&mut view, "/a.te");
        assert_eq!((view.rows().len(), marked(&view).as_str()), (1, "a.test"));
        view.pressed(TopKey::Enter);
        assert_eq!(press(&mut view, "q"), TopAction::End, "q is a key again");
        view.pressed(TopKey::Escape);
        assert_eq!(view.rows().len(), 3);
    }

    #[test]
    fn the_screen_is_full_and_no_more_however_small() {
        let mut view = view();
        for rows in 2..30 {
            assert_eq!(view.lines(rows).len(), rows);
        }
        press(&mut view, "jj");
        assert!(view.lines(4).iter().any(|line| line.marked && line.text.starts_with("a.test")));
        view.pressed(TopKey::Enter);
        for rows in 2..30 {
            assert_eq!(view.lines(rows).len(), rows);
        }
        view.update(Status::default());
        assert!(view.lines(5)[1].text.contains("no longer exists"));
    }
}
