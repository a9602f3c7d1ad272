//! Compares the parts of a configuration: addresses, the clients that may use them, and the hosts that are intercepted.

use std::{net::SocketAddr, num::NonZeroU32};

use super::{
    diagnostic::{Diagnostic, Place, Spanned},
    model::Clients,
    value::{ClientEntry, WhenDown},
};
use crate::{
    fleet::{Floor, StoreDown},
    policy::{HostPattern, Interception},
};

/// Clients that may use the proxy.
pub(super) fn clients(written: Option<Vec<Spanned<ClientEntry>>>, problems: &mut Vec<Diagnostic>) -> Clients {
    let Some(written) = written else { return Clients::Loopback };
    let any = written.iter().find(|client| client.value == ClientEntry::Any);
    if let (Some(any), true) = (any, written.len() > 1) {
        let hint = "write [\"any\"] alone, or the networks without it";
        problems.push(Diagnostic::error(any, "\"any\" makes the networks beside it meaningless", hint));
    }
    let networks: Vec<_> = written
        .iter()
        .filter_map(|client| match client.value {
            ClientEntry::Network(network) => Some(network),
            ClientEntry::Any => None,
        })
        .collect();
    match (any, networks.is_empty()) {
        (Some(_), _) => Clients::Any,
        (None, true) => Clients::Loopback,
        (None, false) => Clients::Networks(networks),
    }
}

/// Behaviour without the store, in a fleet of `size`.
pub(super) fn store_down(
    written: Option<Spanned<WhenDown>>,
    floor: Option<Spanned<u8>>,
    size: Option<NonZeroU32>,
    problems: &mut Vec<Diagnostic>,
) -> StoreDown {
    const PERCENT: u8 = 20;
    let when = written.as_ref().map_or(WhenDown::Wait, |written| written.value);
    if let (Some(floor), WhenDown::Wait | WhenDown::Open) = (&floor, when) {
        let what = "a floor without store-down = \"floor\" is for nothing";
        problems.push(Diagnostic::error(floor, what, "write store-down = \"floor\", or leave the floor out"));
    }
    match (when, size, &written) {
        (WhenDown::Wait, ..) => StoreDown::Wait,
        (WhenDown::Open, ..) => StoreDown::Open,
        (WhenDown::Floor, Some(members), _) => {
            StoreDown::Floor(Floor { percent: floor.map_or(PERCENT, |floor| floor.value), members })
        }
        (WhenDown::Floor, None, written) => {
            let what = "a floor is divided among all andantes of the fleet, and nothing says how many these are";
            let hint = "write fleet-size = N, the most that there ever are at once";
            problems.extend(written.as_ref().map(|written| Diagnostic::error(written, what, hint)));
            StoreDown::Wait
        }
    }
}

/// Interception of hosts; `base` fills in values that no source has. Also returns the hosts that were named.
pub(super) fn interception(
    written: Option<Vec<Spanned<Option<HostPattern>>>>,
    base: &Interception,
    problems: &mut Vec<Diagnostic>,
) -> (Interception, Vec<Spanned<HostPattern>>) {
    let written = written.unwrap_or_default();
    let none = written.iter().find(|entry| entry.value.is_none());
    if let (Some(none), true) = (none, written.len() > 1) {
        let hint = "write \"none\" alone, or the hosts without it";
        problems.push(Diagnostic::error(none, "\"none\" contradicts the hosts beside it", hint));
    }
    if none.is_some() {
        return (Interception::default(), Vec::new());
    }
    let named: Vec<_> = written.into_iter().filter_map(Spanned::transpose).collect();
    if named.is_empty() {
        return (base.clone(), named);
    }
    let hosts = named.iter().map(|host| host.value.clone()).collect();
    (Interception { hosts, others: base.others.besides_named() }, named)
}

/// Addresses must differ, and an address that other machines can reach must be intended. `open` tells that a source has
/// `clients`, even with a mistake in it.
pub(super) fn addresses(
    listen: &[Spanned<SocketAddr>],
    admin: &Spanned<Option<SocketAddr>>,
    open: bool,
    problems: &mut Vec<Diagnostic>,
) {
    for (index, address) in listen.iter().enumerate() {
        if listen[..index].iter().any(|earlier| collide(earlier.value, address.value)) {
            let what = format!("{} is listened on already", address.value);
            problems.push(Diagnostic::error(address, what, "write each address once"));
        }
        if !open && !loopback(address.value) {
            problems.push(Diagnostic::error(
                address,
                format!("other machines can reach {}, and nothing says which of them may", address.value),
                "write clients = [\"10.0.0.0/8\"], the networks of your workers, or clients = [\"any\"]; as a flag, --clients 10.0.0.0/8",
            ));
        }
    }
    let Some(admin_address) = admin.value else { return };
    if let Some(clash) = listen.iter().find(|listen| collide(listen.value, admin_address)) {
        let what = format!("listen and admin are both {admin_address}");
        let hint = "write another port for one of them, or \"off\" for admin";
        let problem = match admin.place {
            Place::Default => Diagnostic::error(clash, what, hint),
            _ => Diagnostic::error(admin, what, hint),
        };
        problems.push(problem);
    }
    if !loopback(admin_address) {
        problems.push(Diagnostic::warning(
            admin,
            format!("any client that reaches {admin_address} sees metrics and status, without a password"),
            "write a loopback address such as \"127.0.0.1:9128\" unless the network is closed",
        ));
    }
}

fn loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Returns whether the addresses cannot be listened on together. Port 0 is a new port each time.
fn collide(a: SocketAddr, b: SocketAddr) -> bool {
    let (own, other) = (a.ip().to_canonical(), b.ip().to_canonical());
    let covers = own == other || (own.is_ipv4() == other.is_ipv4() && (own.is_unspecified() || other.is_unspecified()));
    a.port() != 0 && a.port() == b.port() && covers
}
