//! A primary, a replica and a sentinel, which differ from real ones in what a failover does.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockwheel::Server;
use lockwheel_compat::wire::Wire;
use lockwheel_compat::wire::frame::Frame;

use super::handlers::{is_of_lock, pass};
use super::proxy::Proxy;

/// What a replica says about itself.
const REPLICA_ROLE: &[u8] =
    b"*5\r\n$5\r\nslave\r\n$9\r\n127.0.0.1\r\n:1\r\n$9\r\nconnected\r\n:0\r\n";
/// Its answer to a request to a lock.
const READ_ONLY: &[u8] = b"-READONLY You can't write against a read only replica.\r\n";

/// Two servers behind proxies, and a proxy that answers as a sentinel. Whether a failover is
/// correct depends on what is done before it.
pub struct Pair {
    proxies: [Proxy; 2],
    sentinel: Proxy,
    state: Arc<State>,
}

struct State {
    servers: [Server; 2],
    /// The number of the primary that the sentinel names.
    primary: AtomicUsize,
    /// Whether the other one still takes itself for the primary.
    former_answers: AtomicBool,
    /// Whether the replica gets the writes. Held while a request is executed, so that both servers
    /// execute them in the same order.
    copies: Mutex<bool>,
}

impl Pair {
    /// Starts both servers. The replica gets each write before the client gets its reply.
    ///
    /// # Panics
    /// If one of them does not start.
    pub fn start() -> Pair {
        let servers = [(); 2].map(|()| Server::start().expect("a server"));
        let addresses = [servers[0].addr(), servers[1].addr()];
        let state = Arc::new(State {
            servers,
            primary: AtomicUsize::new(0),
            former_answers: AtomicBool::new(false),
            copies: Mutex::new(true),
        });
        let proxies = [0, 1].map(|own| {
            let state = Arc::clone(&state);
            Proxy::start(addresses[own], move |words, server| state.ask(own, words, server))
        });
        let ports = [proxies[0].addr().port(), proxies[1].addr().port()];
        let named = Arc::clone(&state);
        let sentinel =
            Proxy::start(addresses[0], move |words, server| named.name(words, ports, server));
        Pair { proxies, sentinel, state }
    }

    /// The sentinel, which names the primary `mymaster`.
    pub fn sentinel(&self) -> &Proxy {
        &self.sentinel
    }

    /// From here on the replica lacks the writes of the primary.
    pub fn stop_copies(&self) {
        *self.state.copies() = false;
    }

    /// Makes the replica the primary. The former one answers no more, or goes on answering half of
    /// the clients.
    pub fn fail_over(&self, former_answers: bool) {
        // No request is executed meanwhile.
        let mut copies = self.state.copies();
        let former = self.state.primary.load(Ordering::Acquire);
        self.state.primary.store(1 - former, Ordering::Release);
        self.state.former_answers.store(former_answers, Ordering::Release);
        *copies = false;
        match former_answers {
            true => self.proxies[former].end_half(),
            false => self.proxies[former].close(),
        }
    }

    /// Makes the former primary an empty replica, which gets the writes from now on.
    ///
    /// # Panics
    /// If it has stopped.
    pub fn rejoin(&self) {
        let mut copies = self.state.copies();
        let former = 1 - self.state.primary.load(Ordering::Acquire);
        self.state.former_answers.store(false, Ordering::Release);
        self.proxies[former].close();
        self.state.servers[former].call(&["FLUSHALL"]).expect("a server that runs");
        self.proxies[former].open();
        *copies = true;
    }
}

impl State {
    fn copies(&self) -> MutexGuard<'_, bool> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request to the server of this number.
    fn ask(&self, own: usize, words: &[String], server: &mut Wire) -> io::Result<Frame> {
        let is_of_lock = is_of_lock(words);
        let asks_role = words[0].eq_ignore_ascii_case("role");
        if !is_of_lock && !asks_role {
            return pass(words, server);
        }
        let copies = self.copies();
        let is_named = self.primary.load(Ordering::Acquire) == own;
        if !is_named && !self.former_answers.load(Ordering::Acquire) {
            let answer = if asks_role { REPLICA_ROLE } else { READ_ONLY };
            return Ok(Frame::whole(answer).expect("a reply"));
        }
        let reply = pass(words, server)?;
        if is_of_lock && is_named && *copies {
            self.servers[1 - own].call_raw(words).map_err(io::Error::other)?;
        }
        Ok(reply)
    }

    /// A request to the sentinel.
    fn name(&self, words: &[String], ports: [u16; 2], server: &mut Wire) -> io::Result<Frame> {
        let primary = self.primary.load(Ordering::Acquire);
        let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
        let port = |number: usize| bulk(&ports[number].to_string());
        let host = bulk("127.0.0.1");
        let lower: Vec<_> = words.iter().map(|word| word.to_ascii_lowercase()).collect();
        let answer = match lower.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["sentinel", "get-master-addr-by-name", _] => format!("*2\r\n{host}{}", port(primary)),
            ["sentinel", "replicas", _] => {
                let (ip_name, port_name) = (bulk("ip"), bulk("port"));
                format!("*1\r\n*4\r\n{ip_name}{host}{port_name}{}", port(1 - primary))
            }
            _ => return pass(words, server),
        };
        Ok(Frame::whole(answer.as_bytes()).expect("a reply"))
    }
}
