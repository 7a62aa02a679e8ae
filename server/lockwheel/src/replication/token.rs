//! Join tokens: what a new node needs to find its cluster, and to be admitted.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::authority::Authority;

/// What a token begins with; the number is its version.
const PREFIX: &str = "lockwheel-join-1-";

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// The address of a node.
    pub(super) address: String,
    /// The fingerprint of the cluster's authority.
    pub(super) fingerprint: [u8; 32],
    /// Until when it is valid, in seconds since 1970.
    pub(super) until: u64,
    /// The proof that a node of the cluster has made it.
    pub(super) permission: [u8; 32],
}

impl Token {
    /// A token of this authority.
    pub(super) fn new(authority: &Authority, address: &str, until: u64) -> Result<Token, String> {
        Ok(Token {
            address: address.to_owned(),
            fingerprint: authority.fingerprint()?,
            until,
            permission: authority.permission(until),
        })
    }

    /// Its text.
    pub(super) fn encode(&self) -> String {
        let until = self.until.to_be_bytes();
        let parts = [&self.fingerprint[..], &self.permission, &until, self.address.as_bytes()];
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
            let (fingerprint, rest) = bytes.split_first_chunk()?;
            let (permission, rest) = rest.split_first_chunk()?;
            let (until, address) = rest.split_first_chunk()?;
            let address = String::from_utf8(address.to_vec()).ok()?;
            let until = u64::from_be_bytes(*until);
            Some(Token { address, fingerprint: *fingerprint, until, permission: *permission })
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
        let authority = Authority::create().expect("keys");
        let token = Token::new(&authority, "10.0.0.1:7379", 5).expect("a token");
        let text = token.encode();
        assert_eq!(Token::decode(&format!(" {text}\n")), Ok(token));
        for part in ["", "x", &text[1..], &text[..90]] {
            assert!(Token::decode(part).is_err(), "{part}");
        }
    }
}
