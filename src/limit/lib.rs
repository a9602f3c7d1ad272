//! Limits of an API, and when the next request fits into them. Pure: the caller passes the time in.

mod ahead;
mod amount;
mod book;
mod budget;
mod calendar;
mod charge;
mod cost;
mod gcra;
mod history;
mod in_flight;
mod limits;
mod margin;
mod pending_usage;
mod ready;
mod spec;
mod unit;
mod usual;
mod window;

pub use amount::{Amount, lesser};
pub use budget::{Budget, BudgetRecord, Gap, LimitUsage, Part, Rates, ShareReport, ShareUsage};
pub use calendar::{CalendarCount, CalendarLimit, CalendarUsage};
pub use charge::{Charge, Scope, Seq, Source};
pub use cost::{Cost, Sum};
pub use gcra::Gcra;
pub use in_flight::InFlightLimit;
pub use limits::Limits;
pub use margin::{Margin, MarginSpec};
pub use pending_usage::PendingUsage;
pub use ready::Ready;
pub use spec::{LONGEST_PACE, LimitSpec, Rate, SpecError, settle};
pub use unit::Unit;
pub use usual::{EstimatedAmount, enough_for_most, put};
pub use window::Window;
