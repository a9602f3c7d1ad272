//! Tests that the steps process the largest heads in time linear in their size.
//!
//! The bound is ten times the time of the test profile on a slow machine. A pass over all pairs of members would take
//! ten times the bound.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Request, Version, header::HOST};

use super::{claim, credential, draws, same_request};
use crate::{
    clock::{assert_linear, cpu_time_of},
    lane::{
        AddedRule,
        order::{Claim, ClientId},
    },
    limit::Cost,
    policy::{self, Added, Names, Policy},
    proxy::{
        message::{
            cache_control::{AnswerDirectives, RequestDirectives},
            connection_auth,
            fields::{self, FoundFields},
            keep_alive::KeepAlive,
            kept_head, priority, server_timing,
        },
        session::Requester,
    },
};

/// Bytes of an answer's head: the maximum of a connection to an upstream.
const ANSWER_BYTES: usize = 512 * 1024;
/// Bytes of a request's head.
const REQUEST_BYTES: usize = 64 * 1024;
/// Fields of a head: `HeaderMap` holds no more than 24 Ki.
const MAX_LINES: usize = 16 * 1024;
/// A pass over all pairs of 128 Ki members takes minutes.
const ANSWER_BOUND: Duration = Duration::from_secs(5);

/// Fields that a peer may fill with a list, and that andante reads.
const LISTS: [&str; 21] = [
    "accept",
    "andante-cost",
    "andante-flow",
    "authorization",
    "cache-control",
    "cache-status",
    "connection",
    "cookie",
    "forwarded",
    "link",
    "pragma",
    "prefer",
    "priority",
    "proxy-status",
    "ratelimit-policy",
    "server-timing",
    "te",
    "trailer",
    "upgrade",
    "vary",
    "via",
];

/// `members` joined until they have `bytes`, in one line.
fn filled(member: impl Fn(usize) -> String, bytes: usize) -> HeaderValue {
    let mut line = String::new();
    for number in 0.. {
        line += &member(number);
        if line.len() >= bytes {
            break;
        }
        line.push(',');
    }
    HeaderValue::try_from(line).unwrap()
}

/// Heads with the same list in two fields, for all pairs of fields that are compared with each other or might be.
fn heads(bytes: usize) -> Vec<HeaderMap> {
    let members: [fn(usize) -> String; 6] = [
        |number| format!("a{number}"),
        |_| "a".to_owned(),
        |_| "\"a".to_owned(),
        |number| format!("u{number}={number};w=1"),
        |_| "a b".to_owned(),
        |_| ";=".to_owned(),
    ];
    let mut heads = Vec::new();
    // The longest heads take long in the test profile: two lists show as much as all.
    let count = if bytes > REQUEST_BYTES { 2 } else { members.len() };
    for member in members.into_iter().take(count) {
        let line = filled(member, bytes / LISTS.len());
        heads.push(LISTS.iter().map(|name| (name.parse().unwrap(), line.clone())).collect());
        let line = filled(member, bytes / 2);
        for other in ["trailer", "te", "via", "vary"] {
            let lines = ["connection", other].map(|name| (name.parse::<HeaderName>().unwrap(), line.clone()));
            heads.push(HeaderMap::from_iter(lines));
        }
    }
    // Many fields, each of which `Connection` names; and the same number of lines of one field.
    let count = (bytes / 16).min(MAX_LINES);
    let named = (0..count).map(|number| format!("x-{number}")).collect::<Vec<_>>();
    let mut many: HeaderMap = named.iter().map(|name| (name.parse().unwrap(), HeaderValue::from_static("1"))).collect();
    many.insert("connection", named.join(",").parse().unwrap());
    heads.push(many);
    for name in LISTS.iter().filter(|_| bytes == REQUEST_BYTES) {
        let name: HeaderName = name.parse().unwrap();
        let mut lines = HeaderMap::new();
        (0..count).for_each(|number| _ = lines.append(&name, HeaderValue::from(number)));
        heads.push(lines);
    }
    heads
}

fn read_all(head: &HeaderMap, policy: &Policy) {
    let via = ["1.1 a", "1.0 a", "2 a"].map(HeaderValue::from_static);
    let address = [10, 1, 2, 3].into();
    let _ = claim::read(head, Requester { address, client: ClientId::of(address) }, policy);
    let _ = claim::cost(head, policy, &[]);
    let _ = (credential::hash(head), same_request::fields_hash(head, 0), same_request::varies(head));
    let _ = (RequestDirectives::of(head), AnswerDirectives::of(head), priority::urgency(head));
    let _ = (fields::is_loop(head, &via), fields::malformed(head), kept_head::cost(head));
    let _ = policy::is_page_of_others(head, None, Names::Any);
    let mut passed = head.clone();
    fields::trim(&mut passed);
    server_timing::remove(&mut passed);
    let found = FoundFields::of(&passed);
    let _ = fields::told_length(&passed, found, Version::HTTP_11);
    found.remove_hop_by_hop(&mut passed);
    kept_head::settle(&mut passed);
    let mut frame = http_body::Frame::trailers(head.clone());
    fields::clean_trailers(&mut frame);
}

#[test]
fn largest_head_is_read_in_linear_time() {
    let policy = Policy::new("api", Vec::new());
    for (bytes, bound) in [(REQUEST_BYTES, ANSWER_BOUND / 5), (ANSWER_BYTES, ANSWER_BOUND)] {
        for head in heads(bytes) {
            let took = cpu_time_of(|| read_all(&head, &policy));
            let names: Vec<_> = head.keys().take(3).collect();
            assert!(took < bound, "{bytes} bytes, {names:?}: {took:?}");
        }
    }
}

/// Both fields of an answer have half of its head.
#[test]
fn connection_field_takes_time_linear_in_its_length() {
    let names = |number: usize| format!("a{number}");
    for other in ["trailer", "te", "keep-alive", "www-authenticate", "x-other"] {
        let head = |bytes: usize| {
            let line = filled(names, bytes / 2);
            HeaderMap::from_iter(["connection", other].map(|name| (name.parse::<HeaderName>().unwrap(), line.clone())))
        };
        assert_linear(other, ANSWER_BYTES, head, |head| {
            let mut passed = head.clone();
            let _ = (KeepAlive::read(head), connection_auth::has_challenge(head));
            FoundFields::of(&passed).remove_hop_by_hop(&mut passed);
            assert!(!passed.contains_key("connection"));
        });
    }
}

#[test]
fn largest_target_is_compared_with_rules_in_linear_time() {
    let key = ["path:tenant", "query:tenant", "header:authorization"].map(|part| part.parse().unwrap()).to_vec();
    let mut policy = Policy::new("api", Vec::new());
    policy.added = Some(Added { path: Some("/v1/{tenant}/*".parse().unwrap()), key, ..Added::default() });
    let rules = [AddedRule::uncounted(policy.into())];
    for piece in ["/a", "/../", "/%2e%2e", "/..;", "//", "%25", "%", ";a=1", "?&", "&=", "?tenant=%61&", "/%61"] {
        let target = format!("/v1/x{}", piece.repeat(60_000 / piece.len()));
        let request =
            Request::builder().uri(target).header(HOST, "api.test").header("authorization", " ".repeat(60_000));
        let request = request.body(()).unwrap();
        let took = cpu_time_of(|| drop(draws::of(&rules, &request, &Claim::USUAL, Cost::MIN)));
        assert!(took < ANSWER_BOUND / 5, "{piece}: {took:?}");
    }
}
