//! Which rule a request falls under. Pure: canonical hosts in, a policy out.

mod answers;
mod egress;
mod gateway;
mod host_pattern;
mod origin;
mod page;
mod rule;
mod rules;

pub use self::{
    answers::{Retry, Spend, Trust},
    egress::{Egress, Identity, Parent, ParentProtocol},
    gateway::Gateway,
    host_pattern::HostPattern,
    origin::{HostError, Origin, Scheme},
    page::{Names, is_page_of_others},
    rule::{Https, Policy},
    rules::{Interception, Rules, Unlisted},
};
