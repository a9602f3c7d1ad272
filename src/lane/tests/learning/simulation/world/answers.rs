//! Answers of the simulated API: whether its limiters accept a request, and what it reports of them.

use super::{
    super::{
        MORNING,
        limiter::Look,
        tells::{Tells, Wait},
    },
    Answer, Run, Shown,
};

impl Run<'_> {
    /// The announced wait during a pause, if one covers the time `since` the start.
    pub(super) fn pause(&self, since: f64) -> Option<Option<f64>> {
        let (at, lasts) = self.world.pauses.iter().find(|(at, lasts)| (*at..at + lasts).contains(&since))?;
        Some((self.world.wait != Wait::Unsaid).then(|| (at + lasts - since).ceil()))
    }

    /// Asks one limiter after the other, until one refuses.
    pub(super) fn limit(&mut self, kind: usize, answer: &mut Answer) -> (f64, Vec<usize>) {
        let now = self.now + MORNING.as_secs_f64();
        let (mut delay, mut holds, mut shown) = (0.0, Vec::new(), None::<Look>);
        for (index, (limiter, of)) in self.world.limiters.iter_mut().enumerate() {
            if of.is_some_and(|of| of != kind) {
                continue;
            }
            let look = limiter.ask(now);
            delay += look.delay;
            if limiter.is_parallel() {
                holds.extend(look.accepted.then_some(index));
            } else {
                shown = Some(look);
            }
            if !look.accepted {
                answer.status = self.world.refuses;
                break;
            }
        }
        if answer.status != 200 {
            answer.retry_after = match (self.world.wait, shown) {
                (Wait::Always(wait), _) => Some(wait),
                (Wait::Truth, Some(look)) => Some(look.reset.ceil().max(1.0)),
                _ => None,
            };
            holds.drain(..).for_each(|index| self.world.limiters[index].0.done());
        }
        if self.world.wait == Wait::WithAll {
            answer.retry_after = shown.map(|look| look.reset.ceil().max(1.0));
        }
        answer.told = shown.and_then(|look| self.report(look));
        (delay, holds)
    }

    fn report(&mut self, look: Look) -> Option<Shown> {
        let truth = Shown { limit: look.limit, remaining: look.remaining, reset: look.reset.ceil(), window: None };
        Some(match self.world.tells {
            Tells::Nothing => return None,
            Tells::Truth => truth,
            Tells::Exact => Shown { reset: (look.reset * 1000.0).ceil() / 1000.0, ..truth },
            Tells::Date => Shown { reset: (MORNING.as_secs_f64() + self.now + look.reset).ceil(), ..truth },
            Tells::Late => Shown { reset: look.reset + 1.0, ..truth },
            Tells::LateDate => Shown { reset: MORNING.as_secs_f64() + self.now + look.reset + 1.0, ..truth },
            Tells::FarLate(by) => Shown { reset: look.reset + by, ..truth },
            Tells::WrongWindow => Shown { window: Some(look.window * 6.0), ..truth },
            Tells::Others => Shown {
                remaining: (self.dice.fraction() * look.limit).floor(),
                reset: (self.dice.fraction() * look.window).ceil(),
                ..truth
            },
            Tells::Frozen => Shown { remaining: 0.0, reset: look.window, ..truth },
            Tells::OneLess => Shown { remaining: (look.remaining - 1.0).max(0.0), ..truth },
            Tells::Negative => Shown { remaining: -5.0, reset: -3.0, ..truth },
        })
    }
}
