//! Reads the files of requests that are held for them, one after the other and without the engine,
//! on a thread that exists while there are such requests.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::thread;

use lockwheel_engine::Engine;
use tracing::warn;

use super::core::Host;

impl Host {
    /// Has the files read that requests need.
    pub(super) fn read_files(&self, engine: &mut Engine) {
        if !engine.has_file_reads() || self.reads_files.swap(true, Ordering::Relaxed) {
            return;
        }
        let this = Weak::clone(&self.this);
        let thread = thread::Builder::new().name("lockwheel-files".into());
        if let Err(error) = thread.spawn(move || read_all(&this)) {
            warn!(%error, "no thread to read files: all clients wait meanwhile");
            while let Some(read) = engine.next_file_read() {
                engine.end_file_read(read.run());
            }
            self.reads_files.store(false, Ordering::Relaxed);
        }
    }
}

/// Reads until no request needs a file. Does not keep a host that has stopped.
fn read_all(host: &Weak<Host>) {
    let mut files = None;
    while let Some(host) = host.upgrade() {
        let next = host.with(|engine| {
            if let Some(files) = files.take() {
                engine.end_file_read(files);
            }
            let next = engine.next_file_read();
            host.reads_files.store(next.is_some(), Ordering::Relaxed);
            next
        });
        let Ok(Some(read)) = next else { return };
        drop(host);
        files = Some(read.run());
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use lockwheel_engine::settings::{ConfigError, Settings, SettingsReader, SettingsUser};
    use lockwheel_resp::Reply;
    use parking_lot::Mutex;

    use crate::Server;

    /// How long a step may take if the test fails.
    const STEP_MAX: Duration = Duration::from_secs(20);

    /// Files that are read when the test says so.
    struct SlowFiles {
        begun: mpsc::Sender<()>,
        may_end: Arc<Mutex<mpsc::Receiver<()>>>,
    }

    impl SettingsUser for SlowFiles {
        fn reader(&self, _: &Settings, names: &[&'static str]) -> Option<SettingsReader> {
            let name = *names.iter().find(|name| name.starts_with("tls-"))?;
            let (begun, may_end) = (self.begun.clone(), Arc::clone(&self.may_end));
            Some(Box::new(move || {
                begun.send(()).expect("a test that runs");
                let reason = "other clients wait".to_owned();
                let ended = may_end.lock().recv_timeout(STEP_MAX);
                ended.map_err(|_| ConfigError::Refused { name, reason })?;
                Ok(Box::new(|| ()))
            }))
        }
    }

    /// A connection that has sent requests.
    fn connection(server: &Server, requests: &str) -> TcpStream {
        let mut stream = TcpStream::connect(server.addr()).expect("a connection");
        stream.set_read_timeout(Some(STEP_MAX)).expect("a time limit");
        stream.write_all(requests.as_bytes()).expect("requests are sent");
        stream
    }

    fn read(stream: &mut TcpStream, expected: &str) {
        let mut bytes = vec![0; expected.len()];
        stream.read_exact(&mut bytes).expect("replies");
        assert_eq!(String::from_utf8_lossy(&bytes), expected);
    }

    #[test]
    fn other_clients_are_served_while_files_are_read() {
        let server = Server::start().expect("a server");
        let (begun, has_begun) = mpsc::channel();
        let (end, may_end) = mpsc::channel();
        let files = SlowFiles { begun, may_end: Arc::new(Mutex::new(may_end)) };
        let set = server.host.with(|engine| engine.set_settings_user(Box::new(files)));
        set.expect("an engine");
        let mut first = connection(&server, "CONFIG SET tls-cert-file a\r\nECHO after\r\n");
        has_begun.recv_timeout(STEP_MAX).expect("files are read");

        let mut other = server.client().expect("a client");
        let mut call =
            |words: &str| other.call(&words.split(' ').collect::<Vec<_>>()).expect("a reply");
        assert_eq!(call("PING"), Reply::Simple("PONG".into()));
        // One that waits for its turn is killed, and one ends by itself.
        let requests = "CLIENT SETNAME killed\r\nCONFIG SET tls-cert-file b\r\n";
        let mut killed = connection(&server, requests);
        read(&mut killed, "+OK\r\n");
        assert_eq!(call("CLIENT KILL ID 3"), Reply::Integer(1));
        assert_eq!(killed.read(&mut [0; 1]).expect("an end"), 0);
        let mut closed = connection(&server, requests);
        read(&mut closed, "+OK\r\n");
        drop(closed);
        let mut last = connection(&server, requests);
        read(&mut last, "+OK\r\n");

        end.send(()).expect("a reader");
        read(&mut first, "+OK\r\n$5\r\nafter\r\n");
        // What was read for the last one may be void, since the first one has changed settings.
        for _ in 0..4 {
            end.send(()).expect("a reader");
        }
        read(&mut last, "+OK\r\n");
        let is_set = call("CONFIG GET tls-cert-file");
        assert!(format!("{is_set:?}").contains("\"b\""), "{is_set:?}");
        assert_eq!(call("CONFIG SET tls-cert-file c"), Reply::OK);
    }
}
