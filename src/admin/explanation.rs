//! What `andante explain` and `/api/v1/explain` say of a request, which is a contract. Times are in seconds.

use std::{net::IpAddr, str::FromStr as _};

use http::{HeaderName, HeaderValue, Method, Request, Uri};
use serde::{Deserialize, Serialize};

use super::status::{LaneStatus, LimitStatus};
use crate::policy::HostPattern;

/// A request that is asked about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// Its URL, or a path of a gateway.
    pub url: String,
    /// Its method; GET unless said otherwise.
    #[serde(default = "get")]
    pub method: String,
    /// Its header fields, as in `Name: value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// Who sends it; a client on this machine unless said otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<IpAddr>,
}

/// What a question is not, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {instead}")]
pub struct BadQuestion {
    what: String,
    instead: String,
}

/// What would become of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// What andante sees: a method and a URL, or `CONNECT` and the host of a tunnel.
    pub seen: String,
    /// What becomes of the tunnel in which a client sends it; `null` if it sends it in none.
    pub https: Option<HttpsExplanation>,
    /// The lane; `null` if it gets to none.
    pub lane: Option<LaneStatus>,
    /// Whether requests have come to the lane before.
    pub open: bool,
    /// Whether a rule is for the host; otherwise the defaults hold.
    pub ruled: bool,
    /// The rules for some of the requests to the host, in their order, whether they are for this one or not.
    pub rules: Vec<RuleExplanation>,
    /// What it costs; empty if it gets to no lane.
    pub cost: String,
    /// What its rule says that it costs, as it is written, if that depends on what a request shows; `null` if not.
    pub rule_cost: Option<String>,
    /// Answers that its rule declares to be refusals, as it is written.
    #[serde(default)]
    pub refused: Vec<String>,
    /// By what it claims its turn.
    pub turn: TurnExplanation,
    /// For how long it may wait.
    pub max_wait_s: f64,
    /// What would happen to it now.
    pub now: OutcomeExplanation,
}

/// What becomes of a tunnel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpsExplanation {
    /// Whether andante sees the requests inside.
    pub seen: bool,
    /// `tunnel`, `intercept` or `refuse`.
    pub handling: String,
    /// What says so.
    pub because: String,
}

/// A rule for some of the requests to a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RuleExplanation {
    /// Its name.
    pub rule: String,
    /// Which requests it is for.
    pub is_for: String,
    /// Why it is not for this one; `null` if it is.
    pub mismatch: Option<String>,
    /// What its key says of the request.
    pub key: Vec<KeyExplanation>,
    /// What tells the budget that the request draws on from all others, as a hash that means nothing elsewhere.
    pub budget: Option<String>,
    /// The limits of this budget.
    pub limits: Vec<LimitStatus>,
    /// How many requests wait for this budget.
    pub waiting: u64,
    /// How many of them are on their way.
    pub in_flight: u64,
}

/// A part of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyExplanation {
    /// As the rule has it.
    pub part: String,
    /// A hash of its value, which means nothing elsewhere; `null` if the request says nothing of it.
    pub hash: Option<String>,
}

/// By what a request claims its turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnExplanation {
    /// Whose it is: an address, or an IPv6 /64.
    pub client: String,
    /// Its weight among the clients.
    pub client_weight: u16,
    /// A hash of the flow's name, which means nothing elsewhere; `null` if the request names none.
    pub flow: Option<String>,
    /// Its weight among the client's flows.
    pub flow_weight: u16,
    /// How urgent it is, from 0 to 7.
    pub urgency: u8,
}

/// What would happen to a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutcomeExplanation {
    /// What.
    pub decision: DecisionExplanation,
    /// Time until it leaves, if it does and that is known.
    pub leaves_in_s: Option<f64>,
    /// How many leave before it, of those that wait.
    pub ahead: Option<u32>,
    /// The status that andante would answer itself.
    pub status: Option<u16>,
    /// What lets nothing leave at the moment, beside limits that are used up.
    #[serde(default)]
    pub because: Option<String>,
    /// Why it is refused.
    pub detail: Option<String>,
    /// What to do about that.
    pub hint: Option<String>,
    /// When to try again.
    pub retry_after_s: Option<f64>,
}

/// What would happen to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DecisionExplanation {
    /// It would leave at once.
    #[default]
    Sent,
    /// It would wait.
    Waits,
    /// andante would refuse it for lack of slots.
    Refused,
    /// andante would answer it itself for another reason.
    Rejected,
}

fn get() -> String {
    "GET".into()
}

// === impl BadQuestion ===

impl BadQuestion {
    /// What is wrong, and what to write instead.
    pub fn into_parts(self) -> (String, String) {
        (self.what, self.instead)
    }
}

// === impl Question ===

impl Question {
    /// The request.
    ///
    /// # Errors
    /// What of it is none.
    pub fn request(&self) -> Result<Request<()>, BadQuestion> {
        let bad = |what: String, instead: &str| BadQuestion { what, instead: instead.to_owned() };
        // Clients keep a fragment to themselves.
        let url = self.url.split('#').next().unwrap_or_default();
        let whole = "write https://HOST/PATH, http://HOST/PATH, or the path of a gateway";
        // `api.example.com/v1`, as people copy it.
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
            // Its value may be a secret.
            let wrong = |name: &str| bad(format!("the field {name:?} is none"), "write 'Name: value'");
            let (name, value) =
                field.split_once(':').ok_or_else(|| wrong(field.split(' ').next().unwrap_or_default()))?;
            let parsed = HeaderName::from_str(name.trim()).ok().zip(HeaderValue::from_str(value.trim()).ok());
            let (name, value) = parsed.ok_or_else(|| wrong(name))?;
            request.headers_mut().append(name, value);
        }
        Ok(request)
    }

    /// Who sends it.
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
