//! `andante hint` on answers that providers document, each as its provider means it.

use std::path::Path;

use serde_json::Value;

use super::{andante, outcome};

/// An answer, and what its provider documents about it.
struct Documented<'a> {
    name: &'a str,
    provider: &'a str,
    signal: &'a str,
    wait_s: Option<f64>,
    now: Option<&'a str>,
}

// === impl Documented ===

impl<'a> Documented<'a> {
    fn of(line: &'a str) -> Self {
        let mut columns = line.split(" | ");
        let mut next = || columns.next();
        let (name, provider) = (next().unwrap(), next().unwrap());
        let _documented_at = next().unwrap();
        let (signal, wait_s) = (next().unwrap(), next().unwrap().parse().ok());
        Self { name, provider, signal, wait_s, now: next() }
    }

    /// The difference between `andante hint` and the documentation.
    fn complaint(&self, folder: &Path) -> Option<String> {
        let file = folder.join(self.name).with_extension("http");
        let mut args = vec!["hint", file.to_str().unwrap()];
        if let Some(now) = self.now {
            args.extend(["--now", now]);
        }
        let (code, stdout, stderr) = outcome(andante(&args));
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{}", self.name);
        let said: Value = serde_json::from_str(&stdout).unwrap();
        let wait = said["wait_s"].as_f64();
        let agree = match (wait, self.wait_s) {
            (Some(found), Some(expected)) => (found - expected).abs() <= 1.0,
            (found, expected) => found == expected,
        };
        let right = said["signal"] == self.signal && agree;
        (!right).then(|| format!("{} ({}): {} {:?}\n    {stdout}", self.name, self.provider, self.signal, self.wait_s))
    }
}

#[test]
fn each_documented_answer_is_read_as_its_provider_means_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/behaviour/commands/answers");
    let table = std::fs::read_to_string(folder.join("expected.txt")).unwrap();
    let answers: Vec<_> = table.lines().filter(|line| !line.starts_with('#')).map(Documented::of).collect();
    assert!(answers.len() >= 80, "{}", answers.len());
    let served = answers.iter().filter(|answer| answer.provider == "served").count();
    assert!(served >= 20, "what was served, and speaks of limits: {served}");
    let wrong: Vec<_> = answers.iter().filter_map(|answer| answer.complaint(&folder)).collect();
    assert!(wrong.is_empty(), "{} of {} wrong:\n{}", wrong.len(), answers.len(), wrong.join("\n"));
}
