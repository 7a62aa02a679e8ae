//! The configuration of TLS: from the directives to what a handshake needs. The program uses parts
//! of it for its own connections to servers.
//!
//! `config` is what connections are accepted with: `server_config` builds it, with the certificates
//! that `credentials` reads and the rules of `client_verifier`. `state` is a connection.
//!
//! Rule: this folder reads the files that directives name; it knows no sockets. Begin with
//! `config.rs`.

pub mod ciphers;
mod client_verifier;
mod config;
pub mod credentials;
mod server_config;
mod session_cache;
pub mod state;
mod x509;

pub(crate) use config::TlsConfig;
