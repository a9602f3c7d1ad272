//! Tickets in their strands, and strands in their lines.

use std::hash::Hash;

use super::{Claimed, Gate, Line, NONE, Queue, State, Strand, Ticket};
use crate::lane::order::claim::Claim;

impl<K: Copy + Eq + Hash, T> Queue<K, T> {
    /// Puts each ticket into the line that `key_of` says, where it keeps its place. O(waiting).
    pub fn sort(&mut self, mut key_of: impl FnMut(&T) -> K) {
        let mut misplaced = Vec::new();
        for (id, ticket) in self.tickets.iter() {
            let key = key_of(&ticket.ticket);
            if key != self.lines[self.strands[ticket.strand].line].key {
                misplaced.push((ticket.key, id, key));
            }
        }
        // In their order, so that each is put behind the one before it.
        misplaced.sort_unstable_by_key(|(place, ..)| *place);
        for (_, id, key) in misplaced {
            self.move_to(id, key);
        }
    }

    /// Moves up to `moves` tickets that stand first in a strand and belong into another line, and takes that off.
    /// O(strands + moves).
    pub fn move_misplaced(&mut self, moves: &mut usize, gate: &mut impl Gate<K, T>) {
        let firsts: Vec<u32> = self.strands.iter().map(|(_, strand)| strand.first).collect();
        for mut id in firsts {
            while id != NONE && *moves > 0 {
                let ticket = &self.tickets[id];
                let here = self.lines[self.strands[ticket.strand].line].key;
                let (key, behind) = (gate.line(&ticket.ticket, &here), ticket.behind);
                if key == here {
                    break;
                }
                *moves -= 1;
                self.move_to(id, key);
                id = behind;
            }
        }
    }

    /// Puts a ticket into the strand in which it belongs.
    pub(super) fn link(&mut self, id: u32, key: K, claim: Claim, moved: bool) {
        let line = match self.line_ids.get(&key) {
            Some(line) => *line,
            None => {
                let line = Line { key, strands: 0, parked: 0, units: 0, state: State::Open, ranking: None };
                let line = self.lines.insert(line);
                self.line_ids.insert(key, line);
                line
            }
        };
        let (place, cost) = (self.tickets[id].key, self.tickets[id].cost);
        self.lines[line].units += u64::from(cost.get());
        if let Some(&strand) = self.strand_ids.get(&(line, claimed(&claim))) {
            self.tickets[id].strand = strand;
            self.put_between(id, strand);
            return;
        }
        let strand = Strand { claim, line, first: id, last: id, finger: NONE, parked: false };
        let strand = self.strands.insert(strand);
        self.strand_ids.insert((line, claimed(&claim)), strand);
        self.tickets[id].strand = strand;
        self.lines[line].strands += 1;
        if self.lines[line].parked == 0 {
            self.front.insert(&claim, strand, place, cost.get().into(), moved);
        } else {
            // What waits there already comes first, as the line has it. It may also be first itself.
            self.put_into_line(strand, claim, line, place, cost, moved);
            self.recheck_line(&key);
        }
    }

    /// Takes a ticket out of its strand. Says by what it claimed its turn.
    pub(super) fn unlink(&mut self, id: u32) -> Claim {
        let Ticket { key, cost, strand: strand_id, before, behind, .. } = self.tickets[id];
        let strand = &mut self.strands[strand_id];
        let (claim, line_id, parked) = (strand.claim, strand.line, strand.parked);
        let line = &mut self.lines[line_id];
        line.units -= u64::from(cost.get());
        if before != NONE || behind != NONE {
            if strand.finger == id {
                strand.finger = before;
            }
            match before {
                NONE => self.set_first(strand_id, behind, key),
                before => self.tickets[before].behind = behind,
            }
            match behind {
                NONE => self.strands[strand_id].last = before,
                behind => self.tickets[behind].before = before,
            }
            return claim;
        }
        line.strands -= 1;
        if parked {
            line.parked -= 1;
            line.ranking.as_mut().expect("it was parked there").remove(&claim, strand_id, key);
        } else {
            self.front.remove(&claim, strand_id, key);
        }
        self.strand_ids.remove(&(line_id, claimed(&claim)));
        self.strands.remove(strand_id);
        let line = &self.lines[line_id];
        if line.parked == 0 {
            self.reopen(line_id);
        } else if parked {
            // What stood behind it may leave earlier.
            let key = line.key;
            self.recheck_line(&key);
        }
        if self.lines[line_id].strands == 0 {
            let line = self.lines.remove(line_id);
            self.line_ids.remove(&line.key);
        }
        claim
    }

    /// Puts a ticket where it belongs among the others of its strand. O(1), but for one that has stood elsewhere.
    fn put_between(&mut self, id: u32, strand: u32) {
        let key = self.tickets[id].key;
        let Strand { first, last, finger, .. } = self.strands[strand];
        let (before, behind) = if key > self.tickets[last].key {
            (last, NONE)
        } else if key < self.tickets[first].key {
            (NONE, first)
        } else {
            let mut before = if finger == NONE { first } else { finger };
            while self.tickets[before].key > key {
                before = self.tickets[before].before;
            }
            let mut behind = self.tickets[before].behind;
            while self.tickets[behind].key < key {
                (before, behind) = (behind, self.tickets[behind].behind);
            }
            self.strands[strand].finger = id;
            (before, behind)
        };
        (self.tickets[id].before, self.tickets[id].behind) = (before, behind);
        match behind {
            NONE => self.strands[strand].last = id,
            behind => self.tickets[behind].before = id,
        }
        match before {
            NONE => self.set_first(strand, id, self.tickets[behind].key),
            before => self.tickets[before].behind = id,
        }
    }

    /// Another ticket is the first of a strand, instead of the one with the key `old`.
    fn set_first(&mut self, strand: u32, id: u32, old: u64) {
        self.strands[strand].first = id;
        let Strand { claim, line, parked, .. } = self.strands[strand];
        let new = self.tickets[id].key;
        if parked {
            let line = &mut self.lines[line];
            line.ranking.as_mut().expect("it is parked there").rekey(&claim, strand, old, new);
            // It may leave earlier than the one before it.
            let key = line.key;
            self.recheck_line(&key);
        } else {
            self.front.rekey(&claim, strand, old, new);
        }
    }

    pub(super) fn move_to(&mut self, id: u32, key: K) {
        let claim = self.unlink(id);
        (self.tickets[id].before, self.tickets[id].behind) = (NONE, NONE);
        self.link(id, key, claim, true);
    }
}

fn claimed(claim: &Claim) -> Claimed {
    (claim.urgency.get(), claim.client.get(), claim.flow.0)
}
