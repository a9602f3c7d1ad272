//! The tokens of one pool: each member's fair share of them, and whose turn it is to get some.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use andante_fleet::{Entry, MemberId, Micros, PoolGrant, WakeUp};

/// A single limit of one lane.
#[derive(Clone, Debug)]
pub(super) struct TokenPool {
    pub(super) per: Micros,
    /// Tokens that members hold.
    pub(super) lent: i64,
    /// Tokens that members have reported to a store without state.
    claimed: i64,
    /// All of the limit's tokens are accounted for.
    pub(super) open: bool,
    /// Amounts that become free, with their times.
    withheld: VecDeque<(i64, Micros)>,
    pub(super) rows: BTreeMap<MemberId, PoolMember>,
    /// Number of members configured with each limit, and the limit received last.
    limits: BTreeMap<u32, u32>,
    limit: u32,
    /// Sum and number of the demands of each size.
    demands: [(u64, u32); SIZES],
    /// Number of members with waiting requests.
    pub(super) waiting: u32,
    /// Members that need tokens, and members that would use more than their share, each by the time since then.
    pub(super) hungry: BTreeSet<(Micros, MemberId)>,
    pub(super) more: BTreeSet<(Micros, MemberId)>,
    /// When all members were last told that a member wants tokens.
    pub(super) called: Option<Micros>,
    /// Latest word of a member about the limit.
    pub(super) word: Box<str>,
}

/// State of one member in a pool.
#[derive(Clone, Debug)]
pub(super) struct PoolMember {
    pub(super) holds: u32,
    pub(super) demand: u32,
    pub(super) cost: u32,
    pub(super) need: u32,
    pub(super) settle: Micros,
    limit: u32,
    pub(super) hungry: Option<Micros>,
    pub(super) more: Option<Micros>,
    /// When the member was told that its turn has come.
    pub(super) hinted: Option<Micros>,
}

/// Demands are classified by the next higher power of the square root of two.
const SIZES: usize = 66;
/// Maximum number of separate withheld amounts.
const AMOUNTS: usize = 8;
/// Minimum time between two hints to a member that its turn has come, or to all that a member wants tokens.
const PATIENCE: Micros = 300_000;
/// Up to this many tokens are shared out one by one.
const FEW: f64 = 20.0;
/// Members above their share that are checked for one that can use the free tokens.
const MANY: usize = 4;

impl TokenPool {
    pub(super) fn new(per: Micros) -> Self {
        Self {
            per,
            lent: 0,
            claimed: 0,
            open: false,
            withheld: VecDeque::new(),
            rows: BTreeMap::new(),
            limits: BTreeMap::new(),
            limit: 0,
            demands: [(0, 0); SIZES],
            waiting: 0,
            hungry: BTreeSet::new(),
            more: BTreeSet::new(),
            called: None,
            word: Box::default(),
        }
    }

    /// Applies a member's entry; a claim is believed.
    pub(super) fn hear(&mut self, member: MemberId, entry: &Entry, claims: bool) {
        self.limit = entry.limit;
        if !entry.word.is_empty() {
            self.word = entry.word.clone();
        }
        let before = self.rows.get(&member).cloned();
        let held = before.as_ref().map_or(0, |row| row.holds);
        let holds = if claims {
            self.claimed += i64::from(entry.holds) - i64::from(held);
            entry.holds
        } else {
            entry.holds.min(held)
        };
        self.lent += i64::from(holds) - i64::from(held);
        if let Some(before) = &before {
            self.forget_of(before);
        }
        *self.limits.entry(entry.limit).or_insert(0) += 1;
        let size = &mut self.demands[size(entry.demand)];
        *size = (size.0 + u64::from(entry.demand), size.1 + 1);
        self.waiting += u32::from(entry.cost > 0);
        let (hungry, more) = before.map_or((None, None), |row| (row.hungry, row.more));
        let row = PoolMember {
            holds,
            demand: entry.demand,
            cost: entry.cost,
            need: entry.need,
            settle: entry.settle,
            limit: entry.limit,
            hungry,
            more,
            hinted: None,
        };
        self.rows.insert(member, row);
    }

    /// Subtracts `row` from the sums.
    fn forget_of(&mut self, row: &PoolMember) {
        if let Some(members) = self.limits.get_mut(&row.limit) {
            *members -= 1;
            if *members == 0 {
                self.limits.remove(&row.limit);
            }
        }
        let size = &mut self.demands[size(row.demand)];
        *size = (size.0 - u64::from(row.demand), size.1 - 1);
        self.waiting -= u32::from(row.cost > 0);
    }

    pub(super) fn drop_row(&mut self, member: MemberId) -> Option<PoolMember> {
        let row = self.rows.remove(&member)?;
        self.forget_of(&row);
        self.lent -= i64::from(row.holds);
        row.hungry.map(|since| self.hungry.remove(&(since, member)));
        row.more.map(|since| self.more.remove(&(since, member)));
        Some(row)
    }

    pub(super) fn withhold(&mut self, units: u32, until: Micros) {
        let units = i64::from(units);
        if units == 0 {
            return;
        }
        let full = self.withheld.len() >= AMOUNTS;
        match self.withheld.back_mut().filter(|_| full) {
            Some(last) => *last = (last.0 + units, last.1.max(until)),
            None => self.withheld.push_back((units, until)),
        }
    }

    pub(super) fn mature(&mut self, now: Micros) {
        self.withheld.retain(|(_, until)| *until > now);
    }

    /// The smallest limit that any member is configured with.
    pub(super) fn limit(&self) -> u32 {
        self.limits.keys().next().copied().unwrap_or(self.limit)
    }

    /// Number of tokens known to exist.
    pub(super) fn supply(&self) -> i64 {
        let limit = i64::from(self.limit());
        if self.open { limit } else { self.claimed.min(limit) }
    }

    fn withheld(&self) -> i64 {
        self.withheld.iter().map(|(units, _)| units).sum()
    }

    /// Number of tokens in the pool; negative if the limit was lowered or too much was claimed.
    pub(super) fn free(&self) -> i64 {
        self.supply() - self.lent - self.withheld()
    }

    /// Returns true if the members together want more than there is.
    pub(super) fn is_short(&self) -> bool {
        let wanted: u64 = self.demands.iter().map(|(sum, _)| sum).sum();
        i64::try_from(wanted).unwrap_or(i64::MAX) > self.supply()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.withheld.is_empty()
    }

    /// Number of tokens that `member` may keep. The head of the queue gets the tokens that its request lacks, if these
    /// exceed its fair share. The others get their fair shares of the rest.
    pub(super) fn target(&self, member: MemberId) -> f64 {
        let head = self.hungry.first().map(|(_, head)| *head);
        match head.and_then(|head| Some((head, self.due(head)?))) {
            Some((head, due)) if head == member => due,
            head => self.fair(member, head),
        }
    }

    /// Tokens that the head of the queue must hold for its next request, if more than an equal share.
    fn due(&self, head: MemberId) -> Option<f64> {
        let row = &self.rows[&head];
        let equal = (self.supply() - self.withheld()) as f64 / self.rows.len().max(1) as f64;
        let due = f64::from(if row.need > 1 { row.holds + row.need } else { row.cost });
        (due > equal && (row.need > 1 || row.holds < row.cost)).then_some(due)
    }

    /// The fair share of `member`: members that want less than an equal share get their demand, and leave the rest to
    /// the others. The `head` of the queue comes first with its due tokens.
    pub(super) fn fair(&self, member: MemberId, head: Option<(MemberId, f64)>) -> f64 {
        let mut supply = (self.supply() - self.withheld()) as f64;
        let mut demands = self.demands;
        if let Some((head, due)) = head {
            let demand = self.rows[&head].demand;
            let size = &mut demands[size(demand)];
            *size = (size.0 - u64::from(demand), size.1 - 1);
            supply -= due;
        }
        if supply <= 0.0 {
            return 0.0;
        }
        let own = f64::from(self.rows[&member].demand);
        let wanted: u64 = demands.iter().map(|(sum, _)| sum).sum();
        let members: u32 = demands.iter().map(|(_, members)| members).sum();
        if members == 0 {
            return supply;
        }
        if wanted as f64 <= supply {
            return own + (supply - wanted as f64) / f64::from(members);
        }
        let (mut below, mut rest) = (0.0, members);
        for (sum, members) in demands.iter().filter(|(_, members)| *members > 0) {
            let level = (supply - below) / f64::from(rest);
            if level * f64::from(*members) < *sum as f64 || rest <= *members {
                return own.min(level.max(0.0));
            }
            below += *sum as f64;
            rest -= members;
        }
        own.min(supply)
    }

    pub(super) fn is_sound(&self) -> bool {
        let lent: i64 = self.rows.values().map(|row| i64::from(row.holds)).sum();
        let demand: u64 = self.rows.values().map(|row| u64::from(row.demand)).sum();
        lent == self.lent && demand == self.demands.iter().map(|(sum, _)| sum).sum::<u64>()
    }

    /// Grants `member` its due tokens, or queues it.
    pub(super) fn serve(&mut self, member: MemberId, entry: &Entry, now: Micros, hints: &mut Vec<WakeUp>) -> PoolGrant {
        self.pass_over(member, now);
        let target = self.target(member);
        let granted = self.grant(member, entry, target);
        self.queue(member, entry, granted, target, now);
        self.call(member, entry, now, hints);
        let row = &self.rows[&member];
        PoolGrant {
            holds: row.holds,
            target,
            wanted: !self.hungry.is_empty() || self.free() < 0 || self.is_short(),
            over: self.free() < 0,
            queued: row.hungry.is_some(),
            limit: self.limit(),
            pace: self.supply() as f64 / f64::from(self.waiting.max(1)),
            word: self.word.clone(),
        }
    }

    /// Drops heads of the queue that were told and have not come, so that they block no other member.
    fn pass_over(&mut self, member: MemberId, now: Micros) {
        while let Some(&(since, head)) = self.hungry.first() {
            let row = self.rows.get_mut(&head).expect("who is hungry has a row");
            if head == member || row.hinted.is_none_or(|hinted| now <= hinted + PATIENCE) {
                return;
            }
            (row.hungry, row.hinted) = (None, None);
            self.hungry.remove(&(since, head));
        }
    }

    fn grant(&mut self, member: MemberId, entry: &Entry, target: f64) -> u32 {
        let row = &self.rows[&member];
        let holds = f64::from(row.holds);
        let before =
            self.hungry.first().filter(|(since, head)| *head != member && row.hungry.is_none_or(|own| *since <= own));
        let others = self.hungry.iter().take(2).any(|(_, hungry)| *hungry != member);
        let reserved = before.map_or(0, |(_, head)| i64::from(self.rows[head].need));
        let lacks = if !others {
            i64::from(entry.want)
        } else {
            let share = if target < FEW { (target - holds - 1e-9).ceil() } else { (target - holds).floor() } as i64;
            if before.is_none() { share.max(entry.need.into()) } else { share }
        };
        let granted = i64::from(entry.want).min(self.free() - reserved).min(lacks).max(0);
        // All or nothing: an insufficient grant would lie idle until more comes.
        let granted = if granted < entry.need.into() { 0 } else { granted };
        self.lent += granted;
        let row = self.rows.get_mut(&member).expect("it was heard of just now");
        row.holds += granted as u32;
        row.need = if granted < entry.need.into() { entry.need.max(1) } else { 1 };
        granted as u32
    }

    fn queue(&mut self, member: MemberId, entry: &Entry, granted: u32, target: f64, now: Micros) {
        // The head of the queue stays there for its fair share, not for the extra tokens that it is due as the head.
        let first = self.hungry.first().is_some_and(|(_, head)| *head == member);
        let fair = if first { self.fair(member, None) } else { target };
        let row = self.rows.get_mut(&member).expect("it was heard of just now");
        let holds = f64::from(row.holds);
        let below = match f64::from(entry.need) {
            // As near to the fair share as whole requests allow.
            need if need > 1.0 => holds + need / 2.0 <= fair,
            _ if fair < FEW => holds < fair - 1e-9,
            _ => holds <= fair - 1.0,
        };
        let lacks = entry.want > granted;
        let hungry = lacks && (row.holds < entry.cost || below);
        if let Some(since) = row.hungry.filter(|_| !hungry || granted > 0) {
            self.hungry.remove(&(since, member));
            row.hungry = None;
        }
        if hungry && row.hungry.is_none() {
            row.hungry = Some(now);
            self.hungry.insert((now, member));
        }
        let more = lacks && !hungry;
        if let Some(since) = row.more.filter(|_| !more) {
            self.more.remove(&(since, member));
            row.more = None;
        }
        if more && row.more.is_none() {
            row.more = Some(now);
            self.more.insert((now, member));
        }
    }

    /// Tells the head of the queue that there is enough for it. With an empty queue, tells a member that wants more
    /// than its share. Otherwise tells all members that one is queued.
    fn call(&mut self, member: MemberId, entry: &Entry, now: Micros, hints: &mut Vec<WakeUp>) {
        let free = self.free();
        let hint = |member| WakeUp::Pool { member, pool: entry.pool.clone() };
        let Some(&(_, head)) = self.hungry.first() else {
            let fits = |other: &MemberId| *other != member && free >= self.rows[other].need.into();
            match self.more.iter().take(MANY).find(|(_, other)| fits(other)).copied() {
                Some((since, other)) => {
                    self.more.remove(&(since, other));
                    self.rows.get_mut(&other).expect("who wants more has a row").more = None;
                    hints.push(hint(Some(other)));
                }
                None if free < 0 => self.call_all(now, hints, hint(None)),
                None => {}
            }
            return;
        };
        let row = self.rows.get_mut(&head).expect("who is hungry has a row");
        if head != member && free >= i64::from(row.need) && row.hinted.is_none() {
            row.hinted = Some(now);
            hints.push(hint(Some(head)));
        } else if row.hinted.is_none() {
            self.call_all(now, hints, hint(None));
        }
    }

    fn call_all(&mut self, now: Micros, hints: &mut Vec<WakeUp>, hint: WakeUp) {
        if self.called.is_none_or(|called| now > called + PATIENCE) {
            self.called = Some(now);
            hints.push(hint);
        }
    }
}

/// Index of a demand's size among the [`SIZES`].
fn size(demand: u32) -> usize {
    let power = 32 - demand.leading_zeros();
    let part = f64::from(demand) / 2f64.powi(power as i32);
    2 * power as usize + usize::from(part >= std::f64::consts::FRAC_1_SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Targets of members with these demands for 1,000 tokens.
    fn targets(demands: &[u32]) -> Vec<f64> {
        let mut pool = TokenPool::new(1_000_000);
        pool.open = true;
        let members = || (1..).map(MemberId).zip(demands);
        for (member, demand) in members() {
            let entry = Entry {
                pool: "p".into(),
                limit: 1000,
                per: 1_000_000,
                settle: 0,
                holds: 0,
                want: 0,
                cost: 0,
                need: 0,
                demand: *demand,
                ends: None,
                word: Box::default(),
            };
            pool.hear(member, &entry, false);
        }
        members().map(|(member, _)| pool.fair(member, None)).collect()
    }

    #[test]
    fn who_wants_less_than_an_equal_part_has_that_and_the_others_have_equal_parts_of_the_rest() {
        assert_eq!(targets(&[500, 500, 500, 500]), [250.0; 4]);
        assert_eq!(targets(&[500, 500, 500, 100]), [300.0, 300.0, 300.0, 100.0]);
        // 184 is less than 250, although it falls into the size up to 256.
        assert_eq!(targets(&[500, 500, 500, 184]), [272.0, 272.0, 272.0, 184.0]);
        assert_eq!(targets(&[500, 500, 200, 100]), [350.0, 350.0, 200.0, 100.0]);
        // Tokens beyond all demands are divided equally.
        assert_eq!(targets(&[300, 300, 100, 100]), [350.0, 350.0, 150.0, 150.0]);
    }

    /// Demands of one size are treated alike: some targets may be too small, but their sum never exceeds what there is.
    #[test]
    fn no_more_is_due_than_there_is() {
        for demands in
            [&[500, 240, 200, 190][..], &[182, 255, 255, 255, 255], &[255, 182, 182, 182, 182, 400], &[1000, 1]]
        {
            let due: f64 = targets(demands).iter().sum();
            assert!((900.0..=1000.0 + 1e-9).contains(&due), "{demands:?}: {due}");
        }
    }
}
