//! Where strands stand: in the front, or parked in their lines; and when they go from the one to the other.

use std::hash::Hash;

use super::{Finding, Gate, Hold, Line, Queue, State, Strand};
use crate::{
    clock::Instant,
    lane::order::{claim::Claim, ranking::Ranking},
    limit::Cost,
};

impl<K: Copy + Eq + Hash, T> Queue<K, T> {
    /// Looks whether the first of what is parked in a line may leave: then its strand goes to the front.
    pub(super) fn look_at(&mut self, line: u32, now: Instant, moves: &mut usize, gate: &mut impl Gate<K, T>) -> bool {
        loop {
            let ranking = self.lines[line].ranking.as_mut().expect("something is parked there");
            let strand = ranking.next().expect("something is parked there");
            match self.find_out(self.strands[strand].first, now, moves, gate) {
                // It was the last one there, and the line is gone; or the line waits for nothing any more.
                Finding::Moved if self.lines.get(line).is_none_or(|line| line.parked == 0) => return false,
                Finding::Moved => {}
                Finding::Held(_, Hold::Own(at)) => {
                    self.close(line, at);
                    return false;
                }
                Finding::Held(_, Hold::Open | Hold::Shared(_)) => {
                    self.unpark(strand);
                    if self.lines[line].parked > 0 && !self.open.contains(&line) {
                        self.open.push_back(line);
                    }
                    return true;
                }
            }
        }
    }

    /// Lets a strand to the front from the next line that is open, if one has any parked.
    pub(super) fn let_one_forward(&mut self, now: Instant, moves: &mut usize, gate: &mut impl Gate<K, T>) -> bool {
        while let Some(line) = self.open.pop_front() {
            let parked = |line: &Line<K>| line.state == State::Open && line.parked > 0;
            if self.lines.get(line).is_some_and(parked) && self.look_at(line, now, moves, gate) {
                return true;
            }
        }
        false
    }

    pub(super) fn find_out(
        &mut self,
        id: u32,
        now: Instant,
        moves: &mut usize,
        gate: &mut impl Gate<K, T>,
    ) -> Finding<K> {
        let ticket = &self.tickets[id];
        let here = self.lines[self.strands[ticket.strand].line].key;
        let key = gate.line(&ticket.ticket, &here);
        if key != here && *moves > 0 {
            *moves -= 1;
            self.move_to(id, key);
            return Finding::Moved;
        }
        let hold = match gate.hold(&key, ticket.cost) {
            Hold::Shared(at) | Hold::Own(at) if at <= now => Hold::Open,
            hold => hold,
        };
        Finding::Held(key, hold)
    }

    /// A strand in the front does not leave before `at`, because of its line.
    pub(super) fn park(&mut self, strand: u32, at: Instant) {
        let (id, Strand { claim, line, first, .. }) = (strand, &self.strands[strand]);
        let (claim, line, first) = (*claim, *line, &self.tickets[*first]);
        let (key, cost) = (first.key, first.cost);
        self.front.remove(&claim, id, key);
        self.put_into_line(id, claim, line, key, cost, true);
        let at = match self.lines[line].state {
            // Another one that is parked there may leave earlier.
            State::Closed(before) => before.min(at),
            State::Open if self.lines[line].parked > 1 => Instant::START,
            State::Open => at,
        };
        self.close(line, at);
    }

    pub(super) fn put_into_line(&mut self, strand: u32, claim: Claim, line: u32, key: u64, cost: Cost, moved: bool) {
        self.strands[strand].parked = true;
        let line = &mut self.lines[line];
        line.parked += 1;
        let ranking = line.ranking.get_or_insert_with(|| Box::new(Ranking::new()));
        ranking.insert(&claim, strand, key, cost.get().into(), moved);
    }

    fn unpark(&mut self, strand: u32) {
        let id = strand;
        let strand = &mut self.strands[strand];
        strand.parked = false;
        let (claim, line, first) = (strand.claim, &mut self.lines[strand.line], &self.tickets[strand.first]);
        line.parked -= 1;
        line.ranking.as_mut().expect("it was parked there").remove(&claim, id, first.key);
        self.front.insert(&claim, id, first.key, first.cost.get().into(), true);
        let line = strand.line;
        self.reopen(line);
    }

    /// The line is looked at again at `at`.
    pub(super) fn close(&mut self, line: u32, at: Instant) {
        if let State::Closed(before) = self.lines[line].state {
            self.closed.remove(&(before, line));
        }
        self.lines[line].state = State::Closed(at);
        self.closed.insert((at, line));
    }

    pub(super) fn reopen(&mut self, line: u32) {
        if let State::Closed(before) = std::mem::replace(&mut self.lines[line].state, State::Open) {
            self.closed.remove(&(before, line));
        }
    }
}
