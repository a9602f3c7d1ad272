//! Kinds of requests that an API refuses although its budget has room: each pauses alone.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use crate::clock::Instant;

/// A kind of request: a method, and a path without what tells one object from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RouteKey(u64);

/// The kinds of requests that pause.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    paused: HashMap<RouteKey, Pause>,
    suspects: HashMap<RouteKey, Suspect>,
}

/// A kind that is refused, while others are served.
#[derive(Clone, Copy, Debug, Default)]
struct Suspect {
    refused: u32,
    /// How many of other kinds were served since.
    others: u32,
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    since: Instant,
    until: Instant,
    /// How often it was too short, one after the other.
    again: i32,
}

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
const A_DAY: Duration = Duration::from_secs(86_400);
/// A request that tries for all is given this long before another one tries as well.
const TRYING: Duration = Duration::from_secs(2);
/// After so many refusals of one kind alone it is this kind that is refused, and not all.
const ALONE: u32 = 3;
/// So many others must have been served meanwhile.
const OTHERS: u32 = 10;
/// So many kinds are suspected at once.
const SUSPECTS: usize = 8;
/// More kinds than this are not told apart any more.
const MOST: usize = 256;
/// Of a path so many segments count.
const SEGMENTS: usize = 4;

// === impl RouteKey ===

impl RouteKey {
    /// What no pause is ever about.
    pub const NONE: Self = Self(0);

    /// The kind of a request.
    pub fn new(method: &str, path: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        method.hash(&mut hasher);
        for segment in path.split('/').filter(|segment| !segment.is_empty()).take(SEGMENTS) {
            // Numbers and long names with digits in them are somebody's, and not a kind.
            let id = segment.bytes().all(|b| b.is_ascii_digit())
                || segment.len() >= 16 && segment.bytes().any(|b| b.is_ascii_digit());
            (if id { "*" } else { segment }).hash(&mut hasher);
        }
        Self(hasher.finish())
    }
}

// === impl Routes ===

impl Routes {
    /// Whether none pauses.
    pub fn is_empty(&self) -> bool {
        self.paused.is_empty()
    }

    /// Lets one request of this kind pass, unless it pauses: until when. Who passes then tries for all.
    pub fn pass(&mut self, route: RouteKey, now: Instant) -> Result<(), Instant> {
        let Some(pause) = self.paused.get_mut(&route) else { return Ok(()) };
        if now < pause.until {
            return Err(pause.until);
        }
        pause.until = now + TRYING;
        Ok(())
    }

    /// Whether requests of this kind are refused again and again while all others are served. Counts one refusal.
    pub fn is_alone(&mut self, route: RouteKey) -> bool {
        if self.suspects.len() >= SUSPECTS && !self.suspects.contains_key(&route) {
            let oldest = self.suspects.iter().max_by_key(|(_, suspect)| suspect.others).map(|(route, _)| *route);
            oldest.map(|oldest| self.suspects.remove(&oldest));
        }
        let suspect = self.suspects.entry(route).or_default();
        suspect.refused += 1;
        suspect.refused >= ALONE && suspect.others >= OTHERS
    }

    /// A request of this kind, sent at `sent`, was refused, or has used up what its kind has, and is to wait for `wait`, if
    /// that was said: for how long its kind pauses from now on.
    pub fn refused(
        &mut self,
        route: RouteKey,
        wait: Option<Duration>,
        (sent, now): (Instant, Instant),
    ) -> Option<Duration> {
        let wait = wait.unwrap_or_default().min(A_DAY);
        if self.paused.len() >= MOST && !self.paused.contains_key(&route) {
            self.paused.retain(|_, pause| pause.until > now);
            if self.paused.len() >= MOST {
                return None;
            }
        }
        match self.paused.get_mut(&route) {
            // It was under way before.
            Some(pause) if sent < pause.since => None,
            Some(pause) => {
                let again = (pause.again + 1).min(20);
                let length = FIRST.mul_f64(2f64.powi(again)).min(LONGEST).max(wait);
                *pause = Pause { since: now, until: now + length, again };
                Some(length)
            }
            None => {
                let length = FIRST.max(wait);
                self.paused.insert(route, Pause { since: now, until: now + length, again: 0 });
                Some(length)
            }
        }
    }

    /// A request of this kind, sent at `sent`, was served: if that was after its pause had begun, it is over.
    pub fn served(&mut self, route: RouteKey, sent: Instant) {
        if self.paused.get(&route).is_some_and(|pause| pause.since <= sent) {
            self.paused.remove(&route);
        }
        self.suspects.remove(&route);
        self.suspects.values_mut().for_each(|suspect| suspect.others = suspect.others.saturating_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(of: u64) -> Instant {
        Instant::START + Duration::from_secs(of)
    }

    #[test]
    fn a_kind_is_a_method_and_a_path_without_its_objects() {
        let key = |path| RouteKey::new("GET", path);
        assert_eq!(key("/users/17/posts"), key("/users/42/posts"));
        assert_eq!(key("/users/0c6a9e1e-5b52-4b1c/posts"), key("/users/9f86d081884c7d65/posts"));
        assert_ne!(key("/users/17/posts"), key("/users/17/likes"));
        assert_ne!(key("/users"), RouteKey::new("POST", "/users"));
    }

    #[test]
    fn one_tries_for_all_of_its_kind_and_pauses_grow() {
        let (mut routes, kind) = (Routes::default(), RouteKey::new("GET", "/a"));
        assert_eq!(routes.refused(kind, None, (s(0), s(1))), Some(FIRST));
        assert_eq!(routes.refused(kind, None, (s(0), s(1))), None, "it was under way before");
        assert_eq!(routes.pass(kind, s(1)), Err(s(2)));
        assert_eq!(routes.pass(RouteKey::new("GET", "/b"), s(1)), Ok(()));
        assert_eq!((routes.pass(kind, s(2)), routes.pass(kind, s(2))), (Ok(()), Err(s(4))));
        assert_eq!(routes.refused(kind, None, (s(2), s(2))), Some(FIRST * 2));
        routes.served(kind, s(1));
        assert_eq!(routes.pass(kind, s(3)), Err(s(4)), "it was under way before as well");
        routes.served(kind, s(4));
        assert_eq!(routes.pass(kind, s(3)), Ok(()));
    }

    #[test]
    fn one_kind_that_is_refused_among_others_that_are_served_is_alone() {
        let (mut routes, kind) = (Routes::default(), RouteKey::new("GET", "/a"));
        let served = |routes: &mut Routes| (0..5).for_each(|_| routes.served(RouteKey::new("GET", "/b"), s(0)));
        assert!(!routes.is_alone(kind));
        served(&mut routes);
        assert!(!routes.is_alone(kind));
        served(&mut routes);
        assert!(routes.is_alone(kind));
        assert!(!routes.is_alone(RouteKey::new("GET", "/b")), "which is refused as well, but mostly served");
        assert!(routes.is_alone(kind));
        routes.served(kind, s(0));
        assert!(!routes.is_alone(kind));
    }
}
