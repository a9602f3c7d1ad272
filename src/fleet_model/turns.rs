//! Assigns the tokens of a pool to members, and tells members to come for them.

use super::pool::TokenPool;
use andante_fleet::{Entry, MemberId, Micros, PoolGrant, WakeUp};

/// Minimum time between two hints to a member that its turn has come, or to all that a member wants tokens.
const PATIENCE: Micros = 300_000;
/// Up to this many tokens are shared out one by one.
const FEW: f64 = 20.0;
/// Members above their share that are checked for one that can use the free tokens.
const MANY: usize = 4;

impl TokenPool {
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
