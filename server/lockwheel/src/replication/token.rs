//! Join tokens: what a new node needs to find its cluster, and to be admitted, once.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lockwheel_raft::{JoinToken, Peer};
use ring::rand::{SecureRandom, SystemRandom};

use super::keys::sha_256;

/// What a token begins with; the number is its version.
const PREFIX: &str = "lockwheel-join-2-";

/// A join token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// The address of the node where it was made.
    address: String,
    /// The fingerprint of its key.
    fingerprint: String,
    /// Moment until which it is valid, in seconds since 1970.
    pub(super) until: u64,
    /// Secret whose digest the cluster keeps until the token is used.
    secret: [u8; 32],
}

impl Token {
    /// A new token of this node.
    pub(super) fn new(address: &str, fingerprint: &str, until: u64) -> Result<Token, String> {
        let mut secret = [0; 32];
        SystemRandom::new().fill(&mut secret).map_err(|error| error.to_string())?;
        let (address, fingerprint) = (address.to_owned(), fingerprint.to_owned());
        Ok(Token { address, fingerprint, until, secret })
    }

    /// The node where it was made.
    pub(super) fn maker(&self) -> Peer {
        let (address, fingerprint) = (self.address.clone(), self.fingerprint.clone());
        Peer { address, fingerprint, ..Peer::default() }
    }

    /// The proof that its user has it.
    pub(super) fn secret(&self) -> Vec<u8> {
        self.secret.to_vec()
    }

    /// What the cluster keeps of it.
    pub(super) fn record(&self) -> JoinToken {
        JoinToken { digest: sha_256(&self.secret), until: self.until }
    }

    /// Its text.
    pub(super) fn encode(&self) -> String {
        let until = self.until.to_be_bytes();
        let words = format!("{} {}", self.fingerprint, self.address);
        let parts = [&self.secret[..], &until, words.as_bytes()];
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(parts.concat()))
    }

    /// Reads its text.
    ///
    /// # Errors
    /// If it is no token.
    pub(super) fn decode(text: &str) -> Result<Token, String> {
        let token = || {
            let encoded = text.trim().strip_prefix(PREFIX)?;
            let bytes = URL_SAFE_NO_PAD.decode(encoded).ok()?;
            let (secret, rest) = bytes.split_first_chunk()?;
            let (until, words) = rest.split_first_chunk()?;
            let (fingerprint, address) = std::str::from_utf8(words).ok()?.split_once(' ')?;
            let (address, fingerprint) = (address.to_owned(), fingerprint.to_owned());
            let until = u64::from_be_bytes(*until);
            Some(Token { address, fingerprint, until, secret: *secret })
        };
        token()
            .ok_or_else(|| "this is not a join token; 'lockwheel raft token' prints one".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_read_back() {
        let token = Token::new("10.0.0.1:7379", "0ab1", 5).expect("a token");
        let text = token.encode();
        assert_eq!(Token::decode(&format!(" {text}\n")), Ok(token));
        for part in ["", "x", &text[1..], &text[..60]] {
            assert!(Token::decode(part).is_err(), "{part}");
        }
    }
}
