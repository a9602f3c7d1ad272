//! Cache keys: the parts of a request that distinguish stored answers, and the requests that may get one.

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Uri,
    header::{
        CONTENT_LOCATION, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LOCATION, RANGE,
        UPGRADE,
    },
};
use http_body::Body as _;
use url::Url;

use crate::{
    policy::Origin,
    proxy::{
        cache::Resource,
        call::Call,
        sharing::Key,
        steps::{
            keyed_hash,
            same_request::{fields_hash_without, varies_without},
        },
    },
};

/// Fields that say how a stored answer may be used. Such fields select no answer and name no owner.
const OF_USE: [&str; 4] = ["cache-control", "pragma", "if-none-match", "if-modified-since"];

/// Returns whether the answer to `call` may be a stored one: a GET or HEAD for a whole resource, or a QUERY whose body
/// was read. The connection must have no login.
pub(super) fn is_plain(call: &Call) -> bool {
    const OTHER: [HeaderName; 5] = [RANGE, IF_RANGE, IF_MATCH, IF_UNMODIFIED_SINCE, UPGRADE];
    let (request, fields) = (&call.request, call.request.headers());
    let read = match *request.method() {
        Method::GET | Method::HEAD => request.body().is_end_stream(),
        Method::QUERY => request.body().fingerprint().is_some(),
        _ => false,
    };
    read && !call.bound && !OTHER.iter().any(|name| fields.contains_key(name))
}

/// Returns whether the worker has an answer already.
pub(super) fn is_conditional(fields: &HeaderMap) -> bool {
    fields.contains_key(IF_NONE_MATCH) || fields.contains_key(IF_MODIFIED_SINCE)
}

/// Key of the answers that `call` may get: the URL, the credentials, and all other fields that may name an owner or
/// select an answer. So the key has every field by which an answer varies, except for those that [`is_stored`] checks.
pub(super) fn of(call: &Call) -> Key {
    // A gateway's answers contain the address by which their worker came in.
    let location = call.location.as_ref().map(|location| format!("{location:?}"));
    let (origin, fields) = (keyed_hash::of(&call.route.origin), call.request.headers());
    let target = call.request.uri().path_and_query();
    // RFC 10008 §2.7: the key of a QUERY includes its body. The fields that describe the body are included below.
    let query = if *call.request.method() == Method::QUERY { call.request.body().fingerprint() } else { None };
    Key::new(origin, |half| {
        keyed_hash::of((half, "cache", origin, target, query, fields_hash_without(fields, &OF_USE, half), &location))
    })
}

/// Returns whether an answer with these fields is for all requests with the same key.
pub(super) fn is_stored(answer: &HeaderMap) -> bool {
    !varies_without(answer, &OF_USE)
}

/// The resource that `call` requests.
pub(super) fn resource(call: &Call) -> Resource {
    named(&call.route.origin, call.request.uri().path_and_query().map_or("/", |path| path.as_str()))
}

/// Other resources that the request for `uri` has changed, according to an answer from `origin` (RFC 9111 §4.4); never
/// of another origin.
pub(super) fn also_changed(origin: &Origin, uri: &Uri, answer: &HeaderMap) -> Vec<Resource> {
    let base = Url::parse(&format!("{}://{origin}{uri}", origin.scheme.as_str())).ok();
    let named = |base: &Url, field: &HeaderValue| {
        let url = base.join(field.to_str().ok()?).ok().filter(|url| url.origin() == base.origin())?;
        Some(named(origin, &url[url::Position::BeforePath..url::Position::AfterQuery]))
    };
    let fields = [LOCATION, CONTENT_LOCATION];
    let fields = fields.iter().filter_map(|name| answer.get(name));
    base.into_iter().flat_map(|base| fields.clone().filter_map(move |field| named(&base, field))).collect()
}

fn named(origin: &Origin, path_and_query: &str) -> Resource {
    Resource(keyed_hash::of((origin, path_and_query)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Scheme;

    /// RFC 9111 §4.4: the target URI's origin must be the same.
    #[test]
    fn locations_of_the_same_origin_have_changed() {
        let origin = Origin::parse(Scheme::Http, "api.test:8080", None).unwrap();
        let changed = |location: &'static str| {
            let answer = HeaderMap::from_iter([(LOCATION, HeaderValue::from_static(location))]);
            also_changed(&origin, &Uri::from_static("/a/b?c"), &answer)
        };
        for location in ["/a/d?e", "d?e", "http://api.test:8080/a/d?e", "//API.test:8080/a/d?e#f"] {
            assert_eq!(changed(location), [named(&origin, "/a/d?e")], "{location}");
        }
        for location in
            ["http://other.test:8080/a/d?e", "https://api.test:8080/a/d?e", "http://api.test/a/d?e", "http://["]
        {
            assert_eq!(changed(location), [], "{location}");
        }
        let answer = HeaderMap::from_iter([(CONTENT_LOCATION, HeaderValue::from_static("/x"))]);
        assert_eq!(also_changed(&origin, &Uri::from_static("/a"), &answer), [named(&origin, "/x")]);
    }

    #[test]
    fn an_answer_is_not_stored_that_varies_by_what_the_key_leaves_out() {
        let is_stored = |vary: &'static str| {
            is_stored(&HeaderMap::from_iter([(http::header::VARY, HeaderValue::from_static(vary))]))
        };
        assert!(is_stored("Accept, Authorization, X-Tenant"));
        for vary in ["*", ", *", "Foo, *", "Cache-Control", "X-Request-Id", "Prefer"] {
            assert!(!is_stored(vary), "{vary}");
        }
    }
}
