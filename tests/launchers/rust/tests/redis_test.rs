//! redis-test: its `RedisServer` starts our program, which an environment variable selects.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use redis::{Client, Commands, Connection, ConnectionAddr, Script};
use redis_test::server::RedisServer;
use serde_json::json;

/// The time-out for connections.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

const COMPARE_AND_DELETE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
    return redis.call('del', KEYS[1]) else return 0 end";

#[test]
fn serves_on_its_port() {
    behaviour("starts on the port asked for, and serves", || {
        let server = RedisServer::new();
        let (host, port) = server.host_and_port().expect("an address");
        assert_eq!(host, "127.0.0.1");
        assert_eq!(server.client_addr(), &ConnectionAddr::Tcp(host.into(), port));
        assert_eq!(use_it(&mut connect(&server)), server.process.id());
        // The first client may be served before the line is written.
        let begin = Instant::now();
        let log = || server.log_file_contents().expect("a log");
        while !log().contains("Ready to accept connections") {
            assert!(begin.elapsed() < CONNECT_TIMEOUT, "{}", log());
            std::thread::yield_now();
        }
    });
}

#[test]
fn serves_on_a_unix_socket() {
    behaviour("starts on a unix socket alone, and serves", || {
        let name = format!("redis-test-{}.sock", std::process::id());
        let server = start(ConnectionAddr::Unix(std::env::temp_dir().join(name)), None);
        assert_eq!(use_it(&mut connect(&server)), server.process.id());
    });
}

#[test]
fn reads_a_configuration_file() {
    behaviour("takes a file before its options", || {
        let address = RedisServer::new().client_addr().clone();
        let file = std::env::temp_dir().join(format!("redis-test-{}.conf", std::process::id()));
        fs::write(&file, "maxmemory 64mb\ntimeout 77\n").expect("a file");
        let server = start(address, Some(&file));
        let timeout: Vec<String> = redis::cmd("CONFIG")
            .arg(&["GET", "timeout"])
            .query(&mut connect(&server))
            .expect("a setting");
        assert_eq!(timeout, ["timeout", "77"]);
        fs::remove_file(&file).expect("the file");
    });
}

#[test]
fn refuses_a_port_in_use() {
    behaviour("refuses a port that is taken, and ends with status 1", || {
        let server = RedisServer::new();
        let mut connection = connect(&server);
        let mut second = start(server.client_addr().clone(), None);
        assert_eq!(second.process.wait().expect("a status").code(), Some(1));
        let log = second.log_file_contents().expect("a log");
        assert!(log.contains("Address already in use"), "{log}");
        use_it(&mut connection);
    });
}

#[test]
fn leaves_no_process() {
    behaviour("is killed, and leaves no process", || {
        let mut server = RedisServer::new();
        use_it(&mut connect(&server));
        server.stop();
        assert!(!Path::new(&format!("/proc/{}", server.process.id())).exists());
    });
}

#[test]
fn ends_with_status_zero() {
    behaviour("ends with status 0 by SHUTDOWN and by SIGTERM", || {
        let mut server = RedisServer::new();
        let mut connection = connect(&server);
        let reply = redis::cmd("SHUTDOWN").arg("NOSAVE").query::<()>(&mut connection);
        assert!(reply.is_err_and(|error| error.is_connection_dropped()));
        assert_eq!(server.process.wait().expect("a status").code(), Some(0));
        let mut server = RedisServer::new();
        use_it(&mut connect(&server));
        terminate(&server.process);
        assert_eq!(server.process.wait().expect("a status").code(), Some(0));
    });
}

#[test]
fn restarts_on_the_same_port() {
    behaviour("is killed and started again on the same port", || {
        let address = RedisServer::new().client_addr().clone();
        for _ in 0..3 {
            let server = start(address.clone(), None);
            assert_eq!(use_it(&mut connect(&server)), server.process.id());
        }
    });
}

/// Starts a server at this address, without waiting until it is ready.
fn start(address: ConnectionAddr, file: Option<&Path>) -> RedisServer {
    let spawn = |command: &mut Command| command.spawn().expect("it runs");
    RedisServer::new_with_addr_tls_modules_and_spawner(address, file, None, false, None, &[], spawn)
}

/// Connects as soon as the server is ready; redis-test itself does not wait for that.
fn connect(server: &RedisServer) -> Connection {
    let client = Client::open(server.connection_info()).expect("an address");
    let begin = Instant::now();
    loop {
        match client.get_connection() {
            Ok(connection) => return connection,
            Err(error) => assert!(begin.elapsed() < CONNECT_TIMEOUT, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Acquires and releases a lock. Returns the server's process id.
fn use_it(connection: &mut Connection) -> u32 {
    let mut take = |token: &str| {
        let lease = redis::SetOptions::default()
            .conditional_set(redis::ExistenceCheck::NX)
            .with_expiration(redis::SetExpiry::PX(30_000));
        connection.set_options::<_, _, bool>("lock", token, lease).expect("a reply")
    };
    assert!(take("token"));
    assert!(!take("other"));
    assert_eq!(connection.get::<_, String>("lock").expect("a value"), "token");
    let script = Script::new(COMPARE_AND_DELETE);
    let mut release =
        |token: &str| script.key("lock").arg(token).invoke::<i64>(connection).expect("a reply");
    assert_eq!(release("other"), 0);
    assert_eq!(release("token"), 1);
    let info: redis::InfoDict = redis::cmd("INFO").arg("server").query(connection).expect("info");
    info.get("process_id").expect("a number")
}

fn terminate(process: &Child) {
    let sent = Command::new("kill").args(["-TERM", &process.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

/// Runs a test and reports its outcome.
fn behaviour(sentence: &str, test: impl FnOnce()) {
    let outcome = panic::catch_unwind(AssertUnwindSafe(test));
    if let Some(path) = std::env::var_os("SUITE_REPORT") {
        let reason = outcome.as_ref().err().map(|cause| {
            let text = cause.downcast_ref::<String>().map(String::as_str);
            text.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("it panicked")
        });
        let line = json!({
            "library": "redis-test",
            "version": version(),
            "behaviour": sentence,
            "outcome": if reason.is_none() { "passed" } else { "failed" },
            "reason": reason.unwrap_or_default(),
        });
        let file = OpenOptions::new().create(true).append(true).open(path);
        writeln!(file.expect("the report"), "{line}").expect("a line of the report");
    }
    if let Err(cause) = outcome {
        panic::resume_unwind(cause);
    }
}

/// The version of redis-test in this build.
fn version() -> &'static str {
    let lock_file = include_str!("../Cargo.lock");
    let (_, entry) = lock_file.split_once("name = \"redis-test\"\nversion = \"").expect("an entry");
    entry.split('"').next().unwrap_or_default()
}
