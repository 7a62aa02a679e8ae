//! The URL of a server: its address, credentials and database.

use std::fmt;

#[cfg(feature = "tls")]
use super::tls::TlsClient;

/// The default port.
const PORT: u16 = 6379;

/// A server's address, the credentials and the database, from
/// `redis://[[user]:password@]host[:port][/database]`, the same with `rediss` for TLS, or
/// `unix://path[?db=database]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The endpoint to connect to.
    pub endpoint: Endpoint,
    /// The user name; Redis's `default` user if missing.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// The database; if missing, the suite looks for an empty one.
    pub database: Option<u32>,
}

/// A TCP port or a unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A host name or address, and a port.
    Tcp(String, u16),
    /// A host name or address, and a port for connections with TLS. [`Address::set_tls`] says how
    /// to connect.
    #[cfg(feature = "tls")]
    Tls(String, u16, Option<TlsClient>),
    /// The path of a unix socket.
    Unix(String),
}

/// How a client connects to a port for TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMode {
    /// Without TLS.
    Plain,
    /// Without a certificate.
    Anonymous,
}

impl Endpoint {
    /// Whether its connections have TLS.
    pub fn has_tls(&self) -> bool {
        !matches!(self, Endpoint::Tcp(..) | Endpoint::Unix(_))
    }

    /// Whether clients present a certificate.
    pub fn has_certificate(&self) -> bool {
        match self {
            #[cfg(feature = "tls")]
            Endpoint::Tls(.., Some(client)) => client.has_certificate(),
            _ => false,
        }
    }

    /// The same port for TLS, reached in another way; any other endpoint as it is.
    pub fn reached(&self, mode: TlsMode) -> Endpoint {
        match (self, mode) {
            #[cfg(feature = "tls")]
            (Endpoint::Tls(host, port, _), TlsMode::Plain) => Endpoint::Tcp(host.clone(), *port),
            #[cfg(feature = "tls")]
            (Endpoint::Tls(host, port, Some(client)), TlsMode::Anonymous) => {
                Endpoint::Tls(host.clone(), *port, Some(client.without_certificate()))
            }
            _ => self.clone(),
        }
    }
}

impl Address {
    /// Parses a URL; the error describes the problem.
    pub fn parse(text: &str) -> Result<Address, String> {
        // Messages do not show the password.
        let shown = text.rsplit_once('@').map_or(text, |(_, place)| place);
        // `localhost:6379` is accepted too.
        let whole = if text.contains("://") { text.to_owned() } else { format!("redis://{text}") };
        let parsed = url::Url::parse(&whole).map_err(|error| format!("{shown}: {error}"))?;
        let database = |digits: &str| match digits {
            "" => Ok(None),
            digits => {
                digits.parse().map(Some).map_err(|_| "its path is no database number".to_owned())
            }
        };
        let decode = |text: &str| percent_decode(text);
        let user = Some(parsed.username()).filter(|user| !user.is_empty()).map(decode);
        let password = parsed.password().map(decode);
        match parsed.scheme() {
            "redis" | "rediss" | "valkey" | "valkeys" | "tcp" => {
                let host = parsed.host_str().filter(|host| !host.is_empty());
                let host = host.ok_or_else(|| format!("{shown}: no host"))?;
                let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                let port = parsed.port().unwrap_or(PORT);
                let endpoint = match parsed.scheme() {
                    #[cfg(feature = "tls")]
                    "rediss" | "valkeys" => Endpoint::Tls(host, port, None),
                    #[cfg(not(feature = "tls"))]
                    "rediss" | "valkeys" => {
                        return Err(format!(
                            "{shown}: this program was built without TLS: write redis://, or \
                             build it with the feature \"tls\""
                        ));
                    }
                    _ => Endpoint::Tcp(host, port),
                };
                let database = database(parsed.path().trim_start_matches('/'))?;
                Ok(Address { endpoint, user, password, database })
            }
            "unix" | "redis+unix" => {
                let mut pairs = parsed.query_pairs();
                let named = pairs.find(|(name, _)| name == "db").map(|(_, value)| value);
                let database = database(&named.unwrap_or_default())?;
                let endpoint = Endpoint::Unix(decode(parsed.path()));
                Ok(Address { endpoint, user, password, database })
            }
            other => Err(format!(
                "{shown}: {other}:// is not supported: write redis://, rediss:// or unix://"
            )),
        }
    }

    /// Sets how to connect if the URL asks for TLS.
    #[cfg(feature = "tls")]
    pub fn set_tls(&mut self, client: &TlsClient) {
        if let Endpoint::Tls(.., tls) = &mut self.endpoint {
            *tls = Some(client.clone());
        }
    }
}

/// Without the password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host, port) = match &self.endpoint {
            Endpoint::Tcp(host, port) => ("redis", host, port),
            #[cfg(feature = "tls")]
            Endpoint::Tls(host, port, _) => ("rediss", host, port),
            Endpoint::Unix(path) => return write!(f, "unix://{path}"),
        };
        match host.contains(':') {
            true => write!(f, "{scheme}://[{host}]:{port}"),
            false => write!(f, "{scheme}://{host}:{port}"),
        }
    }
}

/// Decodes `%40` and the like. Anything else stays unchanged.
fn percent_decode(text: &str) -> String {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if first == b'%' => {
                out.push(byte);
                rest = &after[2..];
            }
            _ => {
                out.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn urls_are_parsed_as_by_clients() {
        let check = |text: &str, expected: &str| {
            let address = Address::parse(text).expect(text);
            let Address { user, password, database, .. } = &address;
            let rest = format!("{user:?} {password:?} {database:?}").replace("\"", "");
            let rest = rest.replace("Some(", "").replace(')', "").replace("None", "-");
            assert_eq!(format!("{address} {rest}"), expected, "{text}");
        };
        check("redis://localhost", "redis://localhost:6379 - - -");
        check("localhost:7000", "redis://localhost:7000 - - -");
        check("redis://[::1]:7000/3", "redis://[::1]:7000 - - 3");
        check("redis://:p%40ss@h", "redis://h:6379 - p@ss -");
        check("redis://u:p@h:1", "redis://h:1 u p -");
        check("unix:///tmp/s?db=2", "unix:///tmp/s - - 2");
        #[cfg(feature = "tls")]
        check("rediss://:p@[::1]/2", "rediss://[::1]:6379 - p 2");
    }

    #[test]
    fn invalid_urls_are_errors() {
        #[cfg(not(feature = "tls"))]
        assert!(Address::parse("rediss://h").is_err());
        for text in ["http://h", "redis://h/x", "redis://"] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }
}
