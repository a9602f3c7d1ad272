//! Answer of `andante explain` and `/api/v1/explain` about a request, which is a contract. Times are in seconds.

use std::{net::IpAddr, str::FromStr as _};

use http::{HeaderName, HeaderValue, Method, Request, Uri};
use serde::{Deserialize, Serialize};

use super::status::{LaneStatus, LimitStatus};
use crate::policy::HostPattern;

/// A request to explain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// URL of the request, or a path of a gateway.
    pub url: String,
    /// Method of the request; GET by default.
    #[serde(default = "get")]
    pub method: String,
    /// Header fields, in the form `Name: value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// Client that sends the request; by default a client on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<IpAddr>,
}

/// Reason why a question is invalid, with advice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {instead}")]
pub struct BadQuestion {
    what: String,
    instead: String,
}

/// Explanation of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// View of andante: a method and a URL, or `CONNECT` and the host of a tunnel.
    pub seen: String,
    /// Handling of the client's tunnel; `null` if the request needs no tunnel.
    pub https: Option<HttpsExplanation>,
    /// Lane of the request; `null` if it reaches none.
    pub lane: Option<LaneStatus>,
    /// Earlier requests have opened the lane.
    pub open: bool,
    /// A rule matches the host; otherwise the defaults hold.
    pub ruled: bool,
    /// Added rules for the host in their order, whether they match this request or not.
    pub rules: Vec<RuleExplanation>,
    /// Cost of the request; empty if it reaches no lane.
    pub cost: String,
    /// Cost as its rule states it, if it depends on the request's content; else `null`.
    pub rule_cost: Option<String>,
    /// Declarations of its rule that make answers refusals, as they are written.
    #[serde(default)]
    pub refused: Vec<String>,
    /// Inputs that decide the request's turn.
    pub turn: TurnExplanation,
    /// Longest wait of the request.
    pub max_wait_s: f64,
    /// Outcome if the request were sent now.
    pub now: OutcomeExplanation,
}

/// Handling of a tunnel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpsExplanation {
    /// andante sees the requests inside.
    pub seen: bool,
    /// `tunnel`, `intercept` or `refuse`.
    pub handling: String,
    /// The setting that decides the handling.
    pub because: String,
}

/// A rule for some of the requests to a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RuleExplanation {
    /// The rule's name.
    pub rule: String,
    /// Requests that the rule matches.
    pub is_for: String,
    /// Reason why the rule does not match this request; `null` if it matches.
    pub mismatch: Option<String>,
    /// Parts of the rule's key for the request.
    pub key: Vec<KeyExplanation>,
    /// Id of the budget on which the request draws, as a hash that means nothing elsewhere.
    pub budget: Option<String>,
    /// The limits of this budget.
    pub limits: Vec<LimitStatus>,
    /// Requests that wait for this budget.
    pub waiting: u64,
    /// Requests of this budget that are in flight.
    pub in_flight: u64,
}

/// A part of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyExplanation {
    /// The part in the rule's notation.
    pub part: String,
    /// A hash of the value, which means nothing elsewhere; `null` if the request has no such value.
    pub hash: Option<String>,
}

/// Inputs that decide the turn of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnExplanation {
    /// Owner: an address, or an IPv6 /64.
    pub client: String,
    /// Weight among the clients.
    pub client_weight: u16,
    /// A hash of the flow's name, which means nothing elsewhere; `null` if the request names none.
    pub flow: Option<String>,
    /// Weight among the client's flows.
    pub flow_weight: u16,
    /// Urgency, from 0 to 7.
    pub urgency: u8,
}

/// Outcome of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutcomeExplanation {
    /// The decision.
    pub decision: DecisionExplanation,
    /// Time until the request leaves, if it leaves and the time is known.
    pub leaves_in_s: Option<f64>,
    /// Waiting requests that leave before it.
    pub ahead: Option<u32>,
    /// Status of andante's own answer.
    pub status: Option<u16>,
    /// Reason why no request leaves at the moment, other than limits that are used up.
    #[serde(default)]
    pub because: Option<String>,
    /// Reason for a refusal.
    pub detail: Option<String>,
    /// Advice about the refusal.
    pub hint: Option<String>,
    /// Time until a retry is worthwhile.
    pub retry_after_s: Option<f64>,
}

/// Decision about a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DecisionExplanation {
    /// The request would leave at once.
    #[default]
    Sent,
    /// The request would wait.
    Waits,
    /// andante would refuse the request for lack of slots.
    Refused,
    /// andante would answer the request itself for another reason.
    Rejected,
}

fn get() -> String {
    "GET".into()
}

// === impl BadQuestion ===

impl BadQuestion {
    /// The problem, and the advice.
    pub fn into_parts(self) -> (String, String) {
        (self.what, self.instead)
    }
}

// === impl Question ===

impl Question {
    /// The request.
    ///
    /// # Errors
    /// The part that is invalid.
    pub fn request(&self) -> Result<Request<()>, BadQuestion> {
        let bad = |what: String, instead: &str| BadQuestion { what, instead: instead.to_owned() };
        // Clients never send a fragment.
        let url = self.url.split('#').next().unwrap_or_default();
        let whole = "write https://HOST/PATH, http://HOST/PATH, or the path of a gateway";
        // `api.example.com/v1`, which people copy without a scheme.
        let host = url.split('/').next().unwrap_or_default();
        if !url.contains("://") && host.contains('.') && host.parse::<HostPattern>().is_ok() {
            return Err(bad(format!("{url:?} is no URL: it has no scheme"), &format!("write https://{url}")));
        }
        let uri: Uri = url.parse().map_err(|error| bad(format!("{url:?} is no URL ({error})"), whole))?;
        if uri.path_and_query().is_none() || uri.authority().is_some() != uri.scheme().is_some() {
            return Err(bad(format!("{url:?} is no URL"), whole));
        }
        let method = Method::from_str(&self.method);
        let method =
            method.map_err(|_| bad(format!("{:?} is no method", self.method), "write GET, POST or the like"))?;
        if method == Method::CONNECT {
            let instead = "ask for what is to go through the tunnel, as in https://HOST/";
            return Err(bad("CONNECT opens a tunnel".into(), instead));
        }
        let mut request = Request::new(());
        (*request.method_mut(), *request.uri_mut()) = (method, uri);
        for field in &self.headers {
            // The value may be a secret.
            let wrong = |name: &str| bad(format!("the field {name:?} is none"), "write 'Name: value'");
            let (name, value) =
                field.split_once(':').ok_or_else(|| wrong(field.split(' ').next().unwrap_or_default()))?;
            let parsed = HeaderName::from_str(name.trim()).ok().zip(HeaderValue::from_str(value.trim()).ok());
            let (name, value) = parsed.ok_or_else(|| wrong(name))?;
            request.headers_mut().append(name, value);
        }
        Ok(request)
    }

    /// The client that sends the request.
    pub fn client(&self) -> IpAddr {
        self.client.unwrap_or(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(url: &str, method: &str, headers: &[&str]) -> Result<Request<()>, BadQuestion> {
        let headers = headers.iter().map(ToString::to_string).collect();
        Question { url: url.into(), method: method.into(), headers, client: None }.request()
    }

    #[test]
    fn a_question_is_a_request() {
        let request = question("https://a.test/x?y#z", "POST", &["X-A: 1", "x-a:2"]).unwrap();
        assert_eq!((request.uri().to_string().as_str(), request.method().as_str()), ("https://a.test/x?y", "POST"));
        assert_eq!(request.headers().get_all("x-a").iter().collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(question("/openai/v1", "GET", &[]).unwrap().uri().path(), "/openai/v1");
    }

    #[test]
    fn what_is_no_request_is_refused_without_its_secrets() {
        for url in ["", "a.test", "a.test:443", "a.test/x", "http:///x", "https://a b/"] {
            assert!(question(url, "GET", &[]).is_err(), "{url}");
        }
        assert!(question("http://a/", "G T", &[]).is_err() && question("http://a/", "CONNECT", &[]).is_err());
        for header in ["Authorization Bearer hunter2", "Authori zation: hunter2", "authorization: hunter2\n"] {
            let error = question("http://a/", "GET", &[header]);
            assert!(error.as_ref().map_or_else(|error| !error.to_string().contains("hunter2"), |_| true), "{error:?}");
        }
    }
}
