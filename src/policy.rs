//! Which rule a request falls under. Pure: canonical hosts in, a policy out.

mod answers;
mod cross_site;
mod egress;
mod gateway;
mod host_pattern;
mod origin;
mod rule;
mod rules;
mod turns;

pub use self::{
    answers::{Retry, Spend, Trust},
    cross_site::{Names, is_page_of_others},
    egress::{Egress, Identity, Parent, ParentProtocol},
    gateway::Gateway,
    host_pattern::HostPattern,
    origin::{HostError, Origin, Scheme},
    rule::{Https, Policy},
    rules::{Interception, Rules, Unlisted},
    turns::{BadShare, Share, ShareOf, Turns},
};
