//! Bytes to a connection of the port for monitoring: any, and requests that are nearly valid.
//! Checks that nothing panics, and that no reply has a status from 500 on but 503, which is
//! documented.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use arbitrary::Arbitrary;
use lockwheel::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;

#[allow(dead_code, reason = "the target needs no listener")]
#[path = "../../../server/cli/src/admin/mod.rs"]
mod admin;

const METHODS: &[&str] = &["GET", "GET", "POST", "HEAD", "PUT", "OPTIONS", "DELETE", "X"];

/// Beginnings of targets. A byte of the input selects one.
const PATHS: &[&str] = &[
    "/",
    "/healthz",
    "/readyz",
    "/metrics",
    "/login",
    "/logout",
    "/session",
    "/locks",
    "/locks/",
    "/locks/lock",
    "/locks/lock/release",
    "/locks//release",
    "/locks/%ff%00",
    "/events",
    "/page.css",
    "/page.js",
    "/locks?match=*&count=1&cursor=",
    "/locks?count=",
    "/events?since=",
    "/locks/lock?database=",
    "*",
    "http://localhost/locks",
];

/// Lines of headers. A byte of the input selects one.
const HEADERS: &[&str] = &[
    "Host: localhost",
    "Host: 127.0.0.1:1",
    "Host: other.example",
    "Connection: close",
    "Content-Type: application/json",
    "Content-Type: application/x-www-form-urlencoded",
    "Authorization: Basic ZGVmYXVsdDo=",
    "Authorization: Basic dXNlcjpzZWNyZXQ=",
    "Authorization: Basic ",
    "Cookie: lockwheel-session=0; a=b",
    "X-CSRF-Token: 0",
    "Origin: http://localhost",
    "Origin: null",
    "Last-Event-ID: 1",
    "Expect: 100-continue",
    "Transfer-Encoding: chunked",
    "Content-Length: 18446744073709551615",
    "Upgrade: websocket",
];

#[derive(Arbitrary, Debug)]
pub(crate) enum Part<'a> {
    Raw(&'a [u8]),
    Request(Request<'a>),
}

#[derive(Arbitrary, Debug)]
pub(crate) struct Request<'a> {
    method: u8,
    path: u8,
    rest_of_path: &'a str,
    /// Without them, there is only the right `Host`.
    headers: Vec<u8>,
    more_header: &'a str,
    body: Option<&'a [u8]>,
}

static SERVER: LazyLock<Arc<Server>> = LazyLock::new(|| {
    let server = Server::start().expect("a server");
    let rules = ["ACL", "SETUSER", "user", "on", ">secret", "%R~lock", "+lockwheel|locks"];
    server.call(&rules).expect("a user");
    Arc::new(server)
});

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().max_blocking_threads(1).build().expect("a runtime")
});

pub(crate) fn check(parts: Vec<Part>) {
    let mut bytes = Vec::new();
    parts.iter().for_each(|part| part.write(&mut bytes));
    SERVER.call(&["SET", "lock", "token", "NX", "PX", "30000"]).expect("a reply");
    let reply = RUNTIME.block_on(reply_to(&bytes));
    for line in reply.split(|&byte| byte == b'\n') {
        let is_failure = line.starts_with(b"HTTP/1.1 5") && !line.starts_with(b"HTTP/1.1 503");
        assert!(!is_failure, "{}", reply.escape_ascii());
    }
}

/// All that is sent until the connection is closed, or for a while if there are events.
async fn reply_to(bytes: &[u8]) -> Vec<u8> {
    let port = admin::Port::new(&admin::AdminSettings::default(), &SERVER).expect("pages");
    let (mut near, far) = tokio::io::duplex(1 << 20);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let task = tokio::spawn(async move { port.converse(far, address, address).await });
    // The connection may be closed before all bytes are read.
    let _ = near.write_all(bytes).await;
    let _ = near.shutdown().await;
    let mut reply = Vec::new();
    let read = near.read_to_end(&mut reply);
    let _ = tokio::time::timeout(Duration::from_millis(300), read).await;
    task.abort();
    if let Err(error) = task.await {
        assert!(!error.is_panic(), "{error}");
    }
    reply
}

impl Part<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Part::Raw(bytes) => out.extend_from_slice(bytes),
            Part::Request(request) => request.write(out),
        }
    }
}

impl Request<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let method = word(METHODS, self.method);
        let path = word(PATHS, self.path);
        out.extend(format!("{method} {path}{} HTTP/1.1\r\n", self.rest_of_path).bytes());
        if self.headers.is_empty() {
            out.extend(b"Host: localhost\r\n");
        }
        for &header in &self.headers {
            out.extend(format!("{}\r\n", word(HEADERS, header)).bytes());
        }
        if !self.more_header.is_empty() {
            out.extend(format!("{}\r\n", self.more_header).bytes());
        }
        let body = self.body.unwrap_or_default();
        if !body.is_empty() {
            out.extend(format!("Content-Length: {}\r\n", body.len()).bytes());
        }
        out.extend(b"\r\n");
        out.extend_from_slice(body);
    }
}

fn word(words: &'static [&'static str], byte: u8) -> &'static str {
    words[usize::from(byte) % words.len()]
}
