//! The process's memory account: how much memory it may take (`max-memory`), and which holder has how much of it.
//!
//! Charges are coarse: a connection reserves a few KiB at once, so that a small request touches no shared counter.
//! Uncharged memory is still counted: the resident memory is read again while charges grow. A holder may take as much
//! as is left free (dynamic thresholds: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). So the
//! largest holder is refused first, and one that holds little is served while others fill the memory.

mod machine;

use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};

pub use self::machine::default_bytes;
use crate::clock::{Clock, Instant};

/// Part of the memory that no holder is given. An allocator keeps freed pages for a while, and the kernel's page
/// tables, threads and small values are charged to no holder.
const RESERVE_PART: u64 = 8;
/// Part of the memory that is left when clients with little are refused. Only charges count for that: uncharged memory
/// refuses no client with little.
const BRIM_PART: u64 = 16;
/// A holder with less than this part of the memory has little.
const LITTLE_PART: u64 = 64;
/// A holder with less than this part of the memory is not ended: an allocator may keep that much free memory.
const LARGE_PART: u64 = 8;
/// A charge of up to this many bytes is refused only when nothing is left: a connection with up to three usual requests.
pub const SMALL_BYTES: u64 = 16 * 1024;
/// The resident memory is read again after this time, or once charges have grown by this part of the memory.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
const SAMPLE_PART: u64 = 64;

/// Owner of charged memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    /// The requests of a client, by its address or the first one of its network.
    Client(IpAddr),
    /// Stored answers, including those that are being sent.
    Cache,
    /// Pages of the admin address.
    Pages,
    /// Heads of answers that are being read from HTTP/2 connections.
    Heads,
}

/// The account of a process.
#[derive(Debug)]
pub struct Memory {
    bytes: u64,
    clock: Clock,
    account: Mutex<Account>,
}

#[derive(Debug, Default)]
struct Account {
    holders: HashMap<Holder, u64>,
    /// Sum of the charges of all holders.
    charged: u64,
    /// The resident memory when nothing was charged.
    base: u64,
    /// The resident memory at the last reading, with the charges and the time of that reading.
    resident: u64,
    charged_then: u64,
    read: Option<Instant>,
    /// A thread is reading the resident memory.
    reading: bool,
}

/// Memory that a holder has. Dropping the charge returns the memory.
#[derive(Debug)]
pub struct Charge {
    memory: Arc<Memory>,
    holder: Holder,
    bytes: u64,
}

// === impl Memory ===

impl Memory {
    /// An account of `bytes` for a process that has only just started.
    pub fn new(bytes: u64, clock: Clock) -> Arc<Self> {
        let base = machine::resident_bytes().unwrap_or_default();
        let account = Account { base, resident: base, ..Account::default() };
        Arc::new(Self { bytes, clock, account: Mutex::new(account) })
    }

    /// The configured bound, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// An empty charge of `holder`.
    pub fn charge(self: &Arc<Self>, holder: Holder) -> Charge {
        Charge { memory: self.clone(), holder, bytes: 0 }
    }

    /// Bytes that are charged at the moment.
    pub fn charged(&self) -> u64 {
        self.account.lock().charged
    }

    /// Returns whether the connections of `holder` are to end: the process has more memory than its bound, and `holder`
    /// most of it. The resident memory counts, too, so that uncharged memory becomes free this way.
    pub fn is_to_end(&self, holder: Holder) -> bool {
        let mut account = self.account.lock();
        self.sample(&mut account);
        account.is_to_end(self.bytes, holder)
    }

    fn change(&self, holder: Holder, before: u64, after: u64) -> bool {
        let grows = after > before;
        let mut account = self.account.lock();
        if grows {
            self.sample(&mut account);
        }
        if grows && !account.fits(self.bytes, holder, after - before, after) {
            return false;
        }
        account.charged = account.charged - before + after;
        let held = account.holders.entry(holder).or_default();
        *held = *held - before + after;
        if *held == 0 {
            account.holders.remove(&holder);
        }
        true
    }

    /// Reads the resident memory, unless the last reading is recent. The account is unlocked meanwhile.
    fn sample(&self, account: &mut MutexGuard<'_, Account>) {
        let Some(charged) = account.begin_sample(self.bytes, self.clock.now()) else { return };
        let resident = MutexGuard::unlocked(account, machine::resident_bytes).unwrap_or_default();
        (account.reading, account.resident, account.charged_then) = (false, resident, charged);
    }
}

// === impl Account ===

impl Account {
    /// Begins a reading of the resident memory if it is due. Returns the present charges.
    fn begin_sample(&mut self, bytes: u64, now: Instant) -> Option<u64> {
        let grown = self.charged.saturating_sub(self.charged_then);
        let recent = self.read.is_some_and(|read| now.since(read) < SAMPLE_EVERY);
        if self.reading || (recent && grown < bytes / SAMPLE_PART) {
            return None;
        }
        (self.reading, self.read) = (true, Some(now));
        Some(self.charged)
    }

    /// Memory in use: the last reading plus later charges, and at least the charges.
    fn used(&self) -> u64 {
        let since = self.charged.saturating_sub(self.charged_then);
        (self.resident + since).max(self.base + self.charged)
    }

    /// Returns whether `holder` may take `more` bytes for a charge of `after` bytes.
    fn fits(&self, bytes: u64, holder: Holder, more: u64, after: u64) -> bool {
        let (used, held) = (self.used() + more, self.holders.get(&holder).copied().unwrap_or_default() + more);
        let free = (bytes - bytes / RESERVE_PART).saturating_sub(used);
        let little = held <= bytes / LITTLE_PART && self.base + self.charged + more <= bytes - bytes / BRIM_PART;
        held <= free || little || (after <= SMALL_BYTES && free > 0)
    }

    /// Returns whether more memory than `bytes` is in use, and `holder` is the largest and has a large part of it.
    fn is_to_end(&self, bytes: u64, holder: Holder) -> bool {
        let held = self.holders.get(&holder).copied().unwrap_or_default();
        self.used() > bytes && held >= bytes / LARGE_PART && self.holders.values().all(|other| *other <= held)
    }
}

// === impl Charge ===

impl Charge {
    /// Changes this charge to `bytes`. Returns `false`, and changes nothing, if the account has no room for more.
    pub fn resize(&mut self, bytes: u64) -> bool {
        let done = bytes == self.bytes || self.memory.change(self.holder, self.bytes, bytes);
        if done {
            self.bytes = bytes;
        }
        done
    }

    /// Bytes that are charged.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    /// An account of 64 MiB whose process has no memory of its own: `resident` equals the charges.
    fn account() -> Account {
        Account::default()
    }

    fn hold(account: &mut Account, holder: Holder, more: u64, after: u64) -> bool {
        let fits = account.fits(64 * MIB, holder, more, after);
        if fits {
            account.charged += more;
            *account.holders.entry(holder).or_default() += more;
        }
        fits
    }

    fn client(last: u8) -> Holder {
        Holder::Client([10, 0, 0, last].into())
    }

    #[test]
    fn one_holder_gets_half_of_what_is_given_out_and_another_a_quarter() {
        let mut account = account();
        let fill = |account: &mut Account, of| (0..1000).take_while(|_| hold(account, of, MIB, MIB)).count();
        assert_eq!(fill(&mut account, client(1)), 28);
        assert_eq!(fill(&mut account, client(2)), 14);
        assert_eq!(fill(&mut account, client(1)), 0, "the largest is refused first");
        assert!(hold(&mut account, client(3), MIB, MIB));
    }

    #[test]
    fn a_small_charge_of_the_largest_holder_fits_until_nothing_is_left() {
        let mut account = account();
        while hold(&mut account, client(1), MIB, MIB) {}
        let small = (0..10_000).take_while(|_| hold(&mut account, client(1), SMALL_BYTES, SMALL_BYTES)).count();
        assert_eq!(small as u64, 28 * MIB / SMALL_BYTES - 1);
        assert!(hold(&mut account, client(2), SMALL_BYTES, 2 * SMALL_BYTES), "a client with little");
    }

    #[test]
    fn resident_memory_that_is_charged_to_nobody_counts() {
        let mut account = Account { resident: 60 * MIB, ..account() };
        assert!(!hold(&mut account, client(1), 2 * MIB, 2 * MIB));
        account.resident = 10 * MIB;
        assert!(hold(&mut account, client(1), 2 * MIB, 2 * MIB));
    }

    #[test]
    fn a_client_with_little_is_served_whatever_is_resident_and_the_largest_is_to_end() {
        let mut account = account();
        assert!(hold(&mut account, client(1), 10 * MIB, 10 * MIB) && hold(&mut account, client(2), 9 * MIB, 9 * MIB));
        account.resident = 80 * MIB;
        assert!(hold(&mut account, client(3), SMALL_BYTES, 4 * SMALL_BYTES));
        assert!(!hold(&mut account, client(2), SMALL_BYTES, SMALL_BYTES));
        assert_eq!([1, 2, 3].map(|last| account.is_to_end(64 * MIB, client(last))), [true, false, false]);
        (account.resident, account.charged_then) = (60 * MIB, account.charged);
        assert!(!account.is_to_end(64 * MIB, client(1)), "below the bound");
    }

    #[test]
    fn a_holder_without_a_large_part_is_not_ended() {
        let mut account = account();
        assert!(hold(&mut account, client(1), 7 * MIB, 7 * MIB));
        account.resident = 80 * MIB;
        assert!(!account.is_to_end(64 * MIB, client(1)));
    }

    #[test]
    fn the_resident_memory_is_read_once_at_a_time_and_again_when_charges_have_grown() {
        let (clock, mut account) = (Clock::start(), account());
        let now = clock.now();
        account.charged = 2 * MIB;
        assert_eq!(account.begin_sample(64 * MIB, now), Some(2 * MIB));
        account.charged = 8 * MIB;
        assert_eq!(account.begin_sample(64 * MIB, now + SAMPLE_EVERY), None, "it is read at the moment");
        (account.reading, account.charged_then) = (false, 2 * MIB);
        assert_eq!(account.begin_sample(64 * MIB, now), Some(8 * MIB), "charges have grown");
        (account.reading, account.charged_then) = (false, 8 * MIB);
        assert_eq!(account.begin_sample(64 * MIB, now), None);
        assert_eq!(account.begin_sample(64 * MIB, now + SAMPLE_EVERY), Some(8 * MIB));
    }

    #[test]
    fn a_dropped_charge_is_given_back() {
        let memory = Memory::new(1 << 40, Clock::start());
        let mut charge = memory.charge(client(1));
        assert!(charge.resize(MIB) && charge.resize(2 * MIB) && charge.resize(MIB / 2));
        assert_eq!(memory.charged(), MIB / 2);
        drop(charge);
        assert_eq!(memory.charged(), 0);
        assert!(memory.account.lock().holders.is_empty());
    }
}
