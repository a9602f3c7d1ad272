//! An answer of 101: both sides switch to another protocol.

use http::{
    HeaderValue, Response, StatusCode,
    header::{CONNECTION, UPGRADE},
};
use hyper::upgrade::OnUpgrade;

use super::answer::InFlight;
use crate::{
    error::Error,
    lane::Permit,
    learn::AnswerReport,
    proxy::{
        call::Answered,
        message::{fields, request_body::BoxedRequest},
        outbound::{host_pool::AnswerBody, response_body::ResponseBody},
        takeover::Takeover,
    },
};

/// The protocols for which `request` asks, and the worker's side of the switch.
pub(crate) fn requested(request: &mut BoxedRequest) -> Option<(HeaderValue, OnUpgrade)> {
    let wanted = request.headers().get(UPGRADE).cloned()?;
    Some((wanted, hyper::upgrade::on(&mut **request)))
}

/// Switches both sides to another protocol. The permit is in flight until both have ended.
pub(crate) fn switch(
    in_flight: &InFlight<'_>,
    mut permit: Permit,
    upgrade: Option<(HeaderValue, OnUpgrade)>,
    mut answer: Response<AnswerBody>,
) -> Answered {
    let &InFlight { exchange, route, written, .. } = in_flight;
    permit.answered(&AnswerReport::SERVED, written);
    let wrong = |what: &'static str| Error::BadAnswer { origin: route.origin.to_string(), source: what.into() };
    let Some((wanted, worker)) = upgrade else {
        return Err(wrong("it switches to a protocol that was not requested"));
    };
    let got = answer.headers().get(UPGRADE).cloned().ok_or_else(|| wrong("it switches, and does not say to what"))?;
    let fits = |one: &str| one.trim().as_bytes().eq_ignore_ascii_case(got.as_bytes());
    if !wanted.to_str().is_ok_and(|wanted| wanted.split(',').any(fits)) {
        return Err(wrong("it switches to a protocol that was not requested"));
    }
    let upstream = hyper::upgrade::on(&mut answer);
    // hyper keeps the spelling of field names in the extensions.
    let spelling = std::mem::take(answer.extensions_mut());
    let mut fields = std::mem::take(answer.headers_mut());
    fields::remove_hop_by_hop(&mut fields);
    if !route.lane.policy().egress.unannounced {
        fields::add_via(&mut fields, &exchange.proxy.via, answer.version());
    }
    fields.insert(UPGRADE, got);
    fields.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    exchange.hand_over(Takeover::Upgrade { worker, upstream, permit });
    let mut answer = Response::new(ResponseBody::Own(None));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *answer.headers_mut() = fields;
    *answer.extensions_mut() = spelling;
    Ok(answer)
}
