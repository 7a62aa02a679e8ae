//! Random bytes, split at random places. Checks that nothing panics, and that the requests are the
//! same as without the splits.
//!
//! Run it with `-malloc_limit_mb=64`, so that a declared length cannot cause an allocation.

use arbitrary::Arbitrary;
use lockwheel_resp::parse::{Limits, Parser, ProtocolError};

/// Most room that the parser may ask for: a declared size is untrusted input.
const NEEDED_BYTES_MAX: usize = 16 * 1024 * 1024;

#[derive(Arbitrary, Debug)]
pub(crate) struct Input<'a> {
    stream: &'a [u8],
    cuts: Vec<u16>,
    authenticated: bool,
    small_limits: bool,
}

type Requests = Vec<Vec<Vec<u8>>>;

pub(crate) fn check(input: Input) {
    let whole = read(&input, &[]);
    assert_eq!(read(&input, &input.cuts), whole);
    let every_byte: Vec<u16> = (0..input.stream.len().min(4096) as u16).collect();
    assert_eq!(read(&input, &every_byte), whole);
}

fn read(input: &Input, cuts: &[u16]) -> (Requests, Option<ProtocolError>) {
    let mut parser = Parser::new(limits(input.small_limits));
    parser.set_authenticated(input.authenticated);
    let length = input.stream.len();
    let mut ends: Vec<_> = cuts.iter().map(|&cut| usize::from(cut) % (length + 1)).collect();
    ends.push(length);
    ends.sort_unstable();
    let mut requests = Requests::new();
    let mut start = 0;
    for end in ends {
        loop {
            let buffer = &input.stream[start..end];
            match parser.parse(buffer) {
                Ok(None) => break,
                Ok(Some(used)) => {
                    assert!(0 < used && used <= buffer.len());
                    requests.push(parser.iter(buffer).map(<[u8]>::to_vec).collect());
                    start += used;
                }
                Err(error) => return (requests, Some(error)),
            }
        }
        assert!(parser.needed() <= NEEDED_BYTES_MAX);
    }
    (requests, None)
}

/// Limits that a few bytes can reach, or the usual ones.
fn limits(small: bool) -> Limits {
    if !small {
        return Limits::default();
    }
    Limits {
        query_buffer_bytes_max: 60,
        inline_bytes_max: 24,
        args_max: 8,
        bulk_bytes_max: 30,
        unauthenticated_args_max: 6,
        unauthenticated_bulk_bytes_max: 25,
    }
}
