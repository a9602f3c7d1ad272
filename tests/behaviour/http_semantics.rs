//! What a proxy does to requests and answers that are in order.

use crate::support::{Andante, Client, Upstream};

#[test]
fn r13_fields_named_by_connection_are_dropped() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let answer = Client::get(andante.proxy(), &upstream.url("/x"));
    assert_eq!((answer.status(), answer.text().as_str()), (200, "ok"));
    assert_eq!(upstream.request().line(), "GET /x HTTP/1.1");
}
