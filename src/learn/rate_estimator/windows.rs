//! Common windows of limits, in seconds.

pub(super) const USUAL: [f64; 18] = [
    0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 43_200.0,
    86_400.0,
];

/// Largest delay of a time that an API reports in whole seconds.
pub(super) const ROUNDED: f64 = 1.15;

/// Most frequent windows.
const COMMON: [f64; 3] = [1.0, 10.0, 60.0];

/// Common windows that are not shorter than `pause`, in ascending order.
pub(super) fn from(pause: f64) -> impl Iterator<Item = f64> {
    USUAL.into_iter().filter(move |usual| *usual >= pause)
}

/// Shortest common window that is not shorter than `pause`.
pub(super) fn not_below(pause: f64) -> f64 {
    from(pause).next().unwrap_or(pause)
}

/// Longest common window above `last` and up to `length`, if it is not much shorter: it ended between two probes.
pub(super) fn between(last: f64, length: f64) -> Option<f64> {
    let longest = USUAL.into_iter().rev().find(|usual| *usual > last + 1e-9 && *usual <= length);
    longest.filter(|usual| length - usual < 0.3 * length)
}

/// Like [`between`], for a limiter that also counts refused requests, and weighs the last window by its visible share
/// (like HAProxy's rates). After `served` and `refused` requests at the beginning of a window, the limiter serves again
/// once the visible share of both is down to `served`. If another limiter may have a window that ends then, only a
/// frequent window counts.
pub(super) fn counting_refusals(last: f64, length: f64, served: f64, refused: f64) -> Option<f64> {
    let stretch = 2.0 - served / (served + refused);
    let window = between(last / stretch, length / stretch)?;
    (COMMON.contains(&window) || between(last, length).is_none()).then_some(window)
}

/// Shortest common window above `shorter` that fits a requested wait, with its end `length` after its start.
pub(super) fn asked_for(length: f64, shorter: f64) -> Option<f64> {
    USUAL.into_iter().find(|usual| *usual > shorter && (0.98 * usual..usual + ROUNDED).contains(&length))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hundred in ten seconds, and 42 more that are refused at once: 142 (2 - t/10) is 100 at t = 12.96.
    #[test]
    fn a_window_of_a_limiter_that_counts_refused_requests_is_known_by_when_it_serves_again() {
        assert_eq!(counting_refusals(12.5, 15.0, 100.0, 42.0), Some(10.0), "though 15 s ends then as well");
        assert_eq!(counting_refusals(10.1, 13.0, 100.0, 42.0), Some(10.0));
        assert_eq!(counting_refusals(9.9, 10.0, 100.0, 42.0), None, "that is a window of ten seconds itself");
        // For 20 s: 2 - 100/125 = 1.2, and 25 / 1.2 = 20.8. A window of 20 s itself is not taken for 15.
        assert_eq!(counting_refusals(20.5, 25.0, 100.0, 25.0), Some(20.0));
        assert_eq!(counting_refusals(17.0, 20.0, 100.0, 25.0), None);
    }
}
