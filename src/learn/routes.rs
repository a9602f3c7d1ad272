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
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Instant,
    length: Duration,
}

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
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
        pause.until = now + pause.length.max(FIRST);
        Ok(())
    }

    /// A request of this kind was refused: for how long it pauses.
    pub fn refused(&mut self, route: RouteKey, now: Instant) -> Option<Duration> {
        if self.paused.len() >= MOST && !self.paused.contains_key(&route) {
            self.paused.retain(|_, pause| pause.until > now);
            if self.paused.len() >= MOST {
                return None;
            }
        }
        match self.paused.get_mut(&route) {
            // It was under way before.
            Some(pause) if pause.until > now + pause.length / 2 && pause.until <= now + pause.length => None,
            Some(pause) => {
                pause.length = (pause.length * 2).min(LONGEST);
                pause.until = now + pause.length;
                Some(pause.length)
            }
            None => {
                self.paused.insert(route, Pause { until: now + FIRST, length: FIRST });
                Some(FIRST)
            }
        }
    }

    /// A request of this kind was served.
    pub fn served(&mut self, route: RouteKey) {
        self.paused.remove(&route);
    }
}
