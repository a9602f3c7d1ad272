//! Requests of workers, and their departure.

use super::*;

impl Fleet {
    pub(super) fn request(&mut self, at: usize, own: usize) {
        let shape = &self.shape;
        let users = self.users[self.processes[at].lanes[own].lane].len();
        match &shape.load {
            Load::Most => self.processes[at].lanes[own].waiting = CROWD,
            Load::Workers(workers) => self.processes[at].lanes[own].waiting = workers[at % workers.len()],
            Load::Part(load) => {
                let rate =
                    f64::from(shape.limits[0].limit.rate.count.get()) / micros(shape.limits[0].limit.rate.per) as f64;
                let mean = users as f64 / (rate * load);
                self.processes[at].lanes[own].waiting += 1;
                let next = self.now + self.exponential(mean);
                self.at(next, Event::Request(at, own));
            }
            Load::Parts(parts) => {
                let rate =
                    f64::from(shape.limits[0].limit.rate.count.get()) / micros(shape.limits[0].limit.rate.per) as f64;
                let mean = 1.0 / (rate * parts[at % parts.len()]);
                self.processes[at].lanes[own].waiting += 1;
                let next = self.now + (mean / 2.0) as Micros + self.below(mean as Micros);
                self.at(next, Event::Request(at, own));
            }
        }
        self.send(at, own);
    }

    /// Sends every request that may leave.
    pub(super) fn send(&mut self, at: usize, own: usize) {
        let (now, local, crowded) = (self.now, local(at, self.now), matches!(self.shape.load, Load::Most));
        let mut leave = Vec::new();
        loop {
            let next = self.cost();
            let lane = &mut self.processes[at].lanes[own];
            for (Taken { limit, takes, .. }, usual) in self.shape.limits.iter().zip(&lane.usual) {
                if takes.is_some() {
                    let part = lane.budget.due_part(limit.unit);
                    let amount = usual.reserve(lane.under_way as usize, part, Some(limit.rate.count));
                    lane.cost = lane.cost.with(limit.unit, amount);
                }
            }
            if lane.waiting == 0 || lane.budget.ready(local, &lane.cost, Scope::NONE).instant(local) > local {
                break;
            }
            let charge = lane.budget.take(local, local, lane.cost, Scope::NONE);
            lane.budget.sent(charge, local);
            lane.waiting -= u64::from(!crowded);
            lane.under_way += u32::from(self.shape.limits.iter().any(|taken| taken.takes.is_some()));
            leave.push((charge, lane.cost));
            lane.cost = next;
        }
        let lane = &mut self.processes[at].lanes[own];
        let number = lane.lane;
        if lane.waiting > 0 {
            let slot = global(at, lane.budget.ready(local, &lane.cost, Scope::NONE).instant(local)) + 1;
            lane.wakes_at = slot.max(now + 1);
            let wakes = lane.wakes_at;
            self.at(wakes, Event::Slot(at, own));
        }
        if self.processes[at].lanes[own].budget.calls() {
            self.look_at(at, own, now);
        }
        for (charge, cost) in leave {
            self.sent[at] += u64::from(cost.of(self.shape.limits[0].limit.unit).map_or(0, Amount::get));
            let way = WAY + self.below(JITTER);
            let back = WAY + self.below(5 * MS);
            let mut said = Vec::new();
            for (index, Taken { limit, takes, .. }) in self.shape.limits.clone().into_iter().enumerate() {
                match takes {
                    None => {
                        self.at(now + way, Event::Arrive(number, index, cost.of(limit.unit).map_or(0, Amount::get)))
                    }
                    Some((least, most)) => {
                        let part = self.below(1000) as f64 / 1000.0;
                        said.push((index, least + (f64::from(most - least) * part * part) as u32));
                    }
                }
            }
            // The API counts a request's usage when its response is complete.
            let answered = now + way + UNIT * said.iter().map(|(_, took)| Micros::from(*took)).sum::<Micros>();
            for &(index, took) in &said {
                self.at(answered, Event::Arrive(number, index, took));
            }
            self.at(answered + back, Event::Answer(at, own, charge, now, said));
        }
    }

    /// Cost that the next request states.
    fn cost(&mut self) -> Cost {
        self.shape.limits.clone().into_iter().fold(Cost::MIN, |cost, Taken { limit, costs: (least, most), .. }| {
            let said = if least < most { least + self.below(Micros::from(most - least + 1)) as u32 } else { most };
            cost.with(limit.unit, said)
        })
    }
}
