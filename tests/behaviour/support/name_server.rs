//! A name server with the answers that a test wants.

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use parking_lot::Mutex;

/// The server's answer for a name.
#[derive(Clone)]
pub(crate) enum Name {
    /// These IPv4 addresses, for a minute.
    At(Vec<Ipv4Addr>),
    /// These IPv4 addresses with a TTL of 0, and "no such name" for IPv6.
    Briefly(Vec<Ipv4Addr>),
    /// There is no such name.
    Unknown,
    /// No answer at all.
    Silence,
}

/// A server on a free UDP port of loopback.
pub(crate) struct NameServer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
}

// === impl NameServer ===

impl NameServer {
    /// Answers each name with the result of `known`.
    pub(crate) fn start(known: impl Fn(&str) -> Name + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let server = Self { address: socket.local_addr().unwrap(), asked: Arc::default(), stop: Arc::default() };
        let (asked, stop) = (server.asked.clone(), server.stop.clone());
        thread::spawn(move || {
            let mut buffer = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                if stop.load(Ordering::Acquire) {
                    return;
                }
                let (name, question) = question(&buffer[12..length]);
                asked.lock().push(name.clone());
                if let Some(message) = message(&buffer[..2], question, known(&name)) {
                    socket.send_to(&message, from).unwrap();
                }
            }
        });
        server
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// All names that it was asked for so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let wake = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.send_to(b"", self.address));
        drop(wake);
    }
}

/// A name, and the question that it is in (RFC 1035 §4.1.2).
fn question(bytes: &[u8]) -> (String, &[u8]) {
    let (mut labels, mut at) = (Vec::new(), 0);
    while bytes[at] != 0 {
        let length = usize::from(bytes[at]);
        labels.push(String::from_utf8_lossy(&bytes[at + 1..=at + length]).into_owned());
        at += 1 + length;
    }
    (labels.join("."), &bytes[..at + 5])
}

fn message(id: &[u8], question: &[u8], name: Name) -> Option<Vec<u8>> {
    const V4: [u8; 4] = [0, 1, 0, 1];
    let is_v4 = question.ends_with(&V4);
    let ttl = if matches!(name, Name::Briefly(_)) { 0 } else { 60 };
    let (code, addresses) = match name {
        // No name has an address of IPv6.
        Name::At(addresses) => (0, if is_v4 { addresses } else { Vec::new() }),
        Name::Briefly(addresses) if is_v4 => (0, addresses),
        Name::Briefly(_) | Name::Unknown => (3, Vec::new()),
        Name::Silence => return None,
    };
    let count = u8::try_from(addresses.len()).unwrap();
    let mut message = [id, &[0x81, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0], question].concat();
    for address in addresses {
        message.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, ttl, 0, 4]);
        message.extend_from_slice(&address.octets());
    }
    Some(message)
}
