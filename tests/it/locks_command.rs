//! `lockwheel locks`: the table of locks, and the screen of `--watch`.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use lockwheel::Server;
use lockwheel_tests::daemon::{Daemon, Folder, command, run};
use lockwheel_tests::process::{end_of, eventually};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[test]
fn table_marks_invisible_characters_and_names_owners() {
    let mut daemon = Daemon::start(&["--port", "0"]);
    let port = daemon.wait_for_port();
    let mut wire = daemon.connect(port);
    wire.send(&["SET", "lock:\u{200b}a\u{202e}\x1b[2J", "token", "NX"]);
    assert_eq!(wire.read_text().trim_end(), "+OK");
    assert!(wire.ask("LOCK.ACQUIRE lock:b me TTL 600000").starts_with('*'));
    let output = run(&["locks", "-p", &port.to_string(), "*a*"]);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(table.contains("\nlock:\\u{200b}a\\u{202e}\\u{1b}[2J  0 "), "{table}");
    assert!(!table.contains(['\u{200b}', '\u{202e}', '\x1b']), "{table:?}");
    let output = run(&["locks", "-p", &port.to_string(), "lock:b"]);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = table.lines().nth(1).unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words.get(..4), Some(&["lock:b", "0", "native-lock", "me"][..]), "{table}");
}

/// The program on a terminal of its own.
struct Screen {
    child: Child,
    keys: File,
    output: Arc<Mutex<String>>,
    reader: thread::JoinHandle<()>,
}

impl Screen {
    fn open(arguments: &[&str]) -> Screen {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let terminal = openpty(&size, None).expect("a terminal");
        let mut command = command(&Folder::new(), arguments);
        let side = || Stdio::from(terminal.slave.try_clone().expect("a descriptor"));
        command.current_dir("/").stdin(side()).stdout(side()).stderr(side());
        let child = command.spawn().expect("the program runs");
        let keys = File::from(terminal.master);
        let mut screen = keys.try_clone().expect("a descriptor");
        let output = Arc::new(Mutex::new(String::new()));
        let shared = Arc::clone(&output);
        // It ends when no program has the terminal any more.
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = screen.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..length]);
                shared.lock().expect("no panic").push_str(&text);
            }
        });
        Screen { child, keys, output, reader }
    }

    fn wait_for(&self, text: &str) {
        eventually(text, || self.output.lock().expect("no panic").contains(text));
    }

    /// The exit status, and all that was shown.
    fn end(mut self) -> (ExitStatus, String) {
        let status = end_of(&mut self.child, "its end");
        self.reader.join().expect("no panic");
        let output = self.output.lock().expect("no panic").clone();
        (status, output)
    }
}

/// The terminal shows its cursor and what it showed before.
#[track_caller]
fn check_restored(output: &str) {
    for (begin, end) in [("\x1b[?1049h", "\x1b[?1049l"), ("\x1b[?25l", "\x1b[?25h")] {
        let (begin, end) = (output.rfind(begin), output.rfind(end));
        assert!(begin.is_some() && begin < end, "{output:?}");
    }
}

#[test]
fn screen_shows_a_lock_and_its_details_until_a_key_ends_it() {
    let server = Server::builder().start().expect("a server");
    let port = server.addr().port().to_string();
    server.call(&["LOCK.ACQUIRE", "order-17", "me-22", "TTL", "600000"]).expect("a lock");
    let mut screen = Screen::open(&["locks", "-p", &port, "--watch"]);
    screen.wait_for("order-17");
    server.call(&["LOCK.ACQUIRE", "order-18", "me-22", "TTL", "600000"]).expect("a lock");
    screen.wait_for("order-18");
    screen.keys.write_all(b"\r").expect("a terminal");
    screen.wait_for("fencing");
    screen.keys.write_all(b"q").expect("a terminal");
    let (status, output) = screen.end();
    assert!(status.success(), "{output:?}");
    check_restored(&output);
}

#[test]
fn screen_outlives_the_server_and_restores_the_terminal_at_a_signal() {
    let server = Server::builder().start().expect("a server");
    let port = server.addr().port().to_string();
    server.call(&["LOCK.ACQUIRE", "order-17", "me-22", "TTL", "600000"]).expect("a lock");
    let screen = Screen::open(&["locks", "-p", &port, "--watch"]);
    screen.wait_for("order-17");
    server.stop();
    screen.wait_for("connection to the locks");
    let id = Pid::from_raw(screen.child.id().cast_signed());
    kill(id, Signal::SIGTERM).expect("it runs");
    let (status, output) = screen.end();
    assert_eq!(status.code(), Some(128 + Signal::SIGTERM as i32), "{output:?}");
    check_restored(&output);
    assert!(!output.contains("is held"), "{output:?}");
}

#[test]
fn other_servers_cannot_show_their_locks() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port().to_string();
    let server = thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().expect("a client");
            let _ = stream.read(&mut [0; 1000]).expect("a command");
            let error = b"-ERR unknown command 'LOCKWHEEL', with args beginning with: 'LOCKS' \r\n";
            stream.write_all(error).expect("a client");
        }
    });
    let text = "This server cannot show which clients hold locks and which wait: it has no command \
                LOCKWHEEL, as only Lockwheel has";
    let output = run(&["locks", "-p", &port]);
    assert_eq!(String::from_utf8_lossy(&output.stderr).trim_end(), text);
    assert_eq!(output.status.code(), Some(1));
    // It opens no screen for that.
    let (status, output) = Screen::open(&["locks", "-p", &port, "--watch"]).end();
    assert_eq!((status.code(), output.trim_end()), (Some(1), text));
    server.join().expect("no panic");
}
