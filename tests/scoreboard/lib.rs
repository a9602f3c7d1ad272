//! Scoreboard of the engine: figures that tests measure, compared with the committed values of `figures.toml`.
//!
//! Owns the table and the comparison. Never measures anything. `tests/scoreboard/run` prints the table and rewrites it.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::OpenOptions,
    io::{self, Write as _},
    path::Path,
};

use serde::Deserialize;

/// File to which the tests append the measured figures. With it, they compare nothing.
const RECORD: &str = "SCOREBOARD_RECORD";
/// Number that replaces the seeds of all simulations. 0, the default, gives the seeds of the committed values.
const SEED: &str = "SCOREBOARD_SEED";
/// Set if figures are measured that take minutes.
const ALL: &str = "SCOREBOARD_ALL";

/// Figures that one test has measured.
#[derive(Debug)]
pub struct Scoreboard {
    test: &'static str,
    found: Vec<(String, f64)>,
}

/// Committed value of a figure.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    value: f64,
    /// Largest difference that counts as chance.
    tolerance: f64,
    better: Better,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Better {
    Higher,
    Lower,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Worse,
    Equal,
    Better,
}

/// Figures by test and name.
type Table = BTreeMap<String, BTreeMap<String, Figure>>;

/// True if figures that take minutes are measured, too.
pub fn measures_all() -> bool {
    std::env::var_os(ALL).is_some()
}

/// Returns the number by which a simulation shifts its seeds.
pub fn seed() -> u64 {
    std::env::var(SEED).map_or(0, |seed| seed.parse().expect("SCOREBOARD_SEED is a number"))
}

/// Returns the number below which `share` of these numbers lie.
///
/// # Panics
///
/// If there are none.
pub fn quantile(numbers: impl IntoIterator<Item = f64>, share: f64) -> f64 {
    let mut sorted: Vec<f64> = numbers.into_iter().collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

// === impl Scoreboard ===

impl Scoreboard {
    /// An empty set of figures of the test with this name, which is its heading in the table.
    pub fn of(test: &'static str) -> Self {
        Self { test, found: Vec::new() }
    }

    /// Adds a figure.
    pub fn add(&mut self, name: impl Into<String>, value: f64) {
        self.found.push((name.into(), value));
    }

    /// Adds the distribution of the used shares of a family: mean, tenth percentile and least.
    pub fn add_used(&mut self, family: &str, shares: &[f64]) {
        self.add(format!("{family}: used, mean"), mean(shares));
        self.add(format!("{family}: used, p10"), quantile(shares.iter().copied(), 0.1));
        self.add(format!("{family}: used, worst"), quantile(shares.iter().copied(), 0.0));
    }

    /// Adds the distribution of the refusals of a family, usually in percent of all answers: mean, ninetieth percentile
    /// and most.
    pub fn add_refused(&mut self, family: &str, refused: &[f64]) {
        self.add(format!("{family}: refused, mean"), mean(refused));
        self.add(format!("{family}: refused, p90"), quantile(refused.iter().copied(), 0.9));
        self.add(format!("{family}: refused, worst"), quantile(refused.iter().copied(), 1.0));
    }

    /// Compares the figures with the table. A figure that is better by more than its tolerance is reported on stderr.
    ///
    /// # Panics
    ///
    /// If a figure is worse than its value by more than its tolerance, or if the test's figures and the table's rows
    /// for this test are not the same ones.
    pub fn judge(self) {
        if std::env::var_os(RECORD).is_some() {
            // Dropped, it records them.
            return;
        }
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("figures.toml"));
        let (better, worse) = self.compare(&table(&text.expect("figures.toml can be read")));
        // Not `eprintln!`, which the test harness hides if the test passes.
        let _ = io::stderr().lock().write_all(better.as_bytes());
        assert!(worse.is_empty(), "\n{worse}hint: `tests/scoreboard/run --write` commits to these figures; say why");
    }

    /// Returns the lines about figures that are better than their tolerance, and about those that are worse.
    fn compare(&self, table: &Table) -> (String, String) {
        let none = BTreeMap::new();
        let rows = table.get(self.test).unwrap_or(&none);
        let (mut better, mut worse) = (String::new(), String::new());
        for (name, found) in &self.found {
            let Some(figure) = rows.get(name) else {
                let _ = writeln!(worse, "`{name}` has no row in [{}]: {found:.4}", self.test);
                continue;
            };
            let Figure { value, tolerance, .. } = figure;
            let (lines, word) = match figure.judge(*found) {
                Verdict::Equal => continue,
                Verdict::Worse => (&mut worse, "worse"),
                Verdict::Better => (&mut better, "better: `tests/scoreboard/run --write` keeps it"),
            };
            let _ = writeln!(lines, "{}: {name}: {found:.4}, was {value} ± {tolerance}: {word}", self.test);
        }
        for name in rows.keys().filter(|name| self.found.iter().all(|(found, _)| found != *name)) {
            let _ = writeln!(worse, "`{name}` in [{}] is not measured", self.test);
        }
        (better, worse)
    }

    fn record(&self, path: &Path) {
        let lines: String =
            self.found.iter().map(|(name, found)| format!("{}\t{name}\t{found:?}\n", self.test)).collect();
        let mut file = OpenOptions::new().create(true).append(true).open(path).expect("the record can be written");
        file.write_all(lines.as_bytes()).expect("the record can be written");
    }
}

/// Records the figures, of a test that has failed as well: with another seed, a test may miss a bound by chance.
impl Drop for Scoreboard {
    fn drop(&mut self) {
        if let Some(path) = std::env::var_os(RECORD) {
            self.record(path.as_ref());
        }
    }
}

// === impl Figure ===

impl Figure {
    fn judge(&self, found: f64) -> Verdict {
        let gain = match self.better {
            Better::Higher => found - self.value,
            Better::Lower => self.value - found,
        };
        // Values have four decimals.
        let tolerance = self.tolerance + 1e-4;
        if gain.is_nan() || gain < -tolerance {
            Verdict::Worse
        } else if gain > tolerance {
            Verdict::Better
        } else {
            Verdict::Equal
        }
    }
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

fn table(text: &str) -> Table {
    toml::from_str(text).expect("figures.toml is a table of tests and figures")
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use super::*;

    const TABLE: &str = "[a_test]\n\
        \"all: used, mean\" = { value = 0.9, tolerance = 0.01, better = \"higher\" }\n\
        refused = { value = 2.0, tolerance = 0.5, better = \"lower\" }\n";

    fn compared(used: f64, refused: f64) -> (String, String) {
        let found = vec![("all: used, mean".to_owned(), used), ("refused".to_owned(), refused)];
        Scoreboard { test: "a_test", found }.compare(&table(TABLE))
    }

    #[test]
    fn figures_within_their_tolerance_are_not_mentioned() {
        for (used, refused) in [(0.9, 2.0), (0.891, 2.4), (0.909, 1.6)] {
            assert_eq!(compared(used, refused), (String::new(), String::new()), "{used} {refused}");
        }
    }

    #[test]
    fn worse_figures_fail_in_either_direction() {
        assert!(compared(0.88, 2.0).1.starts_with("a_test: all: used, mean: 0.8800, was 0.9 ± 0.01: worse"));
        assert!(compared(0.9, 2.6).1.starts_with("a_test: refused: 2.6000, was 2 ± 0.5: worse"));
        assert!(compared(f64::NAN, 2.0).1.contains("worse"), "a figure of nothing");
    }

    #[test]
    fn better_figures_pass_and_are_reported() {
        for (used, refused) in [(0.92, 2.0), (0.9, 1.0)] {
            let (better, worse) = compared(used, refused);
            assert!(better.contains("better") && worse.is_empty(), "{better}{worse}");
        }
    }

    #[test]
    fn a_row_without_its_figure_fails_and_a_figure_without_its_row() {
        let missing = Scoreboard { test: "a_test", found: vec![("refused".to_owned(), 2.0)] };
        assert_eq!(missing.compare(&table(TABLE)).1, "`all: used, mean` in [a_test] is not measured\n");
        let unknown = Scoreboard { test: "another", found: vec![("refused".to_owned(), 2.0)] };
        assert_eq!(unknown.compare(&table(TABLE)).1, "`refused` has no row in [another]: 2.0000\n");
    }

    #[test]
    fn a_distribution_has_its_mean_its_tenth_and_its_worst() {
        let mut board = Scoreboard::of("a_test");
        let tenths: Vec<f64> = (0..=10).map(f64::from).collect();
        board.add_used("all", &tenths);
        board.add_refused("all", &tenths);
        let found: Vec<f64> = board.found.iter().map(|(_, found)| *found).collect();
        assert_eq!(found, [5.0, 1.0, 0.0, 5.0, 9.0, 10.0]);
    }

    /// A test that is renamed or deleted must not leave rows behind that nothing compares.
    #[test]
    fn every_test_of_the_table_exists() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let table = table(&fs::read_to_string(root.join("figures.toml")).unwrap());
        let (mut folders, mut sources) = (vec![root.join("../../src"), root.join("../behaviour")], String::new());
        while let Some(folder) = folders.pop() {
            let paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
            for path in paths {
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    sources.push_str(&fs::read_to_string(path).unwrap());
                }
            }
        }
        for test in table.keys() {
            assert!(sources.contains(&format!("fn {test}()")), "[{test}] is no test");
            assert!(sources.contains(&format!("\"{test}\"")), "[{test}] is not compared");
        }
    }
}
