//! The rule for each request. Pure: canonical hosts in, a policy out.

mod added;
mod answers;
mod client_identity;
mod cost;
mod cross_site;
mod egress;
mod gateway;
mod host_pattern;
mod named;
mod network;
pub mod normal_form;
mod origin;
mod refused;
mod renamed;
mod reserve;
mod rule;
mod rules;
mod turns;
mod usage;

pub use self::{
    added::{Added, BadPart, KeyPart, Mismatch, PathPattern},
    answers::{CachePolicy, RetryPolicy, Spend, Trust},
    client_identity::ClientIdentity,
    cost::{CostSource, MaxCost, MemberPath, PerByte, RuleCost},
    cross_site::{Names, is_page_of_others},
    egress::{Egress, Identity, Parent, ParentProtocol, RuleTimeouts},
    gateway::Gateway,
    host_pattern::HostPattern,
    named::{NamedTunnel, address},
    network::{BadNetwork, network},
    origin::{HostError, Origin, Scheme},
    refused::RefusedAnswer,
    renamed::{RenamedRules, renamed_since},
    reserve::Reserve,
    rule::{Https, Policy, TooSmall},
    rules::{HttpsReason, Interception, Rules, Unlisted},
    turns::{AssignedWeight, BadShare, FlowOrder, ShareBy, ShareLevel, ShareOf, Turns},
    usage::{UsagePlace, UsageSource},
};
