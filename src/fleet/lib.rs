//! The token ledger: several andantes share one budget. A limit of N per window is N tokens. Each token is in one
//! place: in the store's pool, free at a member, spent at a member, or withheld. Pure: calls go in with their time,
//! replies come out.

mod lease;
mod member;
mod pauses;
mod peak;
mod portion;
mod refresh;
mod share;
mod stock;
mod strain;
mod words;

pub use self::{
    lease::{Floor, Lease, StoreDown},
    member::{Member, Mode, ReplyOutcome},
    pauses::{AskedPause, FORGOTTEN, RunningPauses, SharedPauses},
    peak::Peak,
    portion::{Portion, ReportedLimits},
    share::Share,
    stock::{ShareNeed, Stock},
    words::{
        CallAge, Division, Entry, Epoch, Extent, LONGEST_PAUSE, LONGEST_WORD, MemberId, Micros, Pause, PauseCause,
        PoolGrant, RESPONSE_LATENESS, Reply, Sync, Terms, WakeUp, micros, stretched,
    },
};
