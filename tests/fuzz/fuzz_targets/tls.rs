//! Bytes to the server's side of a TLS connection: at its beginning, within the handshake of a
//! client, and after it. Checks that nothing panics, that what the client has sent arrives, and
//! that the server's answers stay short.

use std::io::{Read, Write};
use std::sync::{Arc, LazyLock};

use arbitrary::Arbitrary;
use lockwheel::tls::state::TlsState;
use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};

/// Most bytes that the server receives at once, as from a socket.
const RECEIVED_BYTES: usize = 16 << 10;
/// Most bytes of the server's answer to what it receives at once: the handshake and alerts.
const ANSWER_BYTES_MAX: usize = 64 << 10;

#[derive(Arbitrary, Debug)]
pub(crate) enum Step<'a> {
    /// The server receives these bytes.
    Raw(&'a [u8]),
    /// It receives the next bytes of the client, in pieces of this length.
    Client { piece: u16 },
    /// It receives them with one byte changed.
    Damaged { at: u16, by: u8 },
    /// The client sends this text.
    Send(&'a [u8]),
    /// The client ends the connection.
    Close,
}

static CONFIGS: LazyLock<(Arc<ServerConfig>, Arc<ClientConfig>)> = LazyLock::new(|| {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone()).expect("a certificate");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(ring::default_provider());
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("supported versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .expect("a certificate");
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("supported versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    (Arc::new(server), Arc::new(client))
});

struct Session {
    server: TlsState,
    client: ClientConnection,
    /// The text that the client has sent.
    sent: Vec<u8>,
    /// The text that the server has received.
    arrived: Vec<u8>,
    /// Whether all bytes so far were those of the client.
    is_clean: bool,
    has_failed: bool,
}

pub(crate) fn check((handshakes, steps): (u8, Vec<Step>)) {
    let (server, client) = &*CONFIGS;
    let name = ServerName::try_from("localhost").expect("a name");
    let mut session = Session {
        server: TlsState::new(Arc::clone(server)).expect("a server"),
        client: ClientConnection::new(Arc::clone(client), name).expect("a client"),
        sent: Vec::new(),
        arrived: Vec::new(),
        is_clean: true,
        has_failed: false,
    };
    // Mostly, the interesting part comes after the handshake.
    if handshakes % 4 != 0 {
        while session.server.is_handshaking() {
            session.receive_of_client(usize::MAX);
        }
    }
    for step in &steps {
        session.take(step);
        if session.has_failed {
            break;
        }
    }
    if session.is_clean && !session.server.is_handshaking() {
        session.receive_of_client(usize::MAX);
        assert!(session.arrived == session.sent, "what was sent has arrived");
    }
}

impl Session {
    fn take(&mut self, step: &Step) {
        match step {
            Step::Raw(bytes) => {
                self.is_clean &= bytes.is_empty();
                self.receive(bytes);
            }
            Step::Client { piece } => self.receive_of_client(usize::from(*piece).max(1)),
            Step::Damaged { at, by } => {
                let mut bytes = self.bytes_of_client();
                if bytes.is_empty() {
                    return;
                }
                let at = usize::from(*at) % bytes.len();
                bytes[at] ^= by;
                self.is_clean &= *by == 0;
                self.receive(&bytes);
            }
            Step::Send(bytes) => {
                if !self.client.is_handshaking() && self.client.writer().write_all(bytes).is_ok() {
                    self.sent.extend_from_slice(bytes);
                }
            }
            Step::Close => {
                // What the client sends afterwards does not arrive.
                self.is_clean = false;
                self.client.send_close_notify();
            }
        }
    }

    fn bytes_of_client(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut bytes).expect("a vector takes all");
        }
        bytes
    }

    fn receive_of_client(&mut self, piece: usize) {
        let bytes = self.bytes_of_client();
        bytes.chunks(piece).for_each(|bytes| self.receive(bytes));
    }

    /// Lets the server receive bytes, take the input in small parts, and answer the client.
    fn receive(&mut self, bytes: &[u8]) {
        for bytes in bytes.chunks(RECEIVED_BYTES) {
            let mut into = [0; 1000];
            let mut outcome = self.server.receive(bytes, &mut into);
            loop {
                match outcome {
                    Ok(count) => self.arrived.extend_from_slice(&into[..count]),
                    Err(_) => self.has_failed = true,
                }
                if self.has_failed || !self.server.has_input() {
                    break;
                }
                outcome = self.server.take_input(&mut into);
            }
            let mut answer = Vec::new();
            while self.server.wants_write() {
                self.server.write_to(&mut answer).expect("a vector takes all");
            }
            assert!(answer.len() <= ANSWER_BYTES_MAX);
            let mut rest = &answer[..];
            while self.client.read_tls(&mut rest).is_ok_and(|count| count > 0) {
                if self.client.process_new_packets().is_err() {
                    self.has_failed = true;
                }
                let _ = self.client.reader().read(&mut into);
            }
            if self.has_failed {
                assert!(!self.is_clean, "a client's own bytes are valid");
                return;
            }
        }
    }
}
