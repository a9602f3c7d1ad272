//! Beginnings of a client's turns in a TLS connection, seen from outside: in HTTP/1.1 a turn is a request.
//!
//! A turn begins with the first record of application data that the client sends at all, or after the server has sent
//! some. Only the five bytes of record headers are read (RFC 8446 §5.1). Nothing is decrypted, kept or changed. Pure: a
//! relay reports bytes as they come, in pieces of any size.

/// Type of a record that changes the cipher; TLS 1.3 sends it for compatibility (RFC 8446 §D.4).
const CHANGE_CIPHER: u8 = 20;
/// Type of a record with part of a handshake; in TLS 1.3 only if unencrypted.
const HANDSHAKE: u8 = 22;
/// Type of a record with application data; in TLS 1.3 the type of every encrypted record.
const APPLICATION_DATA: u8 = 23;
/// Bytes of a record's header: type, version, length.
const HEADER_BYTES: usize = 5;
/// The longest record: 2^14 bytes and 2,048 of expansion in TLS 1.2 (RFC 5246 §6.2.3), 256 in TLS 1.3.
const LONGEST_RECORD_BYTES: usize = (1 << 14) + 2048;
/// TLS 1.3 adds the real type and a tag of 16 bytes to a record's content (RFC 8446 §5.2).
const EXPANSION_BYTES: usize = 17;
/// An alert of TLS 1.3, such as the `close_notify` before the end of a connection: level and description.
const ALERT_BYTES: usize = 2 + EXPANSION_BYTES;
/// A KeyUpdate: type, length, and whether an answer is wanted (RFC 8446 §4.6.3). A KeyUpdate has a record of its own.
const KEY_UPDATE_BYTES: usize = 5 + EXPANSION_BYTES;
/// Finished with SHA-256 and with SHA-384 (RFC 8446 §4.4.4), as the only message of its record.
const FINISHED_BYTES: [usize; 2] = [4 + 32 + EXPANSION_BYTES, 4 + 48 + EXPANSION_BYTES];
/// Length of the shortest record that may begin a request. The request line of HTTP/1.1 alone has 16 bytes. A HEADERS
/// frame of HTTP/2 has 9 and a byte for each field: four that are required, and a `user-agent` or another one. Shorter
/// records hold alerts, `EndOfEarlyData`, KeyUpdate, or HTTP/2's WINDOW_UPDATE, RST_STREAM (13 bytes) and
/// acknowledgement of SETTINGS.
const SHORTEST_REQUEST_BYTES: usize = 9 + 5 + EXPANSION_BYTES;
/// The shortest plaintext of a record that may begin a request. Shorter ones begin a request together.
const SHORTEST_PLAINTEXT_BYTES: usize = SHORTEST_REQUEST_BYTES - EXPANSION_BYTES;
/// Upper bound of an encrypted Finished of TLS 1.2; a second ClientHello after a `HelloRetryRequest` is longer.
const LONGEST_OLD_FINISHED_BYTES: usize = 128;

/// Counts the turns of one connection. Holds a few bytes, regardless of the traffic.
#[derive(Debug, Default)]
pub(crate) struct TlsTurns {
    client: Records,
    server: Records,
    /// The client has changed its cipher.
    changed: bool,
    /// The client's handshake is over.
    finished: bool,
    /// A turn has begun, and the server has sent no application data since.
    awaits_server: bool,
    /// Plaintext of records that are too short for a request, since the server has sent application data.
    short_bytes: usize,
    /// Plaintext of the server's records that are too short for an answer, since the last turn began.
    short_answer_bytes: usize,
}

/// Finds the headers of records in a stream of bytes.
#[derive(Debug, Default)]
struct Records {
    /// The part of a header that has come.
    header: [u8; HEADER_BYTES],
    read: usize,
    /// Bytes of the current record that are still to come.
    left: usize,
    /// True if the bytes are not TLS.
    lost: bool,
}

/// The header of a record.
#[derive(Clone, Copy, Debug)]
struct Record {
    /// Start of the record in the current piece; 0 if it began in an earlier piece.
    start: usize,
    kind: u8,
    length: usize,
}

// === impl TlsTurns ===

impl TlsTurns {
    /// Reads `bytes` of the client from `at` on. Returns the start of the next turn, and moves `at` behind its header.
    /// Returns `None` if no turn begins in the rest, which was read to its end then.
    pub(crate) fn on_client(&mut self, bytes: &[u8], at: &mut usize) -> Option<usize> {
        while let Some(record) = self.client.next(bytes, at) {
            if self.may_begin(record) && !self.awaits_server {
                (self.awaits_server, self.short_answer_bytes) = (true, 0);
                return Some(record.start);
            }
        }
        None
    }

    /// Reads `bytes` of the server. Returns whether they contain application data other than alerts and a few
    /// KeyUpdates. A new key in the middle of an upload does not end its turn.
    pub(crate) fn on_server(&mut self, bytes: &[u8]) -> bool {
        let (mut at, mut spoke) = (0, false);
        while let Some(record) = self.server.next(bytes, &mut at) {
            if record.kind != APPLICATION_DATA || record.length <= ALERT_BYTES {
                continue;
            }
            if record.length <= KEY_UPDATE_BYTES {
                self.short_answer_bytes += record.length - EXPANSION_BYTES;
            }
            spoke |= record.length > KEY_UPDATE_BYTES || self.short_answer_bytes >= SHORTEST_PLAINTEXT_BYTES;
        }
        if spoke {
            (self.awaits_server, self.short_bytes) = (false, 0);
        }
        spoke
    }

    /// Returns whether `record` of the client may be the first one of a turn.
    fn may_begin(&mut self, record: Record) -> bool {
        let Record { kind, length, .. } = record;
        match kind {
            CHANGE_CIPHER => self.changed = true,
            // In TLS 1.2 the handshake is encrypted under its own type.
            HANDSHAKE => self.finished |= self.changed && length <= LONGEST_OLD_FINISHED_BYTES,
            _ => {}
        }
        if kind != APPLICATION_DATA {
            return false;
        }
        if length < SHORTEST_REQUEST_BYTES {
            self.short_bytes += length.saturating_sub(EXPANSION_BYTES).max(1);
            return self.short_bytes >= SHORTEST_PLAINTEXT_BYTES;
        }
        if !self.finished && FINISHED_BYTES.contains(&length) {
            self.finished = true;
            return false;
        }
        true
    }
}

// === impl Records ===

impl Records {
    /// The next record whose header is complete in `bytes` from `at` on; `at` moves behind that header. Bytes that are
    /// not TLS count as one record of application data for each piece.
    fn next(&mut self, bytes: &[u8], at: &mut usize) -> Option<Record> {
        let passed = self.left.min(bytes.len() - *at);
        self.left -= passed;
        *at += passed;
        if *at == bytes.len() {
            return None;
        }
        let start = *at;
        if !self.lost {
            let taken = (HEADER_BYTES - self.read).min(bytes.len() - start);
            self.header[self.read..self.read + taken].copy_from_slice(&bytes[start..start + taken]);
            self.read += taken;
            *at += taken;
            if self.read < HEADER_BYTES {
                return None;
            }
            // An earlier piece may have brought the record's first bytes, which were passed on already.
            self.read = 0;
            let [kind, major, _, high, low] = self.header;
            let length = usize::from(u16::from_be_bytes([high, low]));
            if (CHANGE_CIPHER..=APPLICATION_DATA + 1).contains(&kind) && major == 3 && length <= LONGEST_RECORD_BYTES {
                self.left = length;
                return Some(Record { start, kind, length });
            }
            self.lost = true;
        }
        *at = bytes.len();
        Some(Record { start, kind: APPLICATION_DATA, length: LONGEST_RECORD_BYTES })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes from one side.
    #[derive(Clone, Debug)]
    enum Flight {
        Client(Vec<u8>),
        Server(Vec<u8>),
    }

    use Flight::{Client, Server};

    fn record(kind: u8, length: usize) -> Vec<u8> {
        let [high, low] = (length as u16).to_be_bytes();
        // The body looks like headers of other records.
        [kind, 3, 3, high, low].into_iter().chain((0..length).map(|at| [23, 3, 3, 0, 9][at % 5])).collect()
    }

    fn records(of: &[(u8, usize)]) -> Vec<u8> {
        of.iter().flat_map(|(kind, length)| record(*kind, *length)).collect()
    }

    /// Number of turns that begin, if each flight comes in pieces of `piece` bytes.
    fn turns(flights: &[Flight], piece: usize) -> usize {
        let (mut turns, mut count) = (TlsTurns::default(), 0);
        for flight in flights {
            match flight {
                Client(bytes) => {
                    for bytes in bytes.chunks(piece) {
                        let (mut at, mut last) = (0, 0);
                        while let Some(start) = turns.on_client(bytes, &mut at) {
                            assert!(last <= start && start < at, "what passes before a turn goes forward");
                            (count, last) = (count + 1, start);
                        }
                        assert_eq!(at, bytes.len());
                    }
                }
                Server(bytes) => bytes.chunks(piece).for_each(|bytes| _ = turns.on_server(bytes)),
            }
        }
        count
    }

    const HELLO: (u8, usize) = (22, 512);

    /// A handshake of TLS 1.3: up to the server's Finished.
    fn hellos() -> Vec<Flight> {
        vec![Client(record(22, 512)), Server(records(&[(22, 122), (20, 1), (23, 900), (23, 53)]))]
    }

    fn after_hellos(flights: Vec<Flight>) -> Vec<Flight> {
        hellos().into_iter().chain(flights).collect()
    }

    #[test]
    fn each_request_of_http_1_is_one_turn() {
        for finished in FINISHED_BYTES {
            let tickets = Server(records(&[(23, 250), (23, 250)]));
            let exchange = || [Client(record(23, 180)), Server(records(&[(23, 300), (23, 16_401)]))];
            let mut flights = after_hellos(vec![Client(records(&[(20, 1), (23, finished)])), tickets]);
            flights.extend((0..20).flat_map(|_| exchange()));
            flights.push(Client(record(23, 2 + EXPANSION_BYTES)));
            assert_eq!(turns(&flights, 1 << 16), 20, "with a Finished of {finished}");
        }
    }

    #[test]
    fn finished_and_the_first_request_in_one_flight_are_one_turn() {
        let flights = after_hellos(vec![
            Client(records(&[(20, 1), (23, 53), (23, 180), (23, 16_401)])),
            Server(record(23, 300)),
            // A request of a Finished's length.
            Client(record(23, 53)),
        ]);
        assert_eq!(turns(&flights, 1 << 16), 2);
    }

    #[test]
    fn an_upload_is_one_turn_and_pipelined_requests_are_one() {
        let flights = after_hellos(vec![Client(records(&[(23, 53), (23, 180)])), Client(records(&[(23, 16_401); 40]))]);
        assert_eq!(turns(&flights, 1000), 1);
    }

    #[test]
    fn early_data_is_a_turn_of_its_own() {
        let flights = vec![
            Client(records(&[HELLO, (20, 1), (23, 300)])),
            Server(records(&[(22, 122), (20, 1), (23, 90), (23, 53)])),
            Client(records(&[(23, 4 + EXPANSION_BYTES), (23, 53)])),
            Server(record(23, 400)),
            Client(record(23, 300)),
        ];
        assert_eq!(turns(&flights, 1 << 16), 2);
    }

    #[test]
    fn requests_of_tls_1_2_may_be_as_long_as_a_finished_of_1_3() {
        let flights = vec![
            Client(record(22, 512)),
            Server(records(&[(22, 2000)])),
            Client(records(&[(22, 70), (20, 1), (22, 40)])),
            Server(records(&[(20, 1), (22, 40)])),
            Client(record(23, 53)),
            Server(record(23, 69)),
            Client(record(23, 69)),
        ];
        assert_eq!(turns(&flights, 1 << 16), 2);
    }

    #[test]
    fn a_second_client_hello_is_no_finished() {
        let flights = vec![
            Client(record(22, 512)),
            Server(records(&[(22, 88), (20, 1)])),
            Client(records(&[(20, 1), (22, 512)])),
            Server(records(&[(22, 122), (23, 900)])),
            Client(records(&[(23, 69)])),
            Client(records(&[(23, 200)])),
        ];
        assert_eq!(turns(&flights, 1 << 16), 1);
    }

    #[test]
    fn records_too_short_for_a_request_begin_no_turn() {
        // KeyUpdate, the acknowledgement of SETTINGS, WINDOW_UPDATE or RST_STREAM, and the shortest request of HTTP/2.
        for (length, expected) in [(22, 1), (26, 1), (30, 1), (31, 2)] {
            let flights = after_hellos(vec![
                Client(records(&[(20, 1), (23, 53), (23, 180)])),
                Server(record(23, 16_401)),
                Client(record(23, length)),
            ]);
            assert_eq!(turns(&flights, 1 << 16), expected, "a record of {length} bytes");
        }
    }

    #[test]
    fn request_in_records_that_are_each_too_short_is_one_turn() {
        let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n".len();
        // Ciphers of TLS 1.2 add 16 bytes or more, and its Finished is not application data.
        let old_hellos = || vec![Client(records(&[(22, 512), (22, 70), (20, 1), (22, 40)])), Server(record(22, 40))];
        for payload in 1..=13 {
            for (mut flights, expansion) in
                [(after_hellos(vec![Client(record(23, 53))]), 17), (old_hellos(), 16), (old_hellos(), 24)]
            {
                for _ in 0..3 {
                    let pieces = vec![(23, payload + expansion); request.div_ceil(payload)];
                    flights.extend([Client(records(&pieces)), Server(record(23, 300))]);
                }
                assert_eq!(turns(&flights, 1 << 16), 3, "{payload} bytes and {expansion}");
            }
        }
    }

    #[test]
    fn an_alert_or_a_key_update_of_the_server_is_no_answer() {
        for (length, expected) in [(ALERT_BYTES, 1), (KEY_UPDATE_BYTES, 1), (KEY_UPDATE_BYTES + 1, 2)] {
            let flights = after_hellos(vec![
                Client(records(&[(20, 1), (23, 53), (23, 180)])),
                Server(record(23, length)),
                Client(record(23, 180)),
            ]);
            assert_eq!(turns(&flights, 1 << 16), expected, "a record of {length} bytes");
        }
    }

    #[test]
    fn key_updates_of_both_sides_do_not_split_an_upload() {
        let key_update = || record(23, KEY_UPDATE_BYTES);
        let mut flights = after_hellos(vec![Client(records(&[(20, 1), (23, 53), (23, 180)]))]);
        for _ in 0..2 {
            flights.extend([Server(key_update()), Client(key_update()), Client(records(&[(23, 16_401); 4]))]);
        }
        assert_eq!(turns(&flights, 1 << 16), 1);
        flights.extend([Server(record(23, 300)), Client(record(23, 180))]);
        assert_eq!(turns(&flights, 1 << 16), 2);
    }

    #[test]
    fn answer_in_records_that_are_each_too_short_is_an_answer() {
        let answer = || Server(records(&[(23, KEY_UPDATE_BYTES); "HTTP/1.1 200\r\n\r\n".len().div_ceil(5)]));
        let mut flights = after_hellos(vec![Client(records(&[(20, 1), (23, 53)]))]);
        for _ in 0..3 {
            flights.extend([Client(record(23, 180)), answer()]);
        }
        assert_eq!(turns(&flights, 1 << 16), 3);
    }

    #[test]
    fn what_is_no_tls_counts_by_who_speaks() {
        let flights = [b"SSH-2.0-a", b"SSH-2.0-b"].map(|hello| hello.to_vec());
        let [client, server] = flights;
        assert_eq!(turns(&[Client(client.clone()), Server(server), Client(client)], 1 << 16), 2);
    }

    fn flight() -> impl Strategy<Value = Flight> {
        let lengths = prop_oneof![Just(53), Just(69), Just(21), Just(19), 0..600usize, Just(16_640)];
        let record = (20..25u8, lengths);
        (any::<bool>(), proptest::collection::vec(record, 1..5)).prop_map(|(client, all)| match client {
            true => Client(records(&all)),
            false => Server(records(&all)),
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_split_of_the_bytes_gives_the_same_count(
            flights in proptest::collection::vec(flight(), 1..12),
            piece in 1..700usize,
        ) {
            prop_assert_eq!(turns(&flights, piece), turns(&flights, 1 << 20));
        }

        #[test]
        fn no_bytes_panic(client in any::<Vec<u8>>(), server in any::<Vec<u8>>(), piece in 1..20usize) {
            turns(&[Client(client.clone()), Server(server), Client(client)], piece);
        }
    }
}
