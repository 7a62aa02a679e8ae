//! The lock objects of the crate `lockwheel-locks`.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, stdin};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use lockwheel::{Fault, Reply, Requests, Server};
use lockwheel_locks::{Guard, Lock, LockError, Options, blocking};
use redis::{Client, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{sleep, timeout};

/// Lease that does not end by the clock of a process, however slow it is.
const TTL: Duration = Duration::from_secs(600);
const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

fn server() -> Server {
    Server::builder().frozen_clock().for_tests().start().expect("a server")
}

fn client(server: &Server) -> Client {
    Client::open(server.url()).expect("a URL")
}

/// Options of a lock that is not renewed.
fn options() -> Options {
    Options::new(TTL).renew_every(Duration::ZERO)
}

fn renewed() -> Options {
    Options::new(TTL).renew_every(MILLISECOND)
}

fn lock_of(server: &Server, options: Options) -> Lock {
    Lock::new(&client(server), "lock", options)
}

async fn held(server: &Server, options: Options) -> Guard {
    lock_of(server, options).acquire().await.expect("it is free")
}

fn call(server: &Server, words: &[&str]) -> Reply {
    server.call(words).expect("a reply")
}

/// A field of a map, which may be an array of names and values.
fn field(reply: Reply, name: &str) -> Option<Reply> {
    let pairs = match reply {
        Reply::Map(pairs) => pairs,
        Reply::Array(flat) => {
            flat.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
        }
        _ => return None,
    };
    pairs.into_iter().find(|(key, _)| *key == Reply::bulk(name)).map(|(_, value)| value)
}

fn list(server: &Server, name: &str) -> Vec<Reply> {
    match field(call(server, &["LOCK.INFO", "lock"]), name) {
        Some(Reply::Array(items)) => items,
        _ => Vec::new(),
    }
}

/// A field of the only owner of the lock.
fn shown(server: &Server, name: &str) -> Option<Reply> {
    let [holder] = list(server, "holders").try_into().ok()?;
    field(holder, name)
}

fn shown_number(server: &Server, name: &str) -> Option<i64> {
    match shown(server, name)? {
        Reply::Integer(number) => Some(number),
        _ => None,
    }
}

fn queue(server: &Server) -> usize {
    list(server, "queue").len()
}

/// Calls the condition repeatedly until it is true.
async fn until(condition: impl Fn() -> bool) {
    let all = async {
        while !condition() {
            yield_now().await;
        }
    };
    timeout(MINUTE, all).await.expect("the condition did not become true");
}

/// Waits for the lock in another task.
async fn waiting(server: &Server, place: usize) -> JoinHandle<Result<Guard, LockError>> {
    let lock = lock_of(server, options().wait(MINUTE));
    let waiter = tokio::spawn(async move { lock.acquire().await });
    until(|| queue(server) == place).await;
    waiter
}

async fn wait_for_renewal(server: &Server) {
    server.advance(TTL - SECOND).expect("a server");
    until(|| shown_number(server, "ttl") == Some(600_000)).await;
}

fn is_lost<T>(result: Result<T, LockError>) -> bool {
    matches!(result, Err(LockError::Lost { .. }))
}

fn is_refused<T>(result: Result<T, LockError>) -> bool {
    matches!(result, Err(LockError::NotAcquired { .. }))
}

#[tokio::test]
async fn a_lock_is_held_until_it_is_released() {
    let server = server();
    let lock = lock_of(&server, options().meta("job 7"));
    let guard = lock.acquire().await.expect("it is free");
    assert_eq!(shown(&server, "owner"), Some(Reply::bulk(lock.owner())));
    assert_eq!(shown_number(&server, "token"), i64::try_from(guard.token()).ok());
    assert_eq!(shown(&server, "meta"), Some(Reply::bulk("job 7")));
    assert!(lock.owner().contains(&format!(":{}:", std::process::id())));
    assert!(matches!(lock.acquire().await, Err(LockError::HeldAlready)));

    let another = lock_of(&server, options());
    assert_ne!(another.owner(), lock.owner());
    let error = another.acquire().await.expect_err("it is held").to_string();
    let state = "'lock' was not acquired (refused): owners 1, lease 600000 ms, queue 0";
    assert!(error.contains(state), "{error}");

    let token = guard.token();
    guard.release().await.expect("it is held");
    server.journal().assert_no_lock_held();
    assert!(lock.acquire().await.expect("it is free").token() > token);
}

#[tokio::test]
async fn a_dropped_guard_releases_the_lock() {
    let server = server();
    let lock = lock_of(&server, options());
    drop(lock.acquire().await.expect("it is free"));
    until(|| list(&server, "holders").is_empty()).await;
    lock.acquire().await.expect("it is free").release().await.expect("it is held");
}

#[tokio::test]
async fn owners_share_a_lock_and_permits() {
    let server = server();
    let _both = (held(&server, options().shared()).await, held(&server, options().shared()).await);
    assert!(is_refused(lock_of(&server, options()).acquire().await));
    let two = || Lock::new(&client(&server), "jobs", options().permits(2, 3));
    let _held = two().acquire().await.expect("it is free");
    assert!(is_refused(two().acquire().await));
}

#[tokio::test]
async fn locks_of_one_owner_are_held_at_the_same_time() {
    let server = server();
    let first = held(&server, options().owner("me")).await;
    let second = held(&server, options().owner("me")).await;
    assert_eq!(first.token(), second.token());
    first.release().await.expect("it is held");
    assert_eq!(shown_number(&server, "count"), Some(1));
    second.release().await.expect("it is held");
    server.journal().assert_no_lock_held();
}

/// The release of another object with the same owner must not be lost.
#[tokio::test]
async fn a_release_is_sent_again_only_with_an_owner_of_its_own() {
    for (options, tries) in [(options(), 2), (options().owner("me"), 1)] {
        let server = server();
        let guard = held(&server, options).await;
        let requests = Requests::any().command("lock.release");
        let fault = server.faults().add(Fault::Close, requests).expect("a rule");
        assert!(matches!(guard.release().await, Err(LockError::Redis(_))));
        assert_eq!(fault.fired().expect("a rule"), tries);
    }
}

#[tokio::test]
async fn waiters_get_a_lock_in_order() {
    let server = server();
    let mut holder = held(&server, options()).await;
    let mut waiters = Vec::new();
    for place in 1..=3 {
        waiters.push(waiting(&server, place).await);
    }
    for waiter in waiters {
        holder.release().await.expect("it is held");
        holder = waiter.await.expect("a task").expect("it is granted");
        assert_eq!(shown_number(&server, "token"), i64::try_from(holder.token()).ok());
    }
}

#[tokio::test]
async fn a_wait_ends_by_the_servers_clock_or_with_its_future() {
    let server = server();
    let _held = held(&server, options()).await;
    let waiter = waiting(&server, 1).await;
    server.advance(MINUTE - MILLISECOND).expect("a server");
    assert_eq!(queue(&server), 1);
    server.advance(MILLISECOND).expect("a server");
    assert!(is_refused(waiter.await.expect("a task")));

    waiting(&server, 1).await.abort();
    until(|| queue(&server) == 0).await;
}

#[tokio::test]
async fn a_lease_is_renewed() {
    let server = server();
    let guard = held(&server, renewed()).await;
    for _ in 0..3 {
        wait_for_renewal(&server).await;
    }
    guard.release().await.expect("it is held");
}

#[tokio::test]
async fn a_lock_renews_itself_by_default() {
    let short = Duration::from_millis(300);
    let bound = |grace| Options::new(TTL).bound_with_grace(grace);
    for options in [Options::new(short), bound(short), bound(Duration::ZERO)] {
        let server = server();
        let requests = Requests::any().command("lock.renew");
        // A rule without an effect shows when the request has arrived.
        let renewal = server.faults().add(Fault::FlushScripts, requests).expect("a rule");
        let _held = held(&server, options).await;
        until(|| renewal.fired().expect("a rule") > 0).await;
    }
}

#[tokio::test]
async fn a_lease_is_renewed_after_a_long_wait() {
    let server = server();
    let holder = held(&server, options()).await;
    // Every wait takes longer than a third of the trust.
    let lock = lock_of(&server, options().bound_with_grace(Duration::ZERO).wait(MINUTE));
    let requests = Requests::any().command("lock.renew");
    let renewal = server.faults().add(Fault::FlushScripts, requests).expect("a rule");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    until(|| queue(&server) == 1).await;
    holder.release().await.expect("it is held");
    waiter.await.expect("a task").expect("it is granted").release().await.expect("it is held");
    assert_eq!(renewal.fired().expect("a rule"), 1);
}

#[tokio::test]
async fn a_lease_is_renewed_by_hand() {
    let server = server();
    let guard = held(&server, options()).await;
    server.advance(TTL - SECOND).expect("a server");
    guard.renew().await.expect("it is held");
    assert_eq!(shown_number(&server, "ttl"), Some(600_000));
    server.advance(TTL).expect("a server");
    assert!(guard.is_held());
    assert!(is_lost(guard.renew().await));
    assert!(!guard.is_held());
    assert!(is_lost(guard.renew().await));
    assert!(is_lost(guard.release().await));
}

#[tokio::test]
async fn a_lost_lock_is_noticed() {
    let lose: [fn(&Server, &str); 3] = [
        |server, _| server.advance(TTL).expect("a server"),
        |server, _| drop(call(server, &["LOCK.FORCE", "lock"])),
        // Another grant to the same owner is not this one.
        |server, owner| {
            call(server, &["LOCK.FORCE", "lock"]);
            call(server, &["LOCK.ACQUIRE", "lock", owner, "TTL", "600000"]);
        },
    ];
    for lose in lose {
        let server = server();
        let (notify, notices) = mpsc::channel();
        let lock = lock_of(&server, renewed().on_lost(move || notify.send(()).expect("a test")));
        let guard = lock.acquire().await.expect("it is free");
        lose(&server, lock.owner());
        guard.lost().await;
        notices.recv().expect("a call");
        assert!(!guard.is_held());
        let token = guard.token();
        assert!(is_lost(guard.release().await));
        assert!(notices.try_recv().is_err(), "it was notified twice");
        call(&server, &["LOCK.FORCE", "lock"]);
        assert!(lock.acquire().await.expect("it is free").token() > token);
    }
}

#[tokio::test]
async fn a_loss_is_noticed_at_the_release() {
    let server = server();
    let (notify, notices) = mpsc::channel();
    let on_lost = move || notify.send(()).expect("a test");
    let guard = held(&server, options().on_lost(on_lost)).await;
    call(&server, &["LOCK.FORCE", "lock"]);
    assert!(is_lost(guard.release().await));
    notices.recv().expect("a call");
}

#[tokio::test]
async fn a_lock_of_an_unreachable_server_is_lost_with_its_lease() {
    for fault in [Fault::Close, Fault::Stall] {
        let server = server();
        let lease = Options::new(Duration::from_millis(300)).renew_every(MILLISECOND);
        let guard = held(&server, lease).await;
        let id = shown_number(&server, "client").expect("a client");
        server.faults().add(Fault::Refuse, Requests::any()).expect("a rule");
        let requests = Requests::any().client_id(id.unsigned_abs());
        server.faults().add(fault, requests).expect("a rule");
        guard.lost().await;
        assert!(shown(&server, "owner").is_some(), "the clock of the server has moved");
    }
}

#[tokio::test]
async fn a_lock_that_is_not_renewed_is_lost_by_the_clock_of_its_process() {
    let short = Duration::from_millis(500);
    for options in [Options::new(short), Options::new(TTL).bound_with_grace(short)] {
        let server = server();
        let guard = held(&server, options.renew_every(Duration::ZERO)).await;
        guard.lost().await;
        assert!(!guard.is_held());
        assert!(shown(&server, "owner").is_some(), "the clock of the server has moved");
    }
}

/// Shows L17, L18.
#[tokio::test]
async fn a_lock_counts_from_when_its_request_was_sent() {
    let server = server();
    let grace = 2 * SECOND;
    let guard = held(&server, options().bound_with_grace(grace)).await;
    let gate = server.faults().gate(Requests::any().command("lock.renew")).expect("a gate");
    let delay = async {
        until(|| gate.fired().expect("a gate") > 0).await;
        let sent = Instant::now(); // Or before.
        sleep(grace / 3).await;
        gate.open().expect("a server");
        sent
    };
    let (_, sent) = tokio::join!(guard.renew(), delay);
    let mut now = sent;
    while guard.is_held() {
        assert!(now - sent < grace - grace / 20, "it counts from the reply");
        now = Instant::now();
    }
}

#[tokio::test]
async fn a_failed_renewal_is_tried_again() {
    for fault in [Fault::Close, Fault::LoseAndClose, Fault::Error("ERR not now".to_owned())] {
        let server = server();
        let guard = held(&server, renewed()).await;
        let requests = Requests::any().command("lock.renew").times(3);
        let rule = server.faults().add(fault, requests).expect("a rule");
        until(|| rule.fired().expect("a rule") == 3).await;
        wait_for_renewal(&server).await;
        guard.release().await.expect("it is held");
    }
}

#[tokio::test]
async fn a_bound_lock_survives_its_connection() {
    let server = server();
    let guard = held(&server, renewed().bound_with_grace(MINUTE)).await;
    let first = shown_number(&server, "client").expect("a client");
    call(&server, &["CLIENT", "KILL", "ID", &first.to_string()]);
    until(|| shown_number(&server, "client").is_some_and(|id| id != first && id != 0)).await;
    server.advance(MINUTE).expect("a server");
    assert!(shown(&server, "owner").is_some());
    guard.release().await.expect("it is held");
}

#[tokio::test]
async fn a_lock_is_held_over_a_unix_socket() {
    let socket = env::temp_dir().join(format!("lockwheel-{}.socket", std::process::id()));
    let path = socket.to_str().expect("UTF-8");
    let server = Server::builder().config("unixsocket", path).for_tests().start();
    let server = server.expect("a server");
    let client = Client::open(format!("redis+unix://{path}")).expect("a URL");
    let lock = Lock::new(&client, "lock", renewed().bound_with_grace(MINUTE));
    let guard = lock.acquire().await.expect("it is free");
    let first = shown_number(&server, "client").expect("a client");
    call(&server, &["CLIENT", "KILL", "ID", &first.to_string()]);
    until(|| shown_number(&server, "client").is_some_and(|id| id != first && id != 0)).await;
    assert_eq!(shown_number(&server, "token"), i64::try_from(guard.token()).ok());
    guard.release().await.expect("it is held");
    server.journal().assert_no_lock_held();
}

#[tokio::test]
async fn a_bound_lock_is_released_over_a_new_connection() {
    let server = server();
    let guard = held(&server, options().bound()).await;
    let id = shown_number(&server, "client").expect("a client").to_string();
    call(&server, &["CLIENT", "KILL", "ID", &id]);
    guard.release().await.expect("it is held");
    server.journal().assert_no_lock_held();
}

/// Is run in another process by the next test.
#[test]
fn holder() {
    let Ok(url) = env::var("HOLDER_URL") else { return };
    let options = Options::new(TTL).bound_with_grace(5 * SECOND);
    let lock = blocking::Lock::new(&Client::open(url).expect("a URL"), "lock", options);
    let _held = lock.acquire().expect("it is free");
    eprintln!("held");
    let _ = stdin().read(&mut [0]);
    std::process::exit(0);
}

#[tokio::test]
async fn a_bound_lock_of_an_ended_process_is_released_after_its_grace() {
    let server = server();
    let mut holder = Command::new(env::current_exe().expect("a program"))
        .args(["locks::holder", "--exact", "--nocapture"])
        .env("HOLDER_URL", server.url())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut line = String::new();
    BufReader::new(holder.stderr.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert_eq!(line, "held\n");
    let waiter = waiting(&server, 1).await;
    drop(holder.stdin.take());
    holder.wait().expect("a process");
    until(|| shown_number(&server, "client") == Some(0)).await;
    server.advance(5 * SECOND - MILLISECOND).expect("a server");
    assert_eq!(queue(&server), 1);
    server.advance(MILLISECOND).expect("a server");
    drop(waiter.await.expect("a task").expect("it is granted"));
}

#[tokio::test]
async fn acquiring_again_after_a_lost_reply_holds_the_lock_once() {
    let server = server();
    let requests = Requests::any().command("lock.acquire").nth(1);
    server.faults().add(Fault::LoseAndClose, requests).expect("a rule");
    let lock = lock_of(&server, options());
    assert!(matches!(lock.acquire().await, Err(LockError::Redis(_))));
    let guard = lock.acquire().await.expect("it is free");
    assert_eq!(shown_number(&server, "count"), Some(2));
    guard.release().await.expect("it is held");
    server.journal().assert_no_lock_held();
}

#[tokio::test]
async fn a_lock_has_the_settings_of_its_client_in_both_protocols() {
    let server = Server::builder().config("requirepass", "secret").for_tests().start();
    let server = server.expect("a server");
    for protocol in [ProtocolVersion::RESP2, ProtocolVersion::RESP3] {
        let info: ConnectionInfo = server.url().into_connection_info().expect("a URL");
        let settings = info.redis_settings().clone().set_password("secret").set_db(3);
        let info = info.set_redis_settings(settings.set_protocol(protocol));
        let client = Client::open(info).expect("a client");
        let lock = Lock::new(&client, "lock", options());
        let guard = lock.acquire().await.expect("it is free");
        let locks = server.journal().locks().expect("a server");
        assert_eq!(locks.len(), 1);
        assert!(is_refused(Lock::new(&client, "lock", options()).acquire().await));
        let mut connection = client.get_connection().expect("a connection");
        assert_eq!(redis::cmd("DBSIZE").query::<i64>(&mut connection).expect("a reply"), 1);
        guard.renew().await.expect("it is held");
        guard.release().await.expect("it is held");
    }
}

/// A redis-server that ends with the test.
struct Redis(Child, PathBuf);

impl Redis {
    /// `None` if there is no redis-server on the path.
    fn start() -> Option<Redis> {
        let folder = env::temp_dir().join(format!("lockwheel-locks-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let started = Command::new("redis-server")
            .args(["--port", "0", "--unixsocket", "socket", "--save", ""])
            .current_dir(&folder)
            .stdout(Stdio::null())
            .spawn();
        match started {
            Ok(child) => Some(Redis(child, folder)),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound);
                None
            }
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = fs::remove_dir_all(&self.1);
    }
}

#[tokio::test]
async fn a_server_without_native_locks_is_a_clear_error() {
    let Some(redis) = Redis::start() else { return };
    let socket = redis.1.join("socket");
    let client = Client::open(format!("redis+unix://{}", socket.display())).expect("a URL");
    until(|| client.get_connection().is_ok()).await;
    let error = Lock::new(&client, "lock", options()).acquire().await.expect_err("no locks");
    assert!(matches!(error, LockError::NoNativeLocks), "{error}");
    assert!(error.to_string().contains("it must be Lockwheel 0.1 or later"));
}

#[tokio::test]
async fn other_errors_of_the_server_are_passed_on() {
    let server = server();
    call(&server, &["SET", "lock", "value"]);
    let error = lock_of(&server, options()).acquire().await.expect_err("a value");
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
}

#[tokio::test]
async fn no_connection_of_a_lock_stays_behind() {
    let server = server();
    let clients = || match call(&server, &["CLIENT", "LIST"]) {
        Reply::Verbatim { text, .. } => String::from_utf8_lossy(&text).lines().count(),
        reply => panic!("{reply:?}"),
    };
    let before = clients();
    let lock = lock_of(&server, options());
    for _ in 0..3 {
        let guard = lock.acquire().await.expect("it is free");
        assert!(is_refused(lock_of(&server, options()).acquire().await));
        guard.release().await.expect("it is held");
    }
    until(|| clients() == before).await;
}

#[test]
fn a_blocking_guard_releases_the_lock_at_the_end_of_its_scope() {
    let server = server();
    let lock = blocking::Lock::new(&client(&server), "lock", options());
    let another = blocking::Lock::new(&client(&server), "lock", options());
    {
        let guard = lock.acquire().expect("it is free");
        guard.renew().expect("it is held");
        assert_eq!(shown(&server, "owner"), Some(Reply::bulk(lock.owner())));
        assert!(is_refused(another.acquire_within(Duration::ZERO)));
    }
    server.journal().assert_no_lock_held();
    another.acquire().expect("it is free").release().expect("it is held");
}

#[test]
fn a_lost_blocking_lock_is_passed_to_a_function_that_may_block() {
    let server = server();
    let (notify, notices) = mpsc::channel();
    let another = blocking::Lock::new(&client(&server), "another", options());
    let on_lost = move || {
        let _held = another.acquire().expect("it is free");
        notify.send(()).expect("a test");
    };
    let options = renewed().on_lost(on_lost);
    let guard = blocking::Lock::new(&client(&server), "lock", options).acquire().expect("free");
    call(&server, &["LOCK.FORCE", "lock"]);
    notices.recv().expect("a call");
    assert!(!guard.is_held());
    assert!(is_lost(guard.release()));
}

/// Code that is called on a thread of a runtime may use a blocking lock, too.
#[tokio::test]
async fn a_blocking_lock_may_be_used_within_a_runtime() {
    let server = server();
    drop(blocking::Lock::new(&client(&server), "lock", options()).acquire().expect("it is free"));
    server.journal().assert_no_lock_held();
}
