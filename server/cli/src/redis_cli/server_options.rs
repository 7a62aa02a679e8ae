//! The options that name a server, for `redis-cli`, `lockwheel lock` and `lockwheel locks`; the
//! parser of its URIs.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use percent_encoding::percent_decode_str;

use super::connection::{Address, Connection, Login, Protocol};
use crate::title;
#[cfg(feature = "tls")]
use crate::tls_client::TlsOptions;

/// The variable with the password, if no option has one.
pub(crate) const PASSWORD_VARIABLE: &str = "REDISCLI_AUTH";

/// The server to connect to, and the user.
#[derive(Args)]
pub(crate) struct ServerOptions {
    /// The server's host name or address
    #[arg(short = 'h', value_name = "hostname", default_value = "127.0.0.1")]
    host: String,
    /// The server's port
    #[arg(short = 'p', value_name = "port", default_value_t = 6379)]
    port: u16,
    /// The server's unix socket, instead of host and port
    #[arg(short = 's', value_name = "socket")]
    socket: Option<PathBuf>,
    /// The password
    #[arg(short = 'a', long = "pass", value_name = "password", allow_hyphen_values = true)]
    password: Option<String>,
    /// The user of the password
    #[arg(long, value_name = "username")]
    user: Option<String>,
    #[arg(short = 'u', value_name = "uri")]
    #[arg(
        help = "The server: redis://[[user]:password@]host[:port][/database], rediss:// for TLS"
    )]
    uri: Option<Uri>,
    /// The database
    #[arg(short = 'n', value_name = "db", allow_negative_numbers = true)]
    database: Option<i64>,
    /// Do not warn about a password on the command line
    #[arg(long)]
    no_auth_warning: bool,
    /// Connect with TLS
    #[cfg(feature = "tls")]
    #[arg(long)]
    tls: bool,
    #[cfg(feature = "tls")]
    #[command(flatten)]
    tls_options: TlsOptions,
}

impl ServerOptions {
    /// The address of the server.
    pub(crate) fn address(&self) -> Address {
        if let Some(path) = &self.socket {
            return Address::Unix(path.clone());
        }
        let uri = self.uri.as_ref();
        let host = uri.and_then(|uri| uri.host.clone()).unwrap_or_else(|| self.host.clone());
        Address::Tcp(host, uri.and_then(|uri| uri.port).unwrap_or(self.port))
    }

    /// How to connect with TLS, if that was asked for.
    #[cfg(feature = "tls")]
    pub(crate) fn tls(&self) -> Option<&TlsOptions> {
        let uri_asks = self.uri.as_ref().is_some_and(|uri| uri.is_tls);
        (self.tls || uri_asks).then_some(&self.tls_options)
    }

    /// Connects. `limit` is as for [`Connection::open`].
    pub(crate) fn connect(&self, limit: Option<Duration>) -> io::Result<Connection> {
        #[cfg(feature = "tls")]
        return Connection::open(&self.address(), limit, self.tls());
        #[cfg(not(feature = "tls"))]
        Connection::open(&self.address(), limit)
    }

    /// The login to send first.
    pub(crate) fn login(&self, protocol: Protocol) -> Login {
        let uri = self.uri.as_ref();
        let given = uri.and_then(|uri| uri.password.clone()).or_else(|| self.password.clone());
        let from_environment = || std::env::var(PASSWORD_VARIABLE).ok();
        Login {
            user: uri.and_then(|uri| uri.user.clone()).or_else(|| self.user.clone()),
            password: given.or_else(from_environment),
            database: uri.and_then(|uri| uri.database).or(self.database).unwrap_or(0),
            protocol,
        }
    }

    /// Whether other users of the machine may have seen the password.
    pub(crate) fn shows_password(&self) -> bool {
        !self.no_auth_warning && self.has_password()
    }

    /// Hides the arguments of the process if the password is one of them.
    pub(crate) fn hide_password(&self) {
        if self.has_password() {
            title::hide_arguments();
        }
    }

    fn has_password(&self) -> bool {
        let in_uri = self.uri.as_ref().is_some_and(|uri| uri.password.is_some());
        in_uri || self.password.is_some()
    }
}

/// An error of the command line as it may be printed: without a URI, which may have a password.
pub(crate) fn without_uri(mut error: clap::Error) -> clap::Error {
    let argument = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
    let hidden = || ContextValue::String("...".to_owned());
    match error.kind() {
        ErrorKind::ValueValidation if argument.starts_with("-u ") => {
            error.insert(ContextKind::InvalidValue, hidden());
        }
        ErrorKind::UnknownArgument if argument.contains("://") => {
            error.insert(ContextKind::InvalidArg, hidden());
        }
        _ => {}
    }
    error
}

/// `redis://[[user]:password@][host][:port][/database]`, or the same with `rediss`
#[derive(Clone, Debug, Default, PartialEq)]
struct Uri {
    is_tls: bool,
    user: Option<String>,
    password: Option<String>,
    host: Option<String>,
    port: Option<u16>,
    database: Option<i64>,
}

impl std::str::FromStr for Uri {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Uri, &'static str> {
        let (scheme, rest) = text.split_once("://").ok_or("Invalid URI scheme")?;
        let is_tls = scheme == "rediss";
        if is_tls && cfg!(not(feature = "tls")) {
            return Err("rediss:// is only supported when built with the feature \"tls\"");
        }
        if scheme != "redis" && !is_tls {
            return Err("Invalid URI scheme");
        }
        let mut uri = Uri { is_tls, ..Uri::default() };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let mut address = authority;
        if let Some((login, after)) = authority.rsplit_once('@') {
            address = after;
            // A login without a colon is a password.
            let (user, password) = login.split_once(':').unwrap_or(("", login));
            uri.user = Some(percent_decode(user)).filter(|user| !user.is_empty());
            uri.password = Some(percent_decode(password));
        }
        let port_at = address.rfind(':').filter(|&at| !address[at..].contains(']'));
        let host = &address[..port_at.unwrap_or(address.len())];
        let host = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
        uri.host = Some(host.to_owned()).filter(|host| !host.is_empty());
        let port = port_at.map(|at| address[at + 1..].parse());
        uri.port = port.transpose().map_err(|_| "Invalid port in the URI")?;
        let database = path.split('?').next().unwrap_or_default();
        if !database.is_empty() {
            uri.database = Some(database.parse().map_err(|_| "Invalid database in the URI")?);
        }
        Ok(uri)
    }
}

/// Decodes percent-encoding such as `%40`.
fn percent_decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_parse() {
        let some = |text: &str| Some(text.to_owned());
        let uri = |text: &str| text.parse::<Uri>();
        let host = |text| Uri { host: some(text), ..Uri::default() };
        assert_eq!(uri("redis://h"), Ok(host("h")));
        assert_eq!(uri("redis://"), Ok(Uri::default()));
        #[cfg(feature = "tls")]
        assert_eq!(uri("rediss://h"), Ok(Uri { is_tls: true, ..host("h") }));
        assert_eq!(uri("redis://h:1/2"), Ok(Uri { port: Some(1), database: Some(2), ..host("h") }));
        assert_eq!(uri("redis://[::1]:1"), Ok(Uri { port: Some(1), ..host("::1") }));
        assert_eq!(uri("redis://p%40:x@h").map(|it| it.password), Ok(some("x")));
        let full = Uri { user: some("u"), password: some("p@:"), ..host("h") };
        assert_eq!(uri("redis://u:p%40:@h"), Ok(full));
        assert_eq!(uri("redis://:p@h"), Ok(Uri { password: some("p"), ..host("h") }));
        assert!(uri("http://h").is_err() && uri("redis://h:x").is_err());
        assert!(uri("redis://h/x").is_err());
    }
}
