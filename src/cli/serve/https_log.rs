//! The start-up log's lines about HTTPS to hosts with limits.

use tracing::{info, warn};

use crate::{config::Config, policy::Https};

/// Most rules whose HTTPS handling is logged at the start: thousands of lines would flood the log.
const MAX_RULES_LOGGED: usize = 20;

/// Logs the handling of HTTPS to each limited host, for the first rules.
pub(super) fn log(config: &Config) {
    let rules = &config.rules;
    for rule in rules.iter().take(MAX_RULES_LOGGED) {
        let name = &*rule.name;
        let mut unseen = false;
        for (host, way) in rules.https_of(rule) {
            unseen |= matches!(way, Https::Tunnel | Https::Turns);
            match way {
                Https::Turns if rule.is_limited() && rule.added.is_none() => info!(
                    rule = name, %host,
                    "HTTPS is paced by turns (refusals, paths, costs are not seen); to see them, start with --intercept HOST, or use `andante run`"
                ),
                Https::Tunnel if rule.is_limited() && rule.added.is_none() => {
                    warn!(rule = name, %host, "HTTPS is tunnelled: each tunnel takes one slot, and the limit does not hold for requests inside");
                }
                Https::Intercept | Https::Refuse | Https::Turns | Https::Tunnel => {}
            }
        }
        let keys = rule.keys_unseen();
        if unseen && !keys.is_empty() {
            let keys = keys.join(", ");
            warn!(
                rule = name,
                keys, "these keys do not apply inside HTTPS tunnels; to apply them, start with --intercept HOST"
            );
        }
    }
}
