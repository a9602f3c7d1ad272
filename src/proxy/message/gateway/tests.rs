//! Targets of paths, locations in answers, and both together: a redirect that is followed.

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use url::Url;

use super::*;
use crate::policy::Origin;

/// `/openai` is a whole host, `/openai/chat` a part of another host.
fn routes() -> Vec<Gateway> {
    let route = |path: &str, to: &str, base: &str| Gateway {
        path: path.into(),
        to: Origin::parse(Scheme::Https, to, Some(443)).unwrap(),
        base: base.into(),
    };
    vec![
        route("/openai", "api.openai.com", ""),
        route("/openai/chat", "chat.example", "/v1"),
        route("/local", "[::1]:8443", "/v1"),
    ]
}

fn lead_to(path: &str) -> Target {
    target(&path.parse().unwrap(), &routes()).expect("a gateway's").expect("a target")
}

/// Scheme, authority and path in one line.
fn shown(path: &str) -> String {
    let Target { scheme, authority, path, .. } = lead_to(path);
    format!("{} {authority} {path}", scheme.as_str())
}

/// Value of the answer's field `name: value` after it is rewritten for `path`.
fn rewritten(path: &str, name: &'static str, value: &str) -> String {
    let mut fields = HeaderMap::new();
    fields.insert(HeaderName::from_static(name), value.parse().unwrap());
    lead_to(path).location.rewrite(&mut fields);
    fields[name].to_str().unwrap().to_owned()
}

#[test]
fn a_path_that_is_a_url_leads_there() {
    for (path, wanted) in [
        ("/https://api.example.com/v1/x?y", "https api.example.com /v1/x?y"),
        ("/http://api.example.com:8080/", "http api.example.com:8080 /"),
        ("/HTTPS://API.example.com/X", "https API.example.com /X"),
        ("/https:/api.example.com/v1", "https api.example.com /v1"),
        ("/https://api.example.com", "https api.example.com /"),
        ("/https://api.example.com?q=1", "https api.example.com /?q=1"),
        ("/https://[::1]:8443/a", "https [::1]:8443 /a"),
        ("/https%3A/api.example.com%3A8443/v1%3A", "https api.example.com:8443 /v1%3A"),
        ("/http%3a//a.test%3a80", "http a.test:80 /"),
        ("/https://a.test/%7Ea/../b//c;d?x=%2F&y=a+b", "https a.test /%7Ea/../b//c;d?x=%2F&y=a+b"),
        ("/https://a.test//x", "https a.test //x"),
        ("/https://a.test/https://b.test/", "https a.test /https://b.test/"),
        // Rejected later, when the authority is parsed.
        ("/https:///x", "https  /x"),
    ] {
        assert_eq!(shown(path), wanted, "{path}");
    }
}

#[test]
fn of_named_routes_the_longest_wins() {
    for (path, wanted) in [
        ("/openai", "https api.openai.com /"),
        ("/openai/", "https api.openai.com /"),
        ("/openai?x", "https api.openai.com /?x"),
        ("/openai/v1/models?x", "https api.openai.com /v1/models?x"),
        ("/openai/chat", "https chat.example /v1"),
        ("/openai/chat?x", "https chat.example /v1?x"),
        ("/openai/chat/a//b", "https chat.example /v1/a//b"),
        ("/openai/chats", "https api.openai.com /chats"),
        ("/local/x", "https [::1]:8443 /v1/x"),
    ] {
        assert_eq!(shown(path), wanted, "{path}");
    }
}

#[test]
fn what_is_no_gateways_path_is_left_to_others() {
    for path in [
        "/",
        "/x",
        "/openaix",
        "/open",
        "/https",
        "/https:",
        "/https:x",
        "/https%3A",
        "/https%3Ax/",
        "/ftp://a/",
        "//https://a/",
        "*",
    ] {
        assert!(target(&path.parse().unwrap(), &routes()).is_none(), "{path}");
    }
}

#[test]
fn a_user_name_is_refused() {
    for path in ["/https://u@api.example.com/", "/http:/u:p@api.example.com", "/https://@api.example.com?x"] {
        let refused = target(&path.parse().unwrap(), &routes()).unwrap();
        assert!(matches!(refused, Err(Error::UserInfo)), "{path}");
    }
    assert_eq!(shown("/https://api.example.com/@u"), "https api.example.com /@u");
}

#[test]
fn a_location_stays_on_the_gateway() {
    let generic = "/https://api.example.com/v1/x";
    for (path, location, wanted) in [
        (generic, "https://api.example.com/v2", "/https://api.example.com/v2"),
        (generic, "https://API.example.com:443/v2?x#y", "/https://api.example.com/v2?x#y"),
        (generic, "https://api.example.com", "/https://api.example.com"),
        (generic, "http://api.example.com/v2", "/http://api.example.com/v2"),
        (generic, "https://api.example.com:8443/", "/https://api.example.com:8443/"),
        (generic, "HTTPS://other.example/x", "/https://other.example/x"),
        (generic, "//other.example/x", "/https://other.example/x"),
        (generic, "https://u:p@other.example/x", "/https://other.example/x"),
        (generic, "/v2", "/https://api.example.com/v2"),
        (generic, "/v2/../../../y?../z", "/https://api.example.com/y?../z"),
        (generic, "y", "y"),
        (generic, "?page=2", "?page=2"),
        (generic, "#top", "#top"),
        (generic, "", ""),
        (generic, "../../../y", "/https://api.example.com/y"),
        (generic, "%2E./y", "/https://api.example.com/y"),
        (generic, "mailto:a@b", "mailto:a@b"),
        (generic, "https:x", "https:x"),
        (generic, "https://a b/", "https://a b/"),
        ("/https://api.example.com", "y", "/https://api.example.com/y"),
        ("/https:/API.example.com/x", "/v2", "/https:/API.example.com/v2"),
        ("/openai/v1", "https://api.openai.com/v2", "/openai/v2"),
        ("/openai/v1", "/v2", "/openai/v2"),
        ("/openai", "v2", "/openai/v2"),
        ("/openai/v1", "https://other.example/v2", "/https://other.example/v2"),
        ("/openai/chat/a", "/v1/b", "/openai/chat/b"),
        ("/openai/chat/a", "/v1?b", "/openai/chat?b"),
        ("/openai/chat/a", "/v10/b", "/https://chat.example/v10/b"),
        ("/openai/chat/a", "../b", "/https://chat.example/b"),
        ("/openai/chat/a", "/v1/../b", "/https://chat.example/b"),
        ("/openai/chat", "b", "/https://chat.example/b"),
        ("/local", "https://[::1]:8443/", "/https://[::1]:8443/"),
    ] {
        assert_eq!(rewritten(path, "location", location), wanted, "{location:?} from {path}");
        assert_eq!(rewritten(path, "content-location", location), wanted, "{location:?} from {path}");
    }
}

#[test]
fn every_target_of_a_link_stays() {
    let path = "/https://api.example.com/v1/x";
    for (link, wanted) in [
        ("</v1/x?page=2>; rel=\"next\"", "</https://api.example.com/v1/x?page=2>; rel=\"next\""),
        (
            "<https://api.example.com/1>; rel=prev, <x>, <//o.example/3>;rel=next",
            "</https://api.example.com/1>; rel=prev, <x>, </https://o.example/3>;rel=next",
        ),
        ("<x>; title=\"a \\\" </b>, c\", </d>", "<x>; title=\"a \\\" </b>, c\", </https://api.example.com/d>"),
        ("</a>, </b", "</https://api.example.com/a>, </b"),
        ("nothing", "nothing"),
    ] {
        assert_eq!(rewritten(path, "link", link), wanted);
    }
}

#[test]
fn cookies_become_the_gateways_and_keep_to_their_upstream() {
    let generic = "/https://api.example.com/v1/x";
    for (path, cookie, wanted) in [
        (generic, "a=b; Path=/; HttpOnly", "a=b; Path=/https://api.example.com; HttpOnly"),
        (generic, "a=\"b; c\";path = /v1/ ;Max-Age=3", "a=\"b; c\";path = /https://api.example.com/v1/ ;Max-Age=3"),
        (generic, "a=b; Domain=.example.com; Secure; SameSite=None", "a=b"),
        (
            generic,
            "a=b; SameSite=Lax;DOMAIN=x;secure; Expires=Wed, 21 Oct 2026 07:28:00 GMT",
            "a=b; SameSite=Lax; Expires=Wed, 21 Oct 2026 07:28:00 GMT",
        ),
        (generic, "a=b; Path=x", "a=b; Path=x"),
        (generic, "a=b", "a=b"),
        // A cookie's name may be that of an attribute.
        (generic, "Domain=b;x", "Domain=b;x"),
        ("/https://api.example.com", "a=b", "a=b; Path=/https://api.example.com"),
        ("/openai/x", "a=b; Path=/", "a=b; Path=/openai"),
        ("/openai", "a=b; Path", "a=b; Path; Path=/openai"),
        ("/openai/chat/x", "a=b; Path=/", "a=b; Path=/openai/chat"),
        ("/openai/chat/x", "a=b; Path=/v1/y", "a=b; Path=/openai/chat/y"),
        ("/openai/chat/x", "a=b; Path=/v", "a=b; Path=/https://chat.example/v"),
    ] {
        assert_eq!(rewritten(path, "set-cookie", cookie), wanted, "{cookie:?} from {path}");
    }
}

/// A reference of any kind, as a URL parser writes it.
fn reference() -> impl Strategy<Value = String> {
    let host = prop_oneof![Just("api.example.com"), Just("chat.example"), Just("other.example:8443"), Just("[::1]")];
    let scheme = prop_oneof![Just("https:"), Just("http:"), Just("")];
    let segment =
        prop_oneof!["[a-z0-9;=@]{0,3}(10:20)?", Just("..".to_owned()), Just(".".to_owned()), Just("v1".to_owned())];
    let path = proptest::collection::vec(segment, 0..6).prop_map(|segments| segments.join("/"));
    let rest = prop_oneof![Just(String::new()), "\\?[a-z=/.]{0,4}"];
    let full = (scheme, host, path.clone(), rest.clone())
        .prop_map(|(scheme, host, path, rest)| format!("{scheme}//{host}/{path}{rest}"));
    let rooted = (path.clone(), rest.clone()).prop_map(|(path, rest)| format!("/{path}{rest}"));
    let relative = (path, rest).prop_map(|(path, rest)| format!("{path}{rest}"));
    // Two slashes would make a host of the next part, which `full` covers.
    let local = prop_oneof![rooted, relative].prop_filter("a host", |reference| !reference.starts_with("//"));
    prop_oneof![full, local]
}

proptest! {
    #[test]
    fn path_and_query_after_the_host_keep_their_bytes(
        rest in "/[!$-;=A-Z\\[\\]^_a-z|~]{0,40}(\\?[!$-;=?-~]{0,40})?",
        slashes in "/{1,2}", scheme in "[hH][tT][tT][pP][sS]?",
    ) {
        let path = format!("/{scheme}:{slashes}api.example.com:81{rest}");
        let there = lead_to(&path);
        prop_assert_eq!((&*there.authority, there.path.as_str()), ("api.example.com:81", &*rest));
        let there = lead_to(&format!("/local{rest}"));
        prop_assert_eq!(there.path.as_str(), format!("/v1{rest}"));
    }

    #[test]
    fn no_path_and_no_answer_makes_it_panic(
        path in prop_oneof!["/(https?:/{1,3}|openai|openai/chat)?[ -~]{0,30}", "/[ -~]{0,30}"],
        values in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 5),
        pieces in proptest::collection::vec("(<|>|\"|;|=|/|//|https:|\\.\\.|Path|Domain|,| |\\\\|[a-z]){0,12}", 4),
    ) {
        let Ok(path) = path.parse::<PathAndQuery>() else { return Ok(()) };
        let Some(Ok(Target { location, .. })) = target(&path, &routes()) else { return Ok(()) };
        let names = ["location", "content-location", "link", "set-cookie"];
        let mut fields = HeaderMap::new();
        for (name, bytes) in names.iter().cycle().zip(values.iter().map(Vec::as_slice).chain(pieces.iter().map(String::as_bytes))) {
            if let Ok(value) = HeaderValue::from_bytes(bytes) {
                fields.append(*name, value);
            }
        }
        for name in ["refresh", "x-location", "etag"] {
            if let Ok(value) = HeaderValue::from_bytes(&values[4]) {
                fields.append(name, value);
            }
        }
        let before = fields.clone();
        location.rewrite(&mut fields);
        prop_assert_eq!(before.len(), fields.len());
        for name in ["refresh", "x-location", "etag"] {
            prop_assert_eq!(before.get(name), fields.get(name));
        }
    }

    #[test]
    fn a_location_that_is_followed_leads_where_it_led(
        prefix in prop_oneof![
            Just("/https://api.example.com"), Just("/http:/api.example.com:81"), Just("/openai"), Just("/openai/chat")],
        path in "(/[a-z]{0,3}){0,4}",
        reference in reference(),
    ) {
        let here = lead_to(&format!("{prefix}{path}"));
        let upstream = format!("{}://{}{}", here.scheme.as_str(), here.authority, here.path);
        let wanted = Url::parse(&upstream).unwrap().join(&reference);
        prop_assume!(wanted.is_ok());
        let wanted = wanted.unwrap();
        prop_assume!(matches!(wanted.scheme(), "http" | "https"));

        let location = rewritten(&format!("{prefix}{path}"), "location", &reference);
        let gateway = Url::parse(&format!("http://127.0.0.1:3128{prefix}{path}")).unwrap();
        let followed = gateway.join(&location).unwrap();
        prop_assert_eq!(followed.port(), Some(3128), "{} left the gateway: {}", reference, location);
        let there = lead_to(&followed[url::Position::BeforePath..url::Position::AfterQuery]);
        let there = format!("{}://{}{}", there.scheme.as_str(), there.authority, there.path);
        prop_assert_eq!(Url::parse(&there).unwrap(), wanted, "{} became {}", reference, location);
    }
}
