//! Explains andante's decision about a request, for people and programs.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use http::Request;

use super::lane_view;
use crate::{
    admin::explanation::{
        DecisionExplanation, Explanation, HttpsExplanation, KeyExplanation, OutcomeExplanation, RuleExplanation,
        TurnExplanation,
    },
    clock::{Clock, Instant},
    config::Config,
    error::Error,
    lane::{
        AdmitRequest, Lanes, Preview, PreviewDecision,
        order::{Claim, FlowId},
    },
    metrics::Metrics,
    policy::{Https, HttpsReason, KeyPart, Unlisted},
    proxy::{self, ExplainContext, Explained, ExplainedRule},
};

/// Explains `request` as if the client at `client` were the first to send one to an andante with this `config`.
pub fn explain_by(config: &Config, request: &Request<()>, client: IpAddr) -> Explanation {
    let clock = Clock::start();
    let lanes = Lanes::new(config.rules.clone(), Metrics::new(), clock);
    let ports: Vec<_> = config.listen.iter().map(std::net::SocketAddr::port).collect();
    let context = ExplainContext {
        lanes: &lanes,
        clock,
        clients: &config.clients,
        identity: config.identity,
        gateways: &config.gateways,
        ports: &ports,
        exposed: config.listen.iter().any(|address| !address.ip().is_loopback()),
    };
    explanation(proxy::explain(&context, request, client), &HashMap::new(), clock.now())
}

/// Describes `explained` at `now`, in words and numbers. `ends` has the rules with temporary limits, and the end of
/// these limits.
pub(super) fn explanation(
    explained: Result<Explained, Error>,
    ends: &HashMap<Arc<str>, Instant>,
    now: Instant,
) -> Explanation {
    let explained = match explained {
        Ok(explained) => explained,
        Err(error) => return Explanation { now: rejected(&error), ..Explanation::default() },
    };
    let Explained { method, target, https, lane, open, ruled, rules, claim, patience, rule_cost, asked, .. } =
        explained;
    let (asked, now_outcome) = match asked {
        Ok((ask, preview)) => {
            let obstacle = match &preview.decision {
                PreviewDecision::Send => None,
                PreviewDecision::Refuse(refusal) => lane.obstacle_of(refusal),
                PreviewDecision::Wait { .. } => lane.obstacle(),
            };
            let (because, hint) = obstacle.map(|obstacle| (obstacle.what, obstacle.hint.map(str::to_owned))).unzip();
            let outcome = OutcomeExplanation { because, hint: hint.flatten(), ..outcome(&preview, now) };
            (Some((ask, preview)), outcome)
        }
        Err(error) => (None, rejected(&error)),
    };
    Explanation {
        seen: format!("{method} {target}"),
        https: https.map(|(https, because)| https_explanation(https, because)),
        lane: Some(lane_view::lane_status(&lane, https.map(|(https, _)| https), ends, now)),
        open,
        ruled,
        rules: rule_explanations(rules, asked.as_ref(), ends, now),
        cost: asked.as_ref().map(|(ask, _)| ask.cost.to_string()).unwrap_or_default(),
        rule_cost: rule_cost.map(|cost| cost.to_string()),
        refused: lane.policy().refused.iter().map(ToString::to_string).collect(),
        turn: turn(&claim),
        max_wait_s: patience.as_secs_f64(),
        now: now_outcome,
    }
}

fn https_explanation(https: Https, because: HttpsReason) -> HttpsExplanation {
    let handling = https.as_str();
    let because = match because {
        HttpsReason::Listed => "the list of intercepted hosts (`intercept`) names it",
        HttpsReason::Rule => "its rule says so (`https`)",
        HttpsReason::Unlisted(Unlisted::Tunnel) if https == Https::Turns => {
            "it has limits, and neither its rule (`https = \"intercept\"`) nor the list of intercepted hosts (`intercept`) \
             names it"
        }
        HttpsReason::Unlisted(Unlisted::Tunnel) => {
            "neither its rule (`https = \"intercept\"`) nor the list of intercepted hosts (`intercept`) names it"
        }
        HttpsReason::Unlisted(Unlisted::InterceptLimited) if https == Https::Intercept => {
            "all hosts that have limits are intercepted"
        }
        HttpsReason::Unlisted(Unlisted::InterceptLimited) => "only hosts that have limits are intercepted",
        HttpsReason::Unlisted(Unlisted::Intercept) => "all hosts are intercepted",
    };
    HttpsExplanation { seen: https == Https::Intercept, handling: handling.into(), because: because.into() }
}

/// The rules. Rules on which the request draws have the budget that it would use.
fn rule_explanations(
    rules: Vec<ExplainedRule>,
    asked: Option<&(AdmitRequest, Preview)>,
    ends: &HashMap<Arc<str>, Instant>,
    now: Instant,
) -> Vec<RuleExplanation> {
    let draws = asked.and_then(|(ask, _)| ask.draws.as_deref()).unwrap_or_default();
    let mut drawn = draws.iter().zip(asked.map_or(&[][..], |(_, preview)| &preview.budgets));
    let explanation = |ExplainedRule { policy, mismatch, key }| {
        let drawn = if mismatch.is_none() { drawn.next() } else { None };
        debug_assert!(drawn.is_none_or(|(draw, _)| Arc::ptr_eq(&draw.rule, &policy)));
        let usage = drawn.map(|(_, usage)| lane_view::added_rule_status(usage, ends, now));
        RuleExplanation {
            rule: policy.name.to_string(),
            is_for: policy.added.as_ref().map(ToString::to_string).unwrap_or_default(),
            mismatch,
            key: key.into_iter().filter(|(part, _)| *part != KeyPart::Host).map(key_explanation).collect(),
            budget: drawn.map(|(draw, _)| hash(draw.budget)),
            waiting: usage.as_ref().map_or(0, |usage| usage.waiting),
            in_flight: usage.as_ref().map_or(0, |usage| usage.in_flight),
            limits: usage.map(|usage| usage.limits).unwrap_or_default(),
        }
    };
    rules.into_iter().map(explanation).collect()
}

fn key_explanation((part, value): (KeyPart, Option<u64>)) -> KeyExplanation {
    KeyExplanation { part: part.to_string(), hash: value.map(hash) }
}

/// Form in which flows are shown.
fn hash(of: u64) -> String {
    format!("{:08x}", of as u32)
}

fn turn(claim: &Claim) -> TurnExplanation {
    TurnExplanation {
        client: claim.client.to_string(),
        client_weight: claim.client_weight.0.get(),
        flow: (claim.flow != FlowId::default()).then(|| hash(claim.flow.0)),
        flow_weight: claim.flow_weight.0.get(),
        urgency: claim.urgency.get(),
    }
}

fn outcome(preview: &Preview, now: Instant) -> OutcomeExplanation {
    match &preview.decision {
        PreviewDecision::Send => OutcomeExplanation { leaves_in_s: Some(0.0), ..OutcomeExplanation::default() },
        PreviewDecision::Wait { expected, ahead } => OutcomeExplanation {
            decision: DecisionExplanation::Waits,
            leaves_in_s: (*expected != Instant::FAR).then(|| expected.since(now).as_secs_f64()),
            ahead: Some(*ahead),
            ..OutcomeExplanation::default()
        },
        PreviewDecision::Refuse(refusal) => OutcomeExplanation {
            decision: DecisionExplanation::Refused,
            status: Some(429),
            detail: Some(refusal.to_string()),
            retry_after_s: Some(refusal.retry_after().as_secs_f64()),
            ..OutcomeExplanation::default()
        },
    }
}

/// An error that andante would answer itself.
fn rejected(error: &Error) -> OutcomeExplanation {
    OutcomeExplanation {
        decision: DecisionExplanation::Rejected,
        status: Some(error.status().as_u16()),
        detail: Some(error.to_string()),
        hint: Some(error.hint().to_owned()),
        ..OutcomeExplanation::default()
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::config::{File, Sources};

    fn config(toml: &str) -> Config {
        let file = File { path: "a.toml".into(), content: Ok(toml.as_bytes().to_vec()) };
        Config::load(&Sources { file: Some(file), ..Sources::default() }).unwrap().0
    }

    fn explained(toml: &str, method: &str, url: &str, fields: &[(&str, &str)]) -> Explanation {
        let request = fields.iter().fold(Request::builder(), |request, (name, value)| request.header(*name, *value));
        let request = request.method(Method::from_bytes(method.as_bytes()).unwrap()).uri(url).body(()).unwrap();
        explain_by(&config(toml), &request, [127, 0, 0, 1].into())
    }

    #[test]
    fn inside_of_a_tunnel_nothing_is_seen() {
        let rules = "[[rule]]\nhost = 'a.test'\nlimits = '1/s'\n\
            [[rule]]\nname = 'search'\nhost = 'a.test'\npath = '/search'\nlimits = '1/min'\n";
        let blind = explained(rules, "GET", "https://a.test/search", &[]);
        assert_eq!(blind.seen, "CONNECT a.test:443");
        let https = blind.https.unwrap();
        assert_eq!((https.seen, https.handling.as_str()), (false, "turns"));
        let unseen = "paths, methods and fields are not seen inside the tunnel";
        assert_eq!((blind.rules[0].mismatch.as_deref(), &blind.rules[0].budget), (Some(unseen), &None));
        let seen = explained(&format!("intercept = 'a.test'\n{rules}"), "GET", "https://a.test/search", &[]);
        assert_eq!((seen.seen.as_str(), seen.https.unwrap().seen), ("GET https://a.test/search", true));
        assert_eq!(seen.rules[0].mismatch, None);
        assert_eq!(seen.rules[0].limits[0].limit, "1/min");
        assert_eq!(seen.now.leaves_in_s, Some(0.0));
    }

    #[test]
    fn a_gateway_is_no_tunnel() {
        let toml = "[[gateway]]\npath = '/o'\nto = 'https://a.test/v1'\n[[rule]]\nhost = 'a.test'\nlimits = '1/s'";
        for url in ["/o/x", "http://127.0.0.1:3128/o/x", "http://localhost:3128/https://a.test/v1/x"] {
            let explained = explained(toml, "GET", url, &[]);
            assert_eq!((explained.seen.as_str(), explained.https), ("GET https://a.test/v1/x", None), "{url}");
            assert_eq!(explained.lane.unwrap().limits[0].limit, "1/s", "{url}");
        }
    }

    #[test]
    fn no_credential_is_said() {
        let toml = "[[rule]]\nname = 'key'\nhost = 'a.test'\nkey = 'header:authorization'\nlimits = '1/s'";
        let of = |said: &str| {
            let fields = [("authorization", said), ("andante-flow", "hunter3")];
            explained(toml, "GET", "http://a.test/?token=hunter4", &fields)
        };
        let (one, other) = (of("Bearer hunter2"), of("Bearer hunter5"));
        let text = serde_json::to_string(&one).unwrap();
        assert!(!text.contains("hunter2") && !text.contains("hunter3"), "{text}");
        assert_ne!(one.rules[0].key, other.rules[0].key);
        assert_eq!(one.rules[0].key, of("Bearer hunter2").rules[0].key);
        assert_eq!(one.turn.urgency, 3);
    }

    #[test]
    fn what_is_refused_says_why() {
        let toml = "[[rule]]\nhost = 'a.test'\nhttps = 'refuse'\nlimits = '2/s'";
        let refused = explained(toml, "GET", "https://a.test/", &[]).now;
        assert_eq!((refused.decision, refused.status), (DecisionExplanation::Rejected, Some(403)));
        let costly = explained(toml, "GET", "http://a.test/", &[("andante-cost", "3")]).now;
        assert_eq!((costly.decision, costly.status), (DecisionExplanation::Rejected, Some(400)));
        assert!(costly.detail.unwrap().contains("2/s"));
    }

    #[test]
    fn what_is_wrong_with_the_cost_is_not_wrong_with_the_rest() {
        let toml = "[[rule]]\nhost = 'a.test'\nlimits = ['2/s', '9 explained-tokens/s']";
        for (cost, says) in [("3", "2/s"), ("points=1", "explained-tokens")] {
            let fields = [("andante-cost", cost), ("priority", "u=5"), ("prefer", "wait=7")];
            let costly = explained(toml, "GET", "http://a.test/", &fields);
            assert_eq!((costly.turn.urgency, costly.max_wait_s), (5, 7.0), "{cost}");
            let now = costly.now;
            assert_eq!((now.decision, now.status), (DecisionExplanation::Rejected, Some(400)));
            assert!(now.detail.unwrap().contains(says), "{cost}");
        }
    }
}
