//! Grammars for the order of waiting requests.

use super::grammar::{Grammar, ParseHint};
use crate::policy::{FlowOrder, ShareLevel};

/// Urgency of requests that state none.
pub(in crate::config) const URGENCY: Grammar<u8> = Grammar {
    expected: "an urgency from 0 to 7",
    example: "1",
    read: |text| {
        let urgency = text.parse().map_err(|_| ParseHint::default())?;
        (0..=7).contains(&urgency).then_some(urgency).ok_or_else(ParseHint::default)
    },
};
/// Order of flows at their level.
pub(in crate::config) const FLOW_ORDER: Grammar<FlowOrder> = Grammar {
    expected: "an order of flows",
    example: "\"fair\", \"first-come\" or \"rank\"",
    read: |text| FlowOrder::ALL.into_iter().find(|order| order.as_str() == text).ok_or_else(ParseHint::default),
};
/// Level at which requests share the slots.
pub(in crate::config) const SHARE_LEVEL: Grammar<ShareLevel> = Grammar {
    expected: "a level of sharing",
    example: "\"client\" or \"flow\"",
    read: |text| match text {
        "client" => Ok(ShareLevel::Client),
        "flow" => Ok(ShareLevel::Flow),
        _ => Err(ParseHint::default()),
    },
};
