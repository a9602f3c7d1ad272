//! Name server whose answers a test chooses.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{net::UdpSocket, task::JoinHandle};

pub(super) enum NameAnswer {
    /// TTL in seconds, and addresses: the answer contains those of the requested kind.
    Addresses(u32, Vec<IpAddr>),
    NoSuchName,
    Failure,
    FormatError,
    Silence,
    /// FORMERR to a query with an OPT record (RFC 6891 §7), and the contained answer to one without.
    WithoutEdns(Box<NameAnswer>),
    /// Silence to a query with an OPT record, and the contained answer to one without.
    SilentToEdns(Box<NameAnswer>),
    /// Delay before the contained answer is sent.
    After(Duration, Box<NameAnswer>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    V4,
    V6,
}

pub(super) struct NameServer {
    pub(super) address: SocketAddr,
    asked: Arc<Mutex<Vec<(String, Kind)>>>,
    task: JoinHandle<()>,
}

impl NameServer {
    pub(super) async fn start(answer: impl Fn(&str, Kind) -> NameAnswer + Send + 'static) -> Self {
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let (address, asked) = (socket.local_addr().unwrap(), Arc::<Mutex<Vec<_>>>::default());
        let log = asked.clone();
        let task = tokio::spawn(async move {
            let mut buffer = [0; 1500];
            loop {
                let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
                let (name, kind, question) = question(&buffer[12..length]);
                log.lock().push((name.clone(), kind));
                // ARCOUNT is 1 if the query has an OPT record; queries contain no other additional record.
                let (answer, delay) = plain(answer(&name, kind), buffer[11] > 0);
                let (message, socket) = (message(&buffer[..2], question, kind, answer), socket.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    if let Some(message) = message {
                        socket.send_to(&message, from).await.unwrap();
                    }
                });
            }
        });
        Self { address, asked, task }
    }

    /// Number of queries of `kind` for `name`.
    pub(super) fn asked(&self, name: &str, kind: Kind) -> usize {
        self.asked.lock().iter().filter(|(asked, of)| asked == name && *of == kind).count()
    }

    /// Number of all queries.
    pub(super) fn asked_anything(&self) -> usize {
        self.asked.lock().len()
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Parses the name, kind and bytes of a question (RFC 1035 §4.1.2).
pub(super) fn question(bytes: &[u8]) -> (String, Kind, &[u8]) {
    let (mut labels, mut at) = (Vec::new(), 0);
    while bytes[at] != 0 {
        let length = usize::from(bytes[at]);
        labels.push(String::from_utf8_lossy(&bytes[at + 1..=at + length]).into_owned());
        at += 1 + length;
    }
    let kind = if bytes[at + 2] == 1 { Kind::V4 } else { Kind::V6 };
    (labels.join("."), kind, &bytes[..at + 5])
}

/// Resolves `answer` for a query with or without EDNS. Returns the answer to send, and the delay before.
fn plain(answer: NameAnswer, edns: bool) -> (NameAnswer, Duration) {
    match answer {
        NameAnswer::WithoutEdns(_) if edns => (NameAnswer::FormatError, Duration::ZERO),
        NameAnswer::SilentToEdns(_) if edns => (NameAnswer::Silence, Duration::ZERO),
        NameAnswer::WithoutEdns(answer) | NameAnswer::SilentToEdns(answer) => plain(*answer, edns),
        NameAnswer::After(delay, answer) => (plain(*answer, edns).0, delay),
        answer => (answer, Duration::ZERO),
    }
}

fn message(id: &[u8], question: &[u8], kind: Kind, answer: NameAnswer) -> Option<Vec<u8>> {
    let (code, ttl, addresses) = match answer {
        NameAnswer::Addresses(ttl, addresses) => (0, ttl, addresses),
        NameAnswer::FormatError => (1, 0, Vec::new()),
        NameAnswer::Failure => (2, 0, Vec::new()),
        NameAnswer::NoSuchName => (3, 0, Vec::new()),
        NameAnswer::Silence => return None,
        NameAnswer::WithoutEdns(_) | NameAnswer::SilentToEdns(_) | NameAnswer::After(..) => unreachable!("made plain"),
    };
    let wanted: Vec<_> = addresses.into_iter().filter(|address| address.is_ipv4() == (kind == Kind::V4)).collect();
    let mut message = [id, &[0x81, 0x80 | code, 0, 1, 0, wanted.len() as u8, 0, 0, 0, 0], question].concat();
    for address in wanted {
        message.extend_from_slice(&[0xc0, 12, 0, if address.is_ipv4() { 1 } else { 28 }, 0, 1]);
        message.extend_from_slice(&ttl.to_be_bytes());
        let octets = match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        message.extend_from_slice(&[0, octets.len() as u8]);
        message.extend_from_slice(&octets);
    }
    Some(message)
}
