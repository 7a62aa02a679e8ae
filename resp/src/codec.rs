//! The wire format for `tokio_util::codec::Framed`: what a client, a proxy or a test needs to
//! speak it. The server's own connections use the parser directly.

use std::fmt;
use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio_util::codec::{Decoder, Encoder};

use crate::decode::{DecodeError, decode};
use crate::encode::{encode, encode_request};
use crate::parse::{Limits, Parser, ProtocolError};
use crate::reply::{Protocol, Reply};

/// What ends a framed connection.
#[derive(Debug)]
pub enum CodecError {
    /// The transport failed.
    Io(io::Error),
    /// The peer sent what is no request.
    Protocol(ProtocolError),
    /// The peer sent what is no reply.
    Decode(DecodeError),
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CodecError::Io(error) => error.fmt(f),
            CodecError::Protocol(error) => error.fmt(f),
            CodecError::Decode(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CodecError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CodecError::Io(error) => Some(error),
            CodecError::Protocol(error) => Some(error),
            CodecError::Decode(error) => Some(error),
        }
    }
}

impl From<io::Error> for CodecError {
    fn from(error: io::Error) -> CodecError {
        CodecError::Io(error)
    }
}

impl From<ProtocolError> for CodecError {
    fn from(error: ProtocolError) -> CodecError {
        CodecError::Protocol(error)
    }
}

impl From<DecodeError> for CodecError {
    fn from(error: DecodeError) -> CodecError {
        CodecError::Decode(error)
    }
}

/// Requests, read and written. Empty ones are skipped.
#[derive(Debug)]
pub struct RequestCodec {
    parser: Parser,
}

impl RequestCodec {
    /// For a peer that is trusted with the full `limits`.
    pub fn new(limits: Limits) -> RequestCodec {
        let mut parser = Parser::new(limits);
        parser.set_authenticated(true);
        RequestCodec { parser }
    }
}

impl Default for RequestCodec {
    fn default() -> RequestCodec {
        RequestCodec::new(Limits::default())
    }
}

impl Decoder for RequestCodec {
    type Item = Vec<Bytes>;
    type Error = CodecError;

    fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Vec<Bytes>>, CodecError> {
        while let Some(end) = self.parser.parse(buffer)? {
            let args: Vec<Bytes> = self.parser.iter(buffer).map(Bytes::copy_from_slice).collect();
            buffer.advance(end);
            if !args.is_empty() {
                return Ok(Some(args));
            }
        }
        buffer.reserve(self.parser.needed());
        Ok(None)
    }
}

impl<A: AsRef<[u8]>> Encoder<&[A]> for RequestCodec {
    type Error = CodecError;

    fn encode(&mut self, args: &[A], out: &mut BytesMut) -> Result<(), CodecError> {
        encode_request(args, out);
        Ok(())
    }
}

/// Replies, read in either protocol and written in one.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplyCodec {
    /// What replies are written in; it may change between two of them.
    pub protocol: Protocol,
}

impl Decoder for ReplyCodec {
    type Item = Reply;
    type Error = CodecError;

    fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Reply>, CodecError> {
        let Some((reply, end)) = decode(buffer)? else {
            return Ok(None);
        };
        buffer.advance(end);
        Ok(Some(reply))
    }
}

impl Encoder<&Reply> for ReplyCodec {
    type Error = CodecError;

    fn encode(&mut self, reply: &Reply, out: &mut BytesMut) -> Result<(), CodecError> {
        encode(reply, self.protocol, out);
        Ok(())
    }
}

impl Encoder<Reply> for ReplyCodec {
    type Error = CodecError;

    fn encode(&mut self, reply: Reply, out: &mut BytesMut) -> Result<(), CodecError> {
        encode(&reply, self.protocol, out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests() {
        let mut codec = RequestCodec::default();
        let mut wire = BytesMut::new();
        codec.encode(&["GET", "k"][..], &mut wire).expect("encoding cannot fail");
        wire.extend_from_slice(b"*0\r\n\r\nPING\r\n*1\r\n$4\r\nQU");
        assert_eq!(codec.decode(&mut wire).ok(), Some(Some(vec!["GET".into(), "k".into()])));
        assert_eq!(codec.decode(&mut wire).ok(), Some(Some(vec!["PING".into()])));
        assert!(matches!(codec.decode(&mut wire), Ok(None)));
        wire.extend_from_slice(b"IT\r\n*x\r\n");
        assert_eq!(codec.decode(&mut wire).ok(), Some(Some(vec!["QUIT".into()])));
        assert!(matches!(
            codec.decode(&mut wire),
            Err(CodecError::Protocol(ProtocolError::InvalidMultibulkLength))
        ));
    }

    #[test]
    fn replies() {
        let mut codec = ReplyCodec::default();
        let mut wire = BytesMut::new();
        codec.encode(Reply::Null, &mut wire).expect("encoding cannot fail");
        codec.protocol = Protocol::Resp3;
        codec.encode(&Reply::Boolean(true), &mut wire).expect("encoding cannot fail");
        assert_eq!(wire, "$-1\r\n#t\r\n");
        wire.extend_from_slice(b"?");
        assert_eq!(codec.decode(&mut wire).ok(), Some(Some(Reply::Null)));
        assert_eq!(codec.decode(&mut wire).ok(), Some(Some(Reply::Boolean(true))));
        assert!(matches!(
            codec.decode(&mut wire),
            Err(CodecError::Decode(DecodeError::UnknownType(b'?')))
        ));
    }
}
