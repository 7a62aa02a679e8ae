//! Connections to the TLS port that are not clients: unfinished and failed handshakes.

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};

use lockwheel::Server;
use lockwheel_tests::certificates::{Certificates, Validity};
use lockwheel_tests::daemon::Daemon;
use lockwheel_tests::frame::show;
use lockwheel_tests::process::{alone, descriptors, eventually};
use lockwheel_tests::redis_server::free_port;
use lockwheel_tests::wire::{Wire, open_tcp, read_to_end};

/// The first bytes of a handshake: a record that is announced and does not come.
const BEGINNING: &[u8] = &[0x16, 3, 1, 2, 0, 1, 0];
/// The alerts of TLS, after the header of a fatal one.
const ALERT: &[u8] = &[0x15, 3, 3, 0, 2, 2];

fn connections(server: &Server) -> usize {
    let clients = server.call(&["CLIENT", "LIST"]).expect("a list");
    format!("{clients:?}").matches(" addr=127").count()
}

#[test]
fn unfinished_handshakes_are_no_clients_and_end() {
    const HALF_OPEN: usize = 300;
    alone("tls_handshakes::unfinished_handshakes_are_no_clients_and_end", || {
        let certificates = Certificates::new();
        for threads in ["1", "2"] {
            let server = certificates.server().config("io-threads", threads);
            let server = server.config("maxclients", "5").config("tls-handshake-timeout", "1");
            let server = server.start().expect("a server");
            let address = server.tls_addr().expect("an address");
            // Servers that have served a client have opened all else.
            let firsts = [(); 2].map(|()| Wire::connect_tls(address, &certificates.client()));
            let before = descriptors();
            let mut half_open = Vec::new();
            for at in 0..HALF_OPEN {
                let mut stream = open_tcp(address);
                if at % 2 == 0 {
                    stream.write_all(BEGINNING).expect("it is taken");
                }
                half_open.push(stream);
            }
            // Clients are served meanwhile, in all places of `maxclients`.
            let mut clients = [(); 2].map(|()| Wire::connect_tls(address, &certificates.client()));
            assert!(clients.iter_mut().all(|client| client.call(&["PING"]) == b"+PONG\r\n"));
            assert_eq!(connections(&server), 4);
            for stream in &half_open {
                assert_eq!(read_to_end(stream), b"");
            }
            drop(half_open);
            drop(clients);
            eventually("all sockets to be closed", || descriptors() == before);
            drop(firsts);
        }
    });
}

#[test]
fn peer_that_closes_early_leaves_nothing() {
    alone("tls_handshakes::peer_that_closes_early_leaves_nothing", || {
        let certificates = Certificates::new();
        let server = certificates.server().start().expect("a server");
        // A server that has served a client has opened all else.
        let _client = Wire::connect_tls(server.addr(), &certificates.client());
        let before = descriptors();
        for bytes in [&b""[..], BEGINNING] {
            let mut stream = open_tcp(server.addr());
            stream.write_all(bytes).expect("it is taken");
            stream.shutdown(Shutdown::Write).expect("it is shut down");
            assert_eq!(read_to_end(&stream), b"");
        }
        eventually("all sockets to be closed", || descriptors() == before);
    });
}

/// With one more than the limit, the oldest is closed.
#[test]
fn number_of_unfinished_handshakes_is_limited() {
    const LIMIT: usize = 1024;
    let certificates = Certificates::new();
    let mut options = certificates.options(free_port());
    options.extend(["--tls-auth-clients", "no"].map(String::from));
    let mut daemon = Daemon::start(&options);
    let address = SocketAddr::from(([127, 0, 0, 1], daemon.wait_for_port()));
    let half_open: Vec<TcpStream> = (0..LIMIT + 2).map(|_| open_tcp(address)).collect();
    daemon.wait_for("too many unfinished handshakes");
    daemon.wait_for("too many unfinished handshakes");
    assert_eq!((read_to_end(&half_open[0]), read_to_end(&half_open[1])), (vec![], vec![]));
    let mut client = Wire::connect_tls(address, &certificates.client());
    assert_eq!(client.call(&["PING"]), b"+PONG\r\n");
    let mut last = half_open.last().expect("it is there");
    last.write_all(b"PING\r\n").expect("it is taken");
    assert!(read_to_end(last).starts_with(ALERT), "it was open until now");
}

/// The allocator keeps pages for later, so the memory that the server has allocated is compared.
#[test]
fn unfinished_handshakes_leave_no_memory() {
    const ROUNDS: usize = 6;
    const CONNECTIONS: usize = 500;
    const BYTES_MAX_PER_CONNECTION: usize = 300;
    let certificates = Certificates::new();
    let mut options = certificates.options(free_port());
    options.extend(["--tls-auth-clients", "no"].map(String::from));
    let mut daemon = Daemon::start(&options);
    let address = SocketAddr::from(([127, 0, 0, 1], daemon.wait_for_port()));
    let mut client = Wire::connect_tls(address, &certificates.client());
    // The log is not read.
    assert_eq!(client.call(&["CONFIG", "SET", "loglevel", "nothing"]), b"+OK\r\n");
    let mut allocated = || {
        let info = show(&client.call(&["INFO", "memory"]));
        let field = info.split("allocator_allocated:").nth(1).and_then(|it| it.split('\\').next());
        field.and_then(|it| it.parse::<usize>().ok()).expect("the field of the allocator")
    };
    let before = allocated();
    for _ in 0..ROUNDS {
        let connect = |_| open_tcp(address);
        let half_open: Vec<TcpStream> = (0..CONNECTIONS).map(connect).collect();
        for mut stream in half_open {
            stream.write_all(BEGINNING).expect("it is taken");
        }
    }
    // Connections are accepted in their order.
    let _last = Wire::connect_tls(address, &certificates.client());
    let limit = before + ROUNDS * CONNECTIONS * BYTES_MAX_PER_CONNECTION;
    eventually("the memory of all handshakes to be free", || allocated() < limit);
}

#[test]
fn failed_handshakes_are_logged() {
    let (certificates, other) = (Certificates::new(), Certificates::new());
    certificates.issue("expired", Validity::Past);
    certificates.write_version_1("version-1");
    let mut daemon = Daemon::start(&certificates.options(free_port()));
    let address = SocketAddr::from(([127, 0, 0, 1], daemon.wait_for_port()));
    let failed = "# Error accepting a client connection: ";
    // A client that does not use TLS.
    let mut stream = open_tcp(address);
    stream.write_all(b"PING\r\n").expect("it is taken");
    assert!(read_to_end(&stream).starts_with(ALERT));
    let place = format!(" (addr={} laddr={address})", stream.local_addr().expect("an address"));
    let logged = daemon.wait_for(failed);
    assert!(logged.contains("InvalidContentType") && logged.ends_with(place.trim()), "{logged}");
    for (client, reason) in [
        (certificates.client(), "peer sent no certificates"),
        (certificates.client_as("expired"), "certificate expired"),
        (certificates.client_as("version-1"), "it has X.509 version 1, and version 3 is required"),
        (other.client(), "received fatal alert: UnknownCA"),
    ] {
        assert!(Wire::try_connect_tls(address, &client).is_err(), "{reason}");
        let logged = daemon.wait_for(failed);
        assert!(logged.contains(reason), "{logged}");
    }
}

/// As in Redis: the bytes are no request, but may be followed by one.
#[test]
fn tls_at_the_plain_port_is_an_unknown_command() {
    let server = Server::start().expect("a server");
    let mut wire = Wire::connect(server.addr(), 2);
    wire.send_bytes(&[BEGINNING, b"\r\nPING\r\n"].concat());
    assert!(wire.read().starts_with(b"-ERR unknown command"));
    assert_eq!(wire.read(), b"+PONG\r\n");
}

#[test]
fn refusal_is_sent_with_tls() {
    let certificates = Certificates::new();
    let server = certificates.server().config("maxclients", "1").start().expect("a server");
    let address = server.tls_addr().expect("an address");
    let first = Wire::connect_tls(address, &certificates.client());
    let mut second = Wire::open_tls(address, &certificates.client());
    assert_eq!(second.read(), b"-ERR max number of clients reached\r\n");
    drop(first);
}
