//! Counts that show which groups are refused while others are served.

use std::time::Duration;

use andante_clock::Instant;

/// Counts for the most recent groups. Older answers count less.
#[derive(Clone, Default)]
pub(super) struct RefusalCounts {
    groups: Vec<Count>,
    served: f64,
    refused: f64,
    /// When all counts were last reduced.
    faded: Instant,
}

/// A group that is refused while others are served.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Suspicion {
    /// Ratio of the group's refusal rate to that of others.
    pub(super) contrast: f64,
    /// Number of the group's requests served since `since`, in seconds.
    pub(super) served: f64,
    pub(super) since: f64,
    /// Share of all served requests.
    pub(super) share: f64,
    /// Lower bounds: recent refusals of the group, and requests of others that were served meanwhile.
    pub(super) refused: u32,
    pub(super) others: u32,
}

#[derive(Clone, Default)]
struct Count {
    id: u32,
    seen: Instant,
    served: f64,
    refused: f64,
    /// Send time of the first refused request, until a later one is served.
    since: Option<Instant>,
    /// Send time of the last served request.
    last: Instant,
    /// Send time of the last request of others that was served while the group was refused. `turns`: refusals of the
    /// group that each followed such a request. `turned`: send time of the last of them.
    passed_last: Instant,
    turns: u32,
    turned: Instant,
    /// Requests of others that left while the group was refused: number served, and number refused.
    passed: f64,
    alike: f64,
    /// Start of the lane's cycle in which the group was first refused, or else of the last cycle, and number served
    /// since. `None` if no request of the group was ever served.
    cycle: Option<(f64, f64)>,
}

/// Factor by which all counts are reduced at each interval: halves them in 20 s.
const FADING: f64 = 0.84;
const EACH: Duration = Duration::from_secs(5);
/// Number of reductions after which nothing is left.
const MOST_TIMES: u128 = 1000;
/// Age, in seconds, at which a group's cycle is replaced by the lane's.
const LONG: f64 = 300.0;
/// Maximum number of groups.
const GROUPS: usize = 32;
/// Refusals of a group, and served requests of others, that are needed.
const REFUSED: f64 = 2.5;
const OTHERS: f64 = 10.0;
/// Served requests of others that are needed while the group was refused.
const PASSED: f64 = 4.0;
/// Refusals of a group after served requests of others that are sufficient, if no request of the group is served
/// meanwhile.
const TURNS: u32 = 3;
/// Largest probability of a coincidence if others are refused as well.
const CHANCE: f64 = 1e-4;
/// Smallest ratio of the group's refusal rate to that of others.
const CONTRAST: f64 = 4.0;
/// Smallest evidence against a coincidence: twice the logarithm of a likelihood ratio.
const UNLIKELY: f64 = 10.0;

// === impl RefusalCounts ===

impl RefusalCounts {
    /// Records that a request of group `id` was served that left at `sent`, in a cycle of the lane that began at
    /// `cycle`.
    pub(super) fn served(&mut self, id: u32, sent: Instant, now: Instant, cycle: f64) {
        self.passes(id, sent, now);
        let group = self.group(id, now);
        group.served += 1.0;
        if group.is_refused(sent) {
            (group.since, group.turns) = (None, 0);
        }
        group.last = group.last.max(sent);
        // A cycle with a refusal of the group is evaluated as a whole.
        let (began, served) = group.cycle.unwrap_or((cycle, 0.0));
        let over = group.refused < 0.5 || now.since(Instant::START).as_secs_f64() - began > LONG;
        let another = over && began.to_bits() != cycle.to_bits();
        group.cycle = Some(if another { (cycle, 1.0) } else { (began, served + 1.0) });
    }

    /// Records for the other groups that a request of group `id`, which may have a limit of its own, was served.
    pub(super) fn passes(&mut self, id: u32, sent: Instant, now: Instant) {
        self.fade(now);
        self.served += 1.0;
        if self.refused > 0.0 {
            let others = self.groups.iter_mut().filter(|group| group.id != id);
            others.filter(|group| group.is_refused(sent)).for_each(|group| {
                group.passed += 1.0;
                group.passed_last = group.passed_last.max(sent);
            });
        }
    }

    /// Records for the other groups that a request of group `id`, which may have a limit of its own, was refused.
    pub(super) fn fails(&mut self, id: u32, sent: Instant) {
        let others = self.groups.iter_mut().filter(|group| group.id != id);
        others.filter(|group| group.is_refused(sent)).for_each(|group| group.alike += 1.0);
    }

    /// Records a quota refusal. `alone`: the group was suspected before. Returns the suspicion if only this group is
    /// refused.
    pub(super) fn refused(&mut self, id: u32, sent: Instant, now: Instant, alone: bool) -> Option<Suspicion> {
        self.fade(now);
        self.refused += 1.0;
        self.fails(id, sent);
        let all = (self.served, self.refused);
        let group = self.group(id, now);
        group.refused += 1.0;
        if group.last < sent {
            let since = *group.since.get_or_insert(sent);
            if group.passed_last > since && group.passed_last > group.turned && sent > group.passed_last {
                (group.turns, group.turned) = (group.turns + 1, sent);
            }
        }
        let &mut Count { served, refused, passed, alike, .. } = group;
        let (others_served, others_refused) = ((all.0 - served).max(0.0), (all.1 - refused).max(0.0));
        let share = refused / (served + refused);
        let theirs = (others_refused + 0.5) / (others_served + others_refused).max(1.0);
        let contrast = share / theirs;
        let by_turns = group.turns >= TURNS
            && passed >= REFUSED.max(CONTRAST * alike)
            && (others_refused < 1.0 || contrast > CONTRAST || theirs.powf(f64::from(group.turns)) < CHANCE);
        let on_the_whole = others_served >= OTHERS
            && passed >= PASSED.max(CONTRAST * alike)
            && contrast > CONTRAST
            && unlikely([served, refused], [others_served, others_refused]) > UNLIKELY;
        let alone = alone && passed >= 1.0_f64.max(CONTRAST * alike) && contrast > CONTRAST;
        let suspected = refused >= REFUSED && (by_turns || on_the_whole || alone);
        let never = (sent.since(Instant::START).as_secs_f64(), 0.0);
        let (since, in_cycle) = group.cycle.unwrap_or(never);
        suspected.then_some(Suspicion {
            contrast,
            since,
            served: in_cycle,
            share: served / all.0,
            refused: refused as u32,
            others: passed as u32,
        })
    }

    /// Removes a group that no longer affects the others.
    pub(super) fn forget(&mut self, id: u32) {
        if let Some(at) = self.groups.iter().position(|group| group.id == id) {
            let group = self.groups.swap_remove(at);
            self.served = (self.served - group.served).max(0.0);
            self.refused = 0.0;
        }
        self.groups.iter_mut().for_each(|group| {
            (group.refused, group.passed, group.alike) = Default::default();
            (group.since, group.turns) = (None, 0);
        });
    }

    /// Reduces the weight of older answers.
    fn fade(&mut self, now: Instant) {
        let since = now.since(self.faded);
        if since < EACH {
            return;
        }
        let times = (since.as_nanos() / EACH.as_nanos()).min(MOST_TIMES) as i32;
        self.faded = if times < MOST_TIMES as i32 { self.faded + EACH * times as u32 } else { now };
        let factor = FADING.powi(times);
        let groups = self.groups.iter_mut();
        let counts = groups.flat_map(|Count { served, refused, passed, alike, .. }| [served, refused, passed, alike]);
        counts.chain([&mut self.served, &mut self.refused]).for_each(|count| *count *= factor);
    }

    fn group(&mut self, id: u32, now: Instant) -> &mut Count {
        let found = self.groups.iter().position(|group| group.id == id);
        let at = found.unwrap_or_else(|| {
            if self.groups.len() >= GROUPS {
                let oldest = self.groups.iter().enumerate().min_by_key(|(_, group)| group.seen);
                let oldest = oldest.map_or(0, |(at, _)| at);
                self.groups.swap_remove(oldest);
            }
            self.groups.push(Count { id, ..Count::default() });
            self.groups.len() - 1
        });
        let group = &mut self.groups[at];
        group.seen = now;
        group
    }
}

// === impl Count ===

impl Count {
    /// Returns true if requests of this group that left just before `sent` were refused.
    fn is_refused(&self, sent: Instant) -> bool {
        self.since.is_some_and(|since| since < sent)
    }
}

/// Evidence that two groups, each with its numbers of served and refused requests, have different refusal rates (a
/// G-test).
fn unlikely(one: [f64; 2], other: [f64; 2]) -> f64 {
    let of = |part: f64, whole: f64| if part > 0.0 { part * (part / whole).ln() } else { 0.0 };
    let apart = |[served, refused]: [f64; 2]| of(served, served + refused) + of(refused, served + refused);
    2.0 * (apart(one) + apart(other) - apart([one[0] + other[0], one[1] + other[1]]))
}
