//! Which requests are served: for which host, from which origin, as which user. A user logs in with
//! a form, which begins a session that a cookie names, or sends a password with each request.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex as SyncMutex, PoisonError};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use lockwheel::{Reply, Server};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use super::commands::{Commands, Failure, error, run};
use crate::limits;

/// The name of the cookie.
const COOKIE: &str = "lockwheel-session";
/// The header with the token of a session: a page of another site cannot send it.
pub(super) const TOKEN_HEADER: &str = "x-csrf-token";

/// The connection on which a request has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    /// The address of this machine that the client has connected to.
    pub(super) local: IpAddr,
    pub(super) peer: SocketAddr,
    pub(super) uses_tls: bool,
}

/// Whether a request came to a loopback address, and is for a name of such an address.
#[derive(Clone, Copy, Debug)]
pub(super) struct IsLocal(pub(super) bool);

/// The state that all pages share.
pub(super) struct Admin {
    server: Arc<Server>,
    /// The client without limits, which is not that of a user.
    pub(super) system: Commands,
    /// The other names of this machine.
    hosts: Vec<String>,
    sessions: SyncMutex<Sessions<Arc<Session>>>,
    /// Held while a password is checked: requests that come at once do not pass the limit together.
    failures: Mutex<AllFailures>,
    /// The token of requests without a login.
    token: String,
}

/// A login.
struct Session {
    user: String,
    token: String,
    commands: Commands,
}

/// Sessions by their ids with their begin: a limited number, each for a limited time.
struct Sessions<T>(BTreeMap<String, (Instant, T)>);

impl<T: Clone> Sessions<T> {
    /// Adds a session that begins now. If there are too many, the oldest ends.
    fn add(&mut self, id: String, session: T, now: Instant) {
        self.0.retain(|_, (begin, _)| now - *begin < limits::ADMIN_SESSION_LIFETIME);
        if self.0.len() >= limits::ADMIN_SESSIONS_MAX {
            let oldest = self.0.iter().min_by_key(|(_, (begin, _))| *begin);
            if let Some(id) = oldest.map(|(id, _)| id.clone()) {
                self.0.remove(&id);
            }
        }
        self.0.insert(id, (now, session));
    }

    /// The session with this id, if it has not ended.
    fn get(&self, id: &str, now: Instant) -> Option<T> {
        let (begin, session) = self.0.get(id)?;
        (now - *begin < limits::ADMIN_SESSION_LIFETIME).then(|| session.clone())
    }

    fn remove(&mut self, id: &str) {
        self.0.remove(id);
    }
}

/// Wrong passwords from one address.
struct Failures {
    count: u32,
    begin: Instant,
}

/// The recent wrong passwords by address, for a limited number of addresses.
#[derive(Default)]
struct AllFailures(BTreeMap<IpAddr, Failures>);

impl AllFailures {
    /// Returns whether passwords from this address are refused without a check.
    fn is_limited(&mut self, address: IpAddr, now: Instant) -> bool {
        self.0.retain(|_, failures| now - failures.begin < limits::ADMIN_LOGIN_WINDOW);
        match self.0.get(&address) {
            Some(failures) => failures.count >= limits::ADMIN_LOGIN_FAILURES_MAX,
            None => self.0.len() >= limits::ADMIN_LOGIN_ADDRESSES_MAX,
        }
    }

    fn note(&mut self, address: IpAddr, now: Instant) {
        self.0.entry(address).or_insert(Failures { count: 0, begin: now }).count += 1;
    }
}

/// The user of a request.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) user: String,
    pub(super) commands: Commands,
    /// The token that changes need; none if each request has name and password.
    pub(super) token: Option<String>,
    /// The id of the session, if there is one.
    pub(super) session: Option<String>,
}

impl Admin {
    /// Creates the state for a server that is also known by the names `hosts`.
    ///
    /// # Errors
    /// If the server has ended, or there is no randomness.
    pub(super) fn new(server: Arc<Server>, hosts: Vec<String>) -> Result<Admin, String> {
        let system = server.monitoring_client().map_err(|error| error.to_string())?;
        Ok(Admin {
            server,
            system: Arc::new(Mutex::new(system)),
            hosts,
            sessions: SyncMutex::new(Sessions(BTreeMap::new())),
            failures: Mutex::default(),
            token: random_text()?,
        })
    }

    /// Whether a request is for this machine, and if so, whether it is local. A page of another
    /// site whose name leads to this machine could read the replies otherwise.
    pub(super) fn host(&self, connection: Connection, headers: &HeaderMap) -> Option<IsLocal> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return None };
        let name = name_of_host(host.to_str().ok()?);
        let address: Option<IpAddr> = name.parse().ok();
        let is_loopback =
            name.eq_ignore_ascii_case("localhost") || address.is_some_and(|it| it.is_loopback());
        if is_loopback && connection.local.is_loopback() {
            return Some(IsLocal(true));
        }
        let is_known = self.hosts.iter().any(|known| known.eq_ignore_ascii_case(name));
        (is_known || address == Some(connection.local)).then_some(IsLocal(false))
    }

    /// Logs in: begins a session, and returns its cookie.
    pub(super) async fn log_in(
        &self,
        connection: Connection,
        user: &str,
        password: &str,
    ) -> Result<String, Refusal> {
        let commands = self.authenticate(connection, user, password).await?;
        let unavailable = |reason| Refusal::Failed(Failure::Unavailable(reason));
        let id = random_text().map_err(unavailable)?;
        let token = random_text().map_err(unavailable)?;
        info!(user, peer = %connection.peer, "login for monitoring");
        let session = Arc::new(Session { user: user.to_owned(), token, commands });
        locked(&self.sessions).add(id.clone(), session, Instant::now());
        let seconds = limits::ADMIN_SESSION_LIFETIME.as_secs();
        Ok(cookie(connection, &id, seconds))
    }

    /// Ends a session; returns the cookie that replaces its cookie.
    pub(super) fn log_out(&self, connection: Connection, id: &str) -> String {
        locked(&self.sessions).remove(id);
        cookie(connection, "", 0)
    }

    /// Whether the server ends, and with it all clients.
    pub(super) fn has_ended(&self) -> bool {
        self.server.is_stopped()
    }

    /// Whether a session has not ended.
    pub(super) fn has_session(&self, id: &str) -> bool {
        self.session(id).is_some()
    }

    fn session(&self, id: &str) -> Option<Arc<Session>> {
        locked(&self.sessions).get(id, Instant::now())
    }

    /// A client of this user, if the password is right.
    async fn authenticate(
        &self,
        connection: Connection,
        user: &str,
        password: &str,
    ) -> Result<Commands, Refusal> {
        let address = network(connection.peer.ip().to_canonical());
        let mut failures = self.failures.lock().await;
        if failures.is_limited(address, Instant::now()) {
            return Err(Refusal::TooMany);
        }
        let Ok(client) = self.server.monitoring_client() else {
            return Err(Refusal::Failed(Failure::Ended));
        };
        let commands = Arc::new(Mutex::new(client));
        let words = ["AUTH", user, password].map(str::to_owned);
        // A user without a password accepts every one.
        let result = match self.has_password(user).await? {
            true => run(&commands, move |client| client.call(&words)).await,
            false => Err(Failure::Refused("WRONGPASS the user has no password".to_owned())),
        };
        match result {
            Ok(_) => Ok(commands),
            Err(Failure::Refused(reason)) if reason.starts_with("WRONGPASS") => {
                warn!(user = ?user, peer = %connection.peer, "login for monitoring has failed");
                failures.note(address, Instant::now());
                Err(Refusal::WrongPassword)
            }
            Err(failure) => Err(Refusal::Failed(failure)),
        }
    }

    /// Whether a user exists and needs a password.
    async fn has_password(&self, user: &str) -> Result<bool, Failure> {
        let user = self.user(user).await?;
        Ok(user.is_some_and(|user| !user.has_flag("nopass")))
    }

    /// Whether clients without a password may do everything.
    async fn is_open(&self) -> Result<bool, Failure> {
        let user = self.user("default").await?;
        let is_open = |user: UserRules| {
            let may = |name, rule: &str| user.text(name).split(' ').any(|word| word == rule);
            user.has_flag("on")
                && user.has_flag("nopass")
                && user.text("commands") == "+@all"
                && may("keys", "~*")
        };
        Ok(user.is_some_and(is_open))
    }

    async fn user(&self, name: &str) -> Result<Option<UserRules>, Failure> {
        let words = ["ACL", "GETUSER", name].map(str::to_owned);
        let reply = run(&self.system, move |client| client.call(&words)).await?;
        let Reply::Map(pairs) = reply else { return Ok(None) };
        Ok(Some(UserRules(pairs)))
    }

    /// The user of a request.
    async fn caller(&self, parts: &Parts) -> Result<Caller, Refusal> {
        let connection = connection(parts)?;
        if let Some((user, password)) = basic(&parts.headers) {
            let commands = self.authenticate(connection, &user, &password).await?;
            return Ok(Caller { user, commands, token: None, session: None });
        }
        let id = session_id(&parts.headers);
        if let Some((id, session)) = id.and_then(|id| Some((id, self.session(id)?))) {
            return Ok(Caller {
                user: session.user.clone(),
                commands: Arc::clone(&session.commands),
                token: Some(session.token.clone()),
                session: Some(id.to_owned()),
            });
        }
        let is_local = parts.extensions.get().is_some_and(|&IsLocal(is_local)| is_local);
        if is_local && self.is_open().await? {
            return Ok(Caller {
                user: "default".to_owned(),
                commands: Arc::clone(&self.system),
                token: Some(self.token.clone()),
                session: None,
            });
        }
        Err(Refusal::NoLogin)
    }
}

impl FromRequestParts<Arc<Admin>> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, admin: &Arc<Admin>) -> Result<Caller, Refusal> {
        admin.caller(parts).await
    }
}

impl<S: Sync> FromRequestParts<S> for Connection {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Connection, Refusal> {
        connection(parts)
    }
}

fn connection(parts: &Parts) -> Result<Connection, Refusal> {
    parts.extensions.get().copied().ok_or(Refusal::NoLogin)
}

impl Caller {
    /// Whether a request of this caller may change something: not one that a page of another site
    /// has sent through the caller's browser.
    pub(super) fn has_token(&self, headers: &HeaderMap) -> bool {
        match &self.token {
            Some(token) => headers.get(TOKEN_HEADER).is_some_and(|it| it == token.as_str()),
            // Such a page cannot send this type.
            None => headers.get(header::CONTENT_TYPE).is_some_and(|it| it == "application/json"),
        }
    }
}

/// Why a request has no user.
#[derive(Debug)]
pub(super) enum Refusal {
    NoLogin,
    WrongPassword,
    TooMany,
    Failed(Failure),
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Refusal {
        Refusal::Failed(failure)
    }
}

impl Refusal {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Refusal::NoLogin | Refusal::WrongPassword => StatusCode::UNAUTHORIZED,
            Refusal::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Refusal::Failed(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The text for the reader.
    pub(super) fn reason(&self) -> &str {
        match self {
            Refusal::NoLogin => "log in first",
            Refusal::WrongPassword => "wrong user or password",
            Refusal::TooMany => "too many wrong passwords: try again in a minute",
            Refusal::Failed(failure) => failure.reason(),
        }
    }
}

impl axum::response::IntoResponse for Refusal {
    fn into_response(self) -> Response {
        error(self.status(), self.reason())
    }
}

/// The reply of `ACL GETUSER`.
struct UserRules(Vec<(Reply, Reply)>);

impl UserRules {
    fn value(&self, name: &str) -> Option<&Reply> {
        let mut pairs = self.0.iter();
        pairs.find(|(known, _)| *known == Reply::bulk(name)).map(|(_, value)| value)
    }

    fn has_flag(&self, flag: &str) -> bool {
        let flag = Reply::bulk(flag);
        matches!(self.value("flags"), Some(Reply::Set(flags)) if flags.contains(&flag))
    }

    fn text(&self, name: &str) -> &str {
        match self.value(name) {
            Some(Reply::Bulk(text)) => std::str::from_utf8(text).unwrap_or_default(),
            _ => "",
        }
    }
}

/// Whether a request that changes something comes from a page of the same host, or from no page.
pub(super) fn is_same_origin(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    origin.is_some_and(|(_, name)| Some(name) == host)
}

/// The name in a header `Host`, without the port and the brackets of IPv6.
fn name_of_host(host: &str) -> &str {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name)
}

/// The name and the password of a header `Authorization`.
fn basic(headers: &HeaderMap) -> Option<(String, String)> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(BASE64_STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

/// The id of the session in the cookies.
fn session_id(headers: &HeaderMap) -> Option<&str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut cookies = lines.flat_map(|line| line.split(';')).map(str::trim);
    cookies.find_map(|cookie| cookie.strip_prefix(COOKIE)?.strip_prefix('='))
}

fn cookie(connection: Connection, id: &str, seconds: u64) -> String {
    let secure = if connection.uses_tls { "; Secure" } else { "" };
    format!("{COOKIE}={id}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}")
}

/// The network of an address: a machine has many addresses of IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
        address => address,
    }
}

/// 256 random bits, as text.
fn random_text() -> Result<String, String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| format!("no randomness: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Locks a mutex. No code panics while it holds one.
fn locked<T>(mutex: &SyncMutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limits::{
        ADMIN_LOGIN_ADDRESSES_MAX, ADMIN_LOGIN_FAILURES_MAX, ADMIN_LOGIN_WINDOW,
        ADMIN_SESSION_LIFETIME, ADMIN_SESSIONS_MAX,
    };

    #[test]
    fn session_ends_after_its_lifetime() {
        let (mut sessions, begin) = (Sessions(BTreeMap::new()), Instant::now());
        sessions.add("a".to_owned(), 1, begin);
        let end = begin + ADMIN_SESSION_LIFETIME;
        assert_eq!(sessions.get("a", end - Duration::from_millis(1)), Some(1));
        assert_eq!(sessions.get("a", end), None);
        sessions.add("b".to_owned(), 2, end);
        assert_eq!(sessions.0.len(), 1, "a session that has ended is kept");
        sessions.remove("b");
        assert_eq!(sessions.get("b", end), None);
    }

    #[test]
    fn oldest_session_ends_when_there_are_too_many() {
        let (mut sessions, begin) = (Sessions(BTreeMap::new()), Instant::now());
        let at = |number: usize| begin + Duration::from_millis(number as u64);
        // In the order of their ids, the oldest is not the first.
        let id = |number: usize| format!("{:04}", ADMIN_SESSIONS_MAX - number);
        for number in 0..=ADMIN_SESSIONS_MAX {
            sessions.add(id(number), number, at(number));
        }
        let now = at(ADMIN_SESSIONS_MAX);
        assert_eq!(sessions.0.len(), ADMIN_SESSIONS_MAX);
        assert_eq!(sessions.get(&id(0), now), None);
        for number in [1, ADMIN_SESSIONS_MAX] {
            assert_eq!(sessions.get(&id(number), now), Some(number));
        }
    }

    fn address(number: usize) -> IpAddr {
        IpAddr::V6(Ipv6Addr::from_bits(1 + number as u128))
    }

    #[test]
    fn wrong_passwords_are_limited_in_each_window() {
        let (mut failures, mut now) = (AllFailures::default(), Instant::now());
        for _ in 0..3 {
            for _ in 0..ADMIN_LOGIN_FAILURES_MAX {
                assert!(!failures.is_limited(address(0), now));
                failures.note(address(0), now);
            }
            now += ADMIN_LOGIN_WINDOW - Duration::from_millis(1);
            assert!(failures.is_limited(address(0), now));
            assert!(!failures.is_limited(address(1), now));
            now += Duration::from_millis(1);
        }
        assert!(!failures.is_limited(address(0), now));
    }

    #[test]
    fn addresses_with_wrong_passwords_are_limited_in_each_window() {
        let (mut failures, mut now) = (AllFailures::default(), Instant::now());
        for _ in 0..3 {
            for number in 0..ADMIN_LOGIN_ADDRESSES_MAX {
                assert!(!failures.is_limited(address(number), now));
                failures.note(address(number), now);
            }
            now += ADMIN_LOGIN_WINDOW - Duration::from_millis(1);
            assert!(failures.is_limited(address(ADMIN_LOGIN_ADDRESSES_MAX), now));
            assert!(!failures.is_limited(address(0), now));
            now += Duration::from_millis(1);
        }
        assert_eq!(failures.0.len(), ADMIN_LOGIN_ADDRESSES_MAX);
        assert!(!failures.is_limited(address(ADMIN_LOGIN_ADDRESSES_MAX), now));
        assert!(failures.0.is_empty());
    }
}
