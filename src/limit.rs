//! What an API allows, and when the next request fits into it. Pure: told the time, never reads it.

mod budget;
mod calendar;
mod charge;
mod gcra;
mod history;
mod limits;
mod margin;
mod spec;
mod window;

pub use budget::{Budget, Usage};
pub use calendar::{CalendarCount, CalendarLimit, CalendarUsage};
pub use charge::{Charge, Cost, Scope, Seq, Source};
pub use gcra::Gcra;
pub use limits::Limits;
pub use margin::{Margin, MarginSpec};
pub use spec::{LONGEST_PACE, LimitSpec, Rate, SpecError, settle};
pub use window::Window;
