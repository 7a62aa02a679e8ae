//! The URL of a server: its address, credentials and database.

use std::fmt;

/// The default port.
const PORT: u16 = 6379;

/// A server's address, the credentials and the database, from
/// `redis://[[user]:password@]host[:port][/database]` or `unix://path[?db=database]`.
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
    /// The path of a unix socket.
    Unix(String),
}

impl Address {
    /// Parses a URL; the error describes the problem.
    pub fn parse(text: &str) -> Result<Address, String> {
        // `localhost:6379` is accepted too.
        let whole = if text.contains("://") { text.to_owned() } else { format!("redis://{text}") };
        let parsed = url::Url::parse(&whole).map_err(|error| format!("{text}: {error}"))?;
        let database = |digits: &str| match digits {
            "" => Ok(None),
            digits => digits.parse().map(Some).map_err(|_| format!("no database: {digits}")),
        };
        let decode = |text: &str| percent_decode(text);
        let user = Some(parsed.username()).filter(|user| !user.is_empty()).map(decode);
        let password = parsed.password().map(decode);
        match parsed.scheme() {
            "redis" | "valkey" | "tcp" => {
                let host = parsed.host_str().filter(|host| !host.is_empty());
                let host = host.ok_or_else(|| format!("{text}: no host"))?;
                let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                let endpoint = Endpoint::Tcp(host, parsed.port().unwrap_or(PORT));
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
            "rediss" | "valkeys" => Err(format!("{text}: TLS is not supported yet")),
            other => Err(format!("{text}: {other}:// is not known: redis:// or unix://")),
        }
    }
}

/// Without the password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.endpoint {
            Endpoint::Tcp(host, port) if host.contains(':') => write!(f, "redis://[{host}]:{port}"),
            Endpoint::Tcp(host, port) => write!(f, "redis://{host}:{port}"),
            Endpoint::Unix(path) => write!(f, "unix://{path}"),
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
    }

    #[test]
    fn invalid_urls_are_errors() {
        for text in ["rediss://h", "http://h", "redis://h/x", "redis://"] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }
}
