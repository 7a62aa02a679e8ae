//! Login, sessions and TLS of the port for monitoring.

use std::io::{Read, Write};

use lockwheel_tests::certificates::Certificates;

use crate::admin::{Monitored, converse};

pub(crate) const LOCAL: &str = "Host: localhost";
const FORM: &str = "Content-Type: application/x-www-form-urlencoded";
pub(crate) const JSON: &str = "Content-Type: application/json";

/// The cookie that a login sets, as a header of requests.
pub(crate) fn log_in(server: &Monitored, host: &str, body: &str) -> String {
    let (status, reply) = server.send("POST /login", &[host, FORM], body);
    assert_eq!(status, 303, "{reply}");
    let cookie = header(&reply, "set-cookie").expect("a cookie");
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    format!("Cookie: {}", cookie.split(';').next().unwrap_or_default())
}

fn header<'a>(reply: &'a str, name: &str) -> Option<&'a str> {
    let lines = reply.lines().take_while(|line| !line.is_empty());
    lines
        .filter_map(|line| line.split_once(": "))
        .find_map(|(key, value)| (key == name).then_some(value))
}

/// The header with the token of a session.
pub(crate) fn token(server: &Monitored, headers: &[&str]) -> String {
    let (status, reply) = server.request("GET /session", headers);
    assert_eq!(status, 200, "{reply}");
    let body = reply.split("\r\n\r\n").nth(1).expect("a body");
    let session: serde_json::Value = serde_json::from_str(body).expect("JSON");
    format!("X-CSRF-Token: {}", session["token"].as_str().expect("a token"))
}

fn status(server: &Monitored, first_line: &str, headers: &[&str]) -> u16 {
    server.request(first_line, headers).0
}

#[test]
fn login_is_needed_when_the_default_user_is_limited() {
    let server = Monitored::start(&[]);
    for path in ["/", "/session"] {
        assert_eq!(server.get(path).0, 200, "{path}");
    }
    server.run("ACL SETUSER default -lockwheel");
    assert_eq!(server.get("/session").0, 401);
    server.run("ACL SETUSER default reset on nopass +@all allkeys allchannels");
    assert_eq!(server.get("/session").0, 200);
    server.run("CONFIG SET requirepass secret");
    for path in ["/session", "/locks", "/locks/a", "/events"] {
        assert_eq!(server.get(path).0, 401, "{path}");
    }
    let (status, reply) = server.get("/");
    assert_eq!((status, header(&reply, "location")), (303, Some("/login")));
    for path in ["/healthz", "/readyz", "/metrics", "/login", "/page.css"] {
        assert_eq!(server.get(path).0, 200, "{path}");
    }
}

#[test]
fn session_lasts_from_login_to_logout() {
    let server = Monitored::start(&["--requirepass", "a b&c"]);
    let cookie = log_in(&server, LOCAL, "user=default&password=a+b%26c");
    assert_eq!(status(&server, "GET /", &[LOCAL, &cookie]), 200);
    let token = token(&server, &[LOCAL, &cookie]);
    assert_eq!(status(&server, "POST /logout", &[LOCAL, &cookie]), 403);
    assert_eq!(status(&server, "POST /logout", &[LOCAL, &token]), 401);
    assert_eq!(status(&server, "GET /session", &[LOCAL, &cookie]), 200);
    assert_eq!(status(&server, "POST /logout", &[LOCAL, &cookie, &token]), 204);
    assert_eq!(status(&server, "GET /session", &[LOCAL, &cookie]), 401);
    // A session that never was.
    let cookie = format!("Cookie: lockwheel-session={}", "0".repeat(64));
    assert_eq!(status(&server, "GET /session", &[LOCAL, &cookie]), 401);
}

#[test]
fn session_ends_when_its_user_is_removed() {
    let server = Monitored::start(&[]);
    server.run("ACL SETUSER viewer on >secret +@all ~*");
    server.run("CONFIG SET requirepass other");
    let mut wire = server.daemon.connect(server.port);
    assert_eq!(wire.ask("AUTH other").trim_end(), "+OK");
    let cookie = log_in(&server, LOCAL, "user=viewer&password=secret");
    assert_ne!(status(&server, "GET /locks", &[LOCAL, &cookie]), 401);
    assert_eq!(wire.ask("ACL DELUSER viewer").trim_end(), ":1");
    assert_eq!(status(&server, "GET /locks", &[LOCAL, &cookie]), 401);
}

#[test]
fn wrong_passwords_are_refused_and_limited() {
    let mut server = Monitored::start(&["--requirepass", "secret"]);
    // A user without a password may not log in.
    let mut wire = server.daemon.connect(server.port);
    wire.ask("AUTH secret");
    wire.ask("ACL SETUSER open on nopass +@all ~*");
    for body in ["user=open&password=", "user=default&password=wrong", "user=none&password=x"] {
        let (status, reply) = server.send("POST /login", &[LOCAL, FORM], body);
        assert!(status == 401 && reply.contains("wrong user or password"), "{reply}");
        assert!(header(&reply, "set-cookie").is_none(), "{reply}");
    }
    let wrong = "Authorization: Basic ZGVmYXVsdDp3cm9uZw==";
    let right = "Authorization: Basic ZGVmYXVsdDpzZWNyZXQ=";
    assert_eq!(status(&server, "GET /session", &[LOCAL, right]), 200);
    let refusals: Vec<u16> =
        (0..8).map(|_| status(&server, "GET /session", &[LOCAL, wrong])).collect();
    assert_eq!(refusals, [401, 401, 401, 401, 401, 401, 401, 429]);
    assert_eq!(status(&server, "GET /session", &[LOCAL, right]), 429);
    assert_eq!(server.get("/metrics").0, 200);
    server.daemon.wait_for("login for monitoring has failed");
}

#[test]
fn requests_of_pages_of_other_sites_change_nothing() {
    let server = Monitored::start(&[]);
    let token = token(&server, &[LOCAL]);
    let release = |headers: &[&str]| {
        let headers = [&[LOCAL, JSON], headers].concat();
        server.send("POST /locks/a/release", &headers, "{\"database\":0}").0
    };
    assert_eq!(release(&[]), 403);
    assert_eq!(release(&["X-CSRF-Token: 0"]), 403);
    assert_eq!(release(&[&token, "Origin: http://example.org"]), 403);
    assert_eq!(release(&[&token, "Origin: null"]), 403);
    assert_ne!(release(&[&token, "Origin: http://localhost"]), 403);
    let foreign = [LOCAL, FORM, "Origin: http://example.org"];
    assert_eq!(server.send("POST /login", &foreign, "user=a&password=b").0, 403);
}

/// A client with one connection for all requests learns that it needs another one.
#[test]
fn reply_to_a_refused_change_says_that_the_connection_is_closed() {
    let server = Monitored::start(&[]);
    for (host, origin) in [("localhost", "http://example.org"), ("example.org", "null")] {
        let mut stream = server.connect();
        let request = format!(
            "POST /locks/a/release HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\n\
             Content-Length: 14\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("a request without its body");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("a reply and its end");
        assert_eq!(header(&reply, "connection"), Some("close"), "{reply}");
    }
}

#[test]
fn other_names_need_a_login() {
    let server = Monitored::start(&["--admin-hosts", "monitor.example other.example"]);
    let host = "Host: Monitor.example:6380";
    for path in ["/metrics", "/session", "/locks"] {
        assert_eq!(status(&server, &format!("GET {path}"), &[host]), 401, "{path}");
    }
    for path in ["/healthz", "/readyz", "/login"] {
        assert_eq!(status(&server, &format!("GET {path}"), &[host]), 200, "{path}");
    }
    server.run("ACL SETUSER prometheus on >secret +info +latency|histogram");
    let login = "Authorization: Basic cHJvbWV0aGV1czpzZWNyZXQ=";
    assert_eq!(status(&server, "GET /metrics", &[host, login]), 200);
    assert_eq!(status(&server, "GET /locks", &[host, login]), 403);
    assert_eq!(status(&server, "GET /metrics", &["Host: example.org", login]), 421);
}

#[test]
fn pages_are_served_over_tls() {
    let certificates = Certificates::new();
    let [cert, key] = ["server.crt", "server.key"].map(|name| certificates.path(name));
    let server = Monitored::start(&[
        "--admin-tls",
        "yes",
        "--admin-bind",
        "0.0.0.0",
        "--requirepass",
        "secret",
        "--tls-auth-clients",
        "no",
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &key,
    ]);
    let send = |first_line: &str, headers: &[&str], body: &str| {
        let client = certificates.client();
        let mut stream = client.connect("localhost", server.connect()).expect("a handshake");
        converse(&mut stream, first_line, headers, body)
    };
    assert_eq!(send("GET /healthz", &[LOCAL], "").0, 200);
    let (status, reply) = send("POST /login", &[LOCAL, FORM], "user=default&password=secret");
    assert_eq!(status, 303, "{reply}");
    assert!(header(&reply, "set-cookie").is_some_and(|it| it.contains("; Secure")), "{reply}");
}
