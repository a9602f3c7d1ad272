//! Lets one task wake another.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;

/// An alarm that wakes its task once for each ring.
#[derive(Default)]
pub(crate) struct Alarm {
    rings: AtomicBool,
    sleeper: Mutex<Option<Waker>>,
}

// === impl Alarm ===

impl Alarm {
    pub(crate) fn ring(&self) {
        self.rings.store(true, Ordering::Relaxed);
        if let Some(sleeper) = &*self.sleeper.lock() {
            sleeper.wake_by_ref();
        }
    }

    /// Ready if it has rung since the last poll. Otherwise the task is woken when it rings.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        let mut sleeper = self.sleeper.lock();
        if self.rings.swap(false, Ordering::Relaxed) {
            return Poll::Ready(());
        }
        if !sleeper.as_ref().is_some_and(|sleeper| sleeper.will_wake(cx.waker())) {
            *sleeper = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, atomic::AtomicUsize},
        task::Wake,
    };

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn it_wakes_who_has_asked_and_rings_once() {
        let (alarm, woken) = (Alarm::default(), Arc::new(Woken::default()));
        let waker = Waker::from(woken.clone());
        let cx = Context::from_waker(&waker);
        assert!(alarm.poll(&cx).is_pending());
        alarm.ring();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(alarm.poll(&cx).is_ready());
        assert!(alarm.poll(&cx).is_pending(), "not twice for one word");
    }
}
