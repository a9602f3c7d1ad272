//! A scripted upstream that records connections and requests.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use parking_lot::Mutex;

use super::{
    Message, RawConnection, eventually,
    h2::Frames,
    message::Stream,
    record::Record,
    tls::{Hello, Server},
};

/// A TCP server on a free port of loopback, with a thread for each connection.
pub(crate) struct Upstream {
    seen: Arc<Seen>,
}

/// A connection to an [`Upstream`].
pub(crate) struct Connection {
    wire: RawConnection,
    seen: Arc<Seen>,
}

struct Seen {
    record: Record,
    /// Connections that the other side has closed, and that the script has noticed.
    ended: AtomicUsize,
    /// TLS handshakes so far.
    hellos: Mutex<Vec<Hello>>,
    stop: AtomicBool,
}

// === impl Upstream ===

impl Upstream {
    /// Runs `script` for each connection, which closes when the script returns.
    pub(crate) fn scripted(script: impl Fn(Connection) + Send + Sync + 'static) -> Self {
        Self::start(None, script)
    }

    /// Runs `script` for each connection, inside of TLS. Connections whose handshake fails never reach the script.
    pub(crate) fn secure(tls: Server, script: impl Fn(Connection) + Send + Sync + 'static) -> Self {
        Self::start(Some(tls), script)
    }

    fn start(tls: Option<Server>, script: impl Fn(Connection) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (seen, script) = (Arc::new(Seen::at(listener.local_addr().unwrap())), Arc::new(script));
        let upstream = Self { seen: seen.clone() };
        thread::spawn(move || {
            for stream in listener.incoming() {
                if seen.stop.load(Ordering::Acquire) {
                    return;
                }
                seen.record.connected();
                let (stream, tls) = (stream.unwrap(), tls.clone());
                let (script, seen) = (script.clone(), seen.clone());
                thread::spawn(move || {
                    let wire = match tls {
                        Some(tls) => seen.shaken(tls.accept(stream)),
                        None => Some(RawConnection::new(stream)),
                    };
                    if let Some(wire) = wire {
                        script(Connection { wire, seen: seen.clone() });
                    }
                    seen.ended.fetch_add(1, Ordering::AcqRel);
                });
            }
        });
        upstream
    }

    /// Answers each request with the result of `answer`, and keeps the connection open.
    pub(crate) fn answering<A: AsRef<[u8]>>(answer: impl Fn(&Message) -> A + Send + Sync + 'static) -> Self {
        Self::scripted(move |mut connection| {
            while let Some(request) = connection.request() {
                connection.send(answer(&request));
            }
        })
    }

    /// Answers each request with `answer`, byte for byte, and keeps the connection.
    pub(crate) fn always(answer: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        let answer = answer.as_ref().to_vec();
        Self::answering(move |_| answer.clone())
    }

    /// Answers the first request of each connection with `answer`, byte for byte, and closes.
    pub(crate) fn once(answer: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self::scripted(move |mut connection| {
            if connection.request().is_some() {
                connection.send(&answer);
            }
        })
    }

    /// Answers each request with 200 and a short body.
    pub(crate) fn ok() -> Self {
        Self::always("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    }

    /// Answers each request inside of TLS with 200 and a short body.
    pub(crate) fn secure_ok(tls: Server) -> Self {
        Self::secure(tls, Connection::ok)
    }

    /// Echoes all received bytes.
    pub(crate) fn echo() -> Self {
        Self::scripted(|mut connection| {
            while let Ok(byte) = connection.bytes(1) {
                connection.send(byte);
            }
        })
    }

    /// Number of ended connections.
    pub(crate) fn ended(&self) -> usize {
        self.seen.ended.load(Ordering::Acquire)
    }

    /// TLS handshakes so far.
    pub(crate) fn hellos(&self) -> Vec<Hello> {
        self.seen.hellos.lock().clone()
    }

    /// The first handshake. The other side may know of it before it is recorded here.
    pub(crate) fn hello(&self) -> Hello {
        eventually("a handshake", || self.hellos().into_iter().next())
    }
}

impl Deref for Upstream {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.seen.record
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.seen.stop.store(true, Ordering::Release);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address());
    }
}

// === impl Seen ===

impl Seen {
    fn at(address: SocketAddr) -> Self {
        Self {
            record: Record::new(address),
            ended: AtomicUsize::new(0),
            hellos: Mutex::default(),
            stop: AtomicBool::new(false),
        }
    }

    fn shaken(&self, (hello, shaken): (Option<Hello>, io::Result<RawConnection>)) -> Option<RawConnection> {
        self.hellos.lock().extend(hello);
        shaken.ok()
    }
}

// === impl Connection ===

impl Connection {
    /// The next request, which is remembered; `None` where the connection ends, whatever ends it.
    pub(crate) fn request(&mut self) -> Option<Message> {
        let request = self.wire.request().ok()??;
        self.remember(request.clone());
        Some(request)
    }

    /// The head of the next request, whose body stays unread. The head is recorded, too.
    pub(crate) fn head(&mut self) -> Option<Message> {
        let request = Message { head: self.wire.head().ok()??, ..Message::default() };
        self.remember(request.clone());
        Some(request)
    }

    /// Records a request that was read in another way.
    pub(crate) fn remember(&self, request: Message) {
        self.seen.record.remember(request);
    }

    /// Address of the client.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.wire.socket().peer_addr().unwrap()
    }

    /// Speaks TLS from now on; `None` if that fails.
    pub(crate) fn secured(self, tls: &Server) -> Option<Self> {
        let wire = self.seen.shaken(tls.accept(self.wire.socket()))?;
        Some(Self { wire, seen: self.seen })
    }

    /// Whether both sides have agreed on HTTP/2.
    pub(crate) fn is_http2(&self) -> bool {
        self.wire.is_http2()
    }

    /// Answers each request with 200 and a short body.
    pub(crate) fn ok(mut self) {
        while self.request().is_some() {
            self.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    }

    /// Sends `bytes`, and ignores a closed connection.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.wire.send(bytes);
    }

    /// Sends `bytes`, and says whether they could be sent.
    pub(crate) fn sent(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.wire.send(bytes).is_ok()
    }

    /// The next `count` bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> io::Result<Vec<u8>> {
        self.wire.bytes(count)
    }

    /// Waits until the other side closes, and returns its last bytes.
    pub(crate) fn rest(&mut self) -> io::Result<Vec<u8>> {
        self.wire.rest()
    }

    /// Says that nothing more will be sent.
    pub(crate) fn finish(&mut self) {
        self.wire.finish();
    }

    /// Speaks HTTP/2 from now on, frame by frame; `None` where the other side does not.
    pub(crate) fn frames(self, settings: &[(u16, u32)]) -> Option<Frames<Box<dyn Stream>>> {
        Frames::server(self.wire.into_stream(), settings).ok()
    }

    /// Ends the connection by a reset.
    pub(crate) fn reset(self) {
        self.wire.reset();
    }
}
