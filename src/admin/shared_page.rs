//! A long page for many readers: one thread writes it at a time, and readers that arrive meanwhile share the next one.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use hyper::body::Bytes;
use tokio::sync::Mutex;

use crate::memory::{Charge, Holder, Memory};

/// The latest version of a page. `V` is the requested variant.
pub(super) struct SharedPage<V> {
    latest: Arc<Mutex<Option<WrittenPage<V>>>>,
    /// Number of writings that have begun.
    begun: Arc<AtomicU64>,
}

struct WrittenPage<V> {
    number: u64,
    variant: V,
    text: Bytes,
}

/// Bytes of a page, charged until its last reader has them.
struct ChargedText {
    text: Vec<u8>,
    _charge: Option<Charge>,
}

/// Reason why there is no page.
#[derive(Debug)]
pub(super) enum NoPage {
    /// Slow readers hold too much memory.
    Memory,
    /// Writing the page failed.
    Unwritten,
}

// === impl SharedPage ===

impl<V: PartialEq + Send + 'static> SharedPage<V> {
    pub(super) fn new() -> Self {
        Self { latest: Arc::default(), begun: Arc::default() }
    }

    /// The page in this `variant`, no older than the call unless its readers hold all memory that pages may have.
    /// Written on a blocking thread, because the present thread may have slots to hand out.
    pub(super) async fn read(
        &self,
        variant: V,
        memory: Option<Arc<Memory>>,
        write: impl FnOnce() -> Vec<u8> + Send + 'static,
    ) -> Result<Bytes, NoPage> {
        let asked = self.begun.load(Ordering::Acquire);
        // Dropping the call here causes no writing.
        let mut latest = self.latest.clone().lock_owned().await;
        let shared = |page: &WrittenPage<V>| page.variant == variant && page.number > asked;
        if let Some(page) = latest.as_ref().filter(|page| shared(page)) {
            return Ok(page.text.clone());
        }
        let begun = self.begun.clone();
        let writing = tokio::task::spawn_blocking(move || {
            let number = begun.fetch_add(1, Ordering::AcqRel) + 1;
            let text = write();
            let charge = memory.map(|memory| memory.charge(Holder::Pages));
            match charge.map(|mut charge| charge.resize(text.len() as u64).then_some(charge)) {
                Some(None) => {
                    let old = latest.as_ref().filter(|page| page.variant == variant);
                    old.map(|page| page.text.clone()).ok_or(NoPage::Memory)
                }
                charge => {
                    let text = Bytes::from_owner(ChargedText { text, _charge: charge.flatten() });
                    *latest = Some(WrittenPage { number, variant, text: text.clone() });
                    Ok(text)
                }
            }
        });
        writing.await.unwrap_or(Err(NoPage::Unwritten))
    }
}

impl AsRef<[u8]> for ChargedText {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicUsize, time::Duration};

    use super::*;
    use crate::clock::Clock;

    /// Writes `text` after a while, and counts how often.
    fn slowly(count: &Arc<AtomicUsize>, text: &'static str) -> impl FnOnce() -> Vec<u8> + use<> {
        let count = count.clone();
        move || {
            std::thread::park_timeout(Duration::from_millis(50));
            count.fetch_add(1, Ordering::Relaxed);
            text.as_bytes().to_vec()
        }
    }

    #[tokio::test]
    async fn readers_at_once_share_two_writings_and_who_leaves_causes_none() {
        let (page, count) = (Arc::new(SharedPage::new()), Arc::new(AtomicUsize::new(0)));
        let readers: Vec<_> = (0..20)
            .map(|_| {
                let (page, write) = (page.clone(), slowly(&count, "text"));
                tokio::spawn(async move { page.read((), None, write).await.unwrap() })
            })
            .collect();
        for reader in readers {
            assert_eq!(reader.await.unwrap(), "text");
        }
        assert!(count.load(Ordering::Relaxed) <= 2, "{count:?}");
        for _ in 0..20 {
            let left = page.read((), None, slowly(&count, "text"));
            let _ = tokio::time::timeout(Duration::from_millis(1), left).await;
        }
        assert_eq!(page.read((), None, slowly(&count, "new")).await.unwrap(), "new");
        assert!(count.load(Ordering::Relaxed) <= 8, "{count:?}");
    }

    #[tokio::test]
    async fn readers_that_hold_all_memory_get_the_same_page_once_more() {
        let memory = Memory::new(1 << 30, Clock::start());
        let page = SharedPage::new();
        let large = || vec![b'x'; 200 << 20];
        let first = page.read(1, Some(memory.clone()), large).await.unwrap();
        let mut held = vec![first];
        for _ in 0..4 {
            held.push(page.read(1, Some(memory.clone()), large).await.unwrap());
        }
        assert!(memory.charged() <= 512 << 20, "{}", memory.charged());
        assert!(matches!(page.read(2, Some(memory.clone()), large).await, Err(NoPage::Memory)));
        drop((held, page));
        assert_eq!(memory.charged(), 0);
    }
}
