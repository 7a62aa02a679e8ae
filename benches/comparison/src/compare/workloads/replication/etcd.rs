//! The protocol of etcd: requests of gRPC, in frames of HTTP/2 that are encoded once. A connection
//! has one pending request.

use std::io::{Read, Write};
use std::net::SocketAddr;

use lockwheel_comparison::Outcome;

use super::clients::Dialog;
use crate::measure::generator::wrong;
use crate::measure::load::connect;
use crate::measure::requests::{NUMBER, Template};
use crate::workloads::cycles::OWNER;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER_BYTES: usize = 9;
/// Where the number of the stream is in a frame's header.
const STREAM_AT: std::ops::Range<usize> = 5..9;
/// The types of frames that a client sends or handles.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
/// Added to the bytes that the server may send on the connection, up to the most that is allowed:
/// enough for millions of replies, so that it need not be added again.
const WINDOW_ADDED: u32 = (1 << 31) - 1 - 65_535;
/// The bytes before a message: whether it is compressed, and its length.
const MESSAGE_HEADER_BYTES: usize = 5;
/// The lease of a client's locks, in seconds: longer than a measurement.
const LEASE_S: u64 = 3600;

/// The requests of one client.
pub(super) struct Grpc {
    steps: Vec<Template>,
    /// Stream of the next request: odd, and never used again.
    stream: u32,
    /// What has come of the message of the reply.
    message: Vec<u8>,
    /// What the connection needs before the next request.
    due: Vec<u8>,
    sent: Vec<u8>,
}

impl Grpc {
    /// Cycles of the client with this number, which gets a lease for its locks first.
    pub(super) fn cycles(address: SocketAddr, client: usize) -> Outcome<Grpc> {
        let lease = client as u64 + 1;
        let grant = [number(1, LEASE_S), number(2, lease)].concat();
        Grpc::new(vec![call("/etcdserverpb.Lease/LeaseGrant", &grant)]).ask(address)?;
        let steps = [acquire(lease), release()];
        Ok(Grpc::new(steps.map(|message| call("/etcdserverpb.KV/Txn", &message)).into()))
    }

    fn new(steps: Vec<Vec<u8>>) -> Grpc {
        let settings = frame(SETTINGS, 0, &[]);
        let window = frame(WINDOW_UPDATE, 0, &WINDOW_ADDED.to_be_bytes());
        Grpc {
            steps: steps.into_iter().map(Template::from).collect(),
            stream: 1,
            message: Vec::new(),
            due: [PREFACE, &settings, &window].concat(),
            sent: Vec::new(),
        }
    }

    /// Sends the first request on a connection of its own, and waits for the reply.
    fn ask(&mut self, address: SocketAddr) -> Outcome<()> {
        let mut stream = connect(address)?;
        stream.write_all(self.request(0, 0))?;
        let (mut received, mut chunk) = (Vec::new(), [0; 1024]);
        while !self.take_reply(0, &mut received)? {
            match stream.read(&mut chunk)? {
                0 => return Err("etcd has closed the connection".into()),
                count => received.extend_from_slice(&chunk[..count]),
            }
        }
        Ok(())
    }

    /// Handles a frame. Returns whether the reply is complete.
    fn handle(&mut self, frame_type: u8, flags: u8, payload: &[u8]) -> Outcome<bool> {
        match frame_type {
            DATA => self.message.extend_from_slice(payload),
            SETTINGS if flags & ACK == 0 => self.due.extend(frame(SETTINGS, ACK, &[])),
            PING if flags & ACK == 0 => self.due.extend(frame(PING, ACK, payload)),
            HEADERS if flags & END_STREAM != 0 => {
                if !has_succeeded(&self.message) {
                    return Err(wrong(&[&self.message, payload].concat(), b"success").into());
                }
                self.message.clear();
                return Ok(true);
            }
            RESET | GO_AWAY => return Err(wrong(payload, b"a reply").into()),
            _ => {}
        }
        Ok(false)
    }
}

impl Dialog for Grpc {
    fn request(&mut self, step: usize, lock: u64) -> &[u8] {
        self.sent.clear();
        self.sent.append(&mut self.due);
        let headers = self.sent.len();
        self.sent.extend_from_slice(self.steps[step].fill(lock));
        let data = headers + frame_bytes(&self.sent[headers..]).unwrap_or_default();
        for begin in [headers, data] {
            let stream = &mut self.sent[begin..][STREAM_AT];
            stream.copy_from_slice(&self.stream.to_be_bytes());
        }
        self.stream += 2;
        &self.sent
    }

    fn take_reply(&mut self, _: usize, received: &mut Vec<u8>) -> Outcome<bool> {
        let (mut taken, mut is_complete) = (0, false);
        while let Some(bytes) = frame_bytes(&received[taken..])
            && let Some(frame) = received.get(taken..taken + bytes)
        {
            is_complete |= self.handle(frame[3], frame[4], &frame[FRAME_HEADER_BYTES..])?;
            taken += bytes;
        }
        received.drain(..taken);
        Ok(is_complete)
    }
}

/// The size of the first frame, if its header is complete.
fn frame_bytes(bytes: &[u8]) -> Option<usize> {
    let header = bytes.get(..FRAME_HEADER_BYTES)?;
    let payload = u32::from_be_bytes([0, header[0], header[1], header[2]]);
    Some(FRAME_HEADER_BYTES + payload as usize)
}

/// A frame of the connection, which is number 0 in place of a stream.
fn frame(frame_type: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = (payload.len() as u32).to_be_bytes();
    [&length[..], &[frame_type, flags], &[0; 4], payload].concat()
}

/// The frames of a request: its headers, as numbers of RFC 7541 and literals, and its message.
fn call(path: &str, message: &[u8]) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let (post, http) = ([0x83], [0x86]);
    let (path, authority) = ([&[4][..], &text(path)].concat(), [&[1][..], &text("etcd")].concat());
    let content_type = [&[15, 16][..], &text("application/grpc")].concat();
    let trailers = [&[0][..], &text("te"), &text("trailers")].concat();
    let headers = [&post[..], &http, &path, &authority, &content_type, &trailers].concat();
    let length = (message.len() as u32).to_be_bytes();
    let data = [&[0], &length[..], message].concat();
    [frame(HEADERS, END_HEADERS, &headers), frame(DATA, END_STREAM, &data)].concat()
}

/// The message of a `TxnRequest` that creates the key with this lease if it does not exist.
fn acquire(lease: u64) -> Vec<u8> {
    // CREATE is 1; the other side of the comparison is field 5.
    let compare = [number(2, 1), text(3, key().as_bytes()), number(5, 0)].concat();
    let put = [text(1, key().as_bytes()), text(2, OWNER.as_bytes()), number(3, lease)].concat();
    [text(1, &compare), text(2, &text(2, &put))].concat()
}

/// The message of a `TxnRequest` that deletes the key if it holds the token.
fn release() -> Vec<u8> {
    // VALUE is 3; the other side of the comparison is field 7.
    let compare = [number(2, 3), text(3, key().as_bytes()), text(7, OWNER.as_bytes())].concat();
    [text(1, &compare), text(2, &text(3, &text(1, key().as_bytes())))].concat()
}

/// Whether the reply to a transaction or the grant of a lease says so: the second field, after one
/// of less than 128 bytes, is not zero.
fn has_succeeded(message: &[u8]) -> bool {
    let fields = message.get(MESSAGE_HEADER_BYTES..).unwrap_or_default();
    let [10, length, rest @ ..] = fields else { return false };
    matches!(rest.get(usize::from(*length)..), Some([16, value, ..]) if *value > 0)
}

fn key() -> String {
    format!("lock:{NUMBER}")
}

/// A field of Protocol Buffers that is a number.
fn number(field: u8, value: u64) -> Vec<u8> {
    [vec![field << 3], varint(value)].concat()
}

/// A field of Protocol Buffers that is a text or a message.
fn text(field: u8, value: &[u8]) -> Vec<u8> {
    [&[(field << 3) | 2][..], &varint(value.len() as u64), value].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

#[cfg(test)]
mod tests {
    use super::{Grpc, call, frame_bytes, has_succeeded, number, text};
    use crate::workloads::replication::clients::Dialog;

    /// What a server sends for a reply.
    fn reply(fields: &[u8]) -> Vec<u8> {
        let message = [&[0, 0, 0, 0, fields.len() as u8][..], fields].concat();
        let data = super::frame(super::DATA, 0, &message);
        [data, super::frame(super::HEADERS, super::END_STREAM, &[])].concat()
    }

    #[test]
    fn reply_is_taken_when_all_of_it_has_come() {
        let mut grpc = Grpc::new(vec![call("/path", &number(1, 300))]);
        let whole = reply(&[text(1, &[7; 30]), number(2, 1)].concat());
        for bytes in 0..whole.len() {
            let (mut received, mut grpc) = (whole[..bytes].to_vec(), Grpc::new(Vec::new()));
            assert!(!grpc.take_reply(0, &mut received).expect("a part of a reply"));
        }
        assert!(grpc.take_reply(0, &mut whole.clone()).expect("a reply"));
        let refused = reply(&text(1, &[7; 30]));
        assert!(grpc.take_reply(0, &mut refused.clone()).is_err());
    }

    #[test]
    fn every_request_is_a_stream_of_its_own() {
        let mut grpc = Grpc::new(vec![call("/path", &number(1, 300))]);
        grpc.request(0, 0);
        let sent = grpc.request(0, 0).to_vec();
        let headers = frame_bytes(&sent).expect("a frame");
        assert_eq!((sent[8], sent[headers + 8]), (3, 3));
        assert_eq!(sent[sent.len() - 3..], [8, 0xac, 2]);
    }

    #[test]
    fn only_a_second_field_is_success() {
        let message = |fields: &[u8]| [&[0; 5], fields].concat();
        assert!(has_succeeded(&message(&[10, 1, 9, 16, 1])));
        assert!(!has_succeeded(&message(&[10, 1, 9, 16, 0])));
        assert!(!has_succeeded(&message(&[10, 1, 9])));
        assert!(!has_succeeded(&[]));
    }
}
