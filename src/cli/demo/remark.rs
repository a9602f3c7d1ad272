//! Remarks that a busy machine, and not the API, distorted the figures.

use std::fmt::Write as _;

use super::burst_outcome::BurstOutcome;
use crate::cli::wording;

/// A remark if late timers changed the figures. Pure.
pub(super) fn remark(without: &BurstOutcome, with: &BurstOutcome) -> Option<String> {
    if ![without, with].iter().any(|outcome| outcome.stalls.show_in(outcome.took)) {
        return None;
    }
    let mut text = "This machine was busy with other things, and timers came late:\n".to_owned();
    for (name, BurstOutcome { stalls, took, .. }) in [("without andante", without), ("with andante", with)] {
        let (total, took) = (wording::duration(stalls.total), wording::duration(*took));
        let longest = wording::duration(stalls.longest);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {name}: by {longest} at most, {total} of the {took} in all");
    }
    text.push_str("A slot that passes meanwhile is lost, and what leaves late arrives closer to what comes next:\n");
    text.push_str("that costs time, and may draw a refusal. Without such load the figures are better.");
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{cli::demo::stalls::Stalls, mock::Stats};

    fn outcome(late: &[u64], took: u64) -> BurstOutcome {
        let mut stalls = Stalls::default();
        late.iter().for_each(|millis| stalls.late(Duration::from_millis(*millis)));
        BurstOutcome { stats: Stats::default(), took: Duration::from_secs(took), stalls }
    }

    #[test]
    fn a_quiet_machine_needs_no_remark() {
        assert_eq!(remark(&outcome(&[], 15), &outcome(&[9; 2000], 15)), None);
        assert_eq!(remark(&outcome(&[10; 9], 15), &outcome(&[99], 15)), None);
    }

    #[test]
    fn a_busy_machine_is_told_of_with_what_it_did_to_both() {
        let text = remark(&outcome(&[], 15), &outcome(&[40, 180], 14)).unwrap();
        assert!(text.contains("  without andante: by 0 s at most, 0 s of the 15 s in all\n"), "{text}");
        assert!(text.contains("  with andante: by 180 ms at most, 220 ms of the 14 s in all\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        // Many small delays have the same effect.
        assert!(remark(&outcome(&[20; 16], 15), &outcome(&[], 15)).is_some());
    }
}
