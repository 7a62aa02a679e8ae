//! Property tests of streams, replies and numbers.

use bytes::{Bytes, BytesMut};
use lockwheel_resp::{
    Limits, LongDouble, Parser, Protocol, ProtocolError, Reply, decode, encode, encode_request,
    format_double, parse_double, parse_integer,
};
use proptest::collection::vec;
use proptest::prelude::*;

type Requests = Vec<Vec<Vec<u8>>>;

/// Parses `stream` in pieces that end at `cuts`; returns the requests and the error, if any.
fn read(stream: &[u8], cuts: &[usize], limits: Limits) -> (Requests, Option<ProtocolError>) {
    let mut parser = Parser::new(limits);
    let mut requests = Requests::new();
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (stream.len() + 1)).collect();
    ends.push(stream.len());
    ends.sort_unstable();
    let mut start = 0;
    for end in ends {
        loop {
            let buffer = &stream[start..end];
            match parser.parse(buffer) {
                Ok(None) => break,
                Ok(Some(length)) => {
                    assert!(0 < length && length <= buffer.len());
                    let mut args = Vec::new();
                    parser.args(buffer, &mut args);
                    requests.push(args.into_iter().map(<[u8]>::to_vec).collect());
                    start += length;
                }
                Err(error) => return (requests, Some(error)),
            }
        }
    }
    (requests, None)
}

/// Limits small enough for short streams to reach them.
fn small_limits() -> Limits {
    Limits {
        query_buffer_bytes_max: 60,
        inline_bytes_max: 24,
        args_max: 8,
        bulk_bytes_max: 30,
        unauthenticated_args_max: 6,
        unauthenticated_bulk_bytes_max: 25,
    }
}

/// Streams that are valid more often than random bytes.
fn streams() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        vec(vec(any::<u8>(), 0..8), 1..5).prop_map(|args| {
            let mut out = BytesMut::new();
            encode_request(&args, &mut out);
            out.to_vec()
        }),
        "\\*(-?[0-9]{1,3})\r\n".prop_map(String::into_bytes),
        "\\$(-?[0-9]{1,3})\r\n".prop_map(String::into_bytes),
        "[a-c \t'\"\\\\x0-2]{0,20}\r?\n".prop_map(String::into_bytes),
        vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'*'), Just(b'$'), any::<u8>()], 0..6),
    ];
    vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

fn leaves() -> impl Strategy<Value = Reply> {
    let bytes = || vec(any::<u8>(), 0..12).prop_map(Bytes::from);
    prop_oneof![
        "[ -~]{0,12}".prop_map(|text| Reply::Simple(text.into())),
        "[A-Z]{1,6} [ -~]{0,12}".prop_map(Reply::error),
        any::<i64>().prop_map(Reply::Integer),
        bytes().prop_map(Reply::Bulk),
        Just(Reply::Null),
        any::<bool>().prop_map(Reply::Boolean),
        any::<f64>()
            .prop_filter("NaN equals nothing", |value| !value.is_nan())
            .prop_map(Reply::Double),
        "-?[0-9]{1,30}".prop_map(|digits| Reply::BigNumber(digits.into())),
        bytes().prop_map(|text| Reply::Verbatim { format: *b"txt", text }),
    ]
}

fn replies() -> impl Strategy<Value = Reply> {
    leaves().prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Reply::Array),
            vec(inner.clone(), 0..5).prop_map(Reply::Set),
            vec(inner.clone(), 0..5).prop_map(Reply::Push),
            vec((inner.clone(), inner), 0..3).prop_map(Reply::Map),
        ]
    })
}

/// A reply as a RESP2 client decodes it.
fn in_resp2(reply: &Reply) -> Reply {
    let all = |items: &[Reply]| Reply::Array(items.iter().map(in_resp2).collect());
    match reply {
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => all(items),
        Reply::Map(pairs) => {
            Reply::Array(pairs.iter().flat_map(|(k, v)| [in_resp2(k), in_resp2(v)]).collect())
        }
        Reply::Double(value) => Reply::bulk(format_double(*value)),
        Reply::Boolean(value) => Reply::Integer(i64::from(*value)),
        Reply::BigNumber(text) | Reply::Verbatim { text, .. } => Reply::Bulk(text.clone()),
        same => same.clone(),
    }
}

/// Failures are printed, not kept in files.
fn config() -> ProptestConfig {
    ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn splitting_stream_changes_nothing(stream in streams(), cuts in vec(any::<usize>(), 0..8)) {
        for limits in [Limits::default(), small_limits()] {
            let whole = read(&stream, &[], limits);
            prop_assert_eq!(&read(&stream, &cuts, limits), &whole);
            let everywhere: Vec<usize> = (0..stream.len()).collect();
            prop_assert_eq!(&read(&stream, &everywhere, limits), &whole);
        }
    }

    #[test]
    fn encoded_requests_parse_to_the_same(
        requests in vec(vec(vec(any::<u8>(), 0..40), 1..9), 0..6),
    ) {
        let mut stream = BytesMut::new();
        for args in &requests {
            encode_request(args, &mut stream);
        }
        prop_assert_eq!(read(&stream, &[], Limits::default()), (requests, None));
    }

    #[test]
    fn quoted_words_parse_to_the_same(words in vec(vec(any::<u8>(), 0..12), 1..6)) {
        let quote = |word: &Vec<u8>| -> String {
            let escaped: String = word.iter().map(|byte| format!("\\x{byte:02X}")).collect();
            format!("\"{escaped}\"")
        };
        let line = words.iter().map(quote).collect::<Vec<_>>().join(" ") + "\n";
        prop_assert_eq!(read(line.as_bytes(), &[], Limits::default()), (vec![words], None));
    }

    #[test]
    fn encoded_replies_decode_to_the_same(reply in replies()) {
        for (protocol, expected) in
            [(Protocol::Resp2, in_resp2(&reply)), (Protocol::Resp3, reply.clone())]
        {
            let mut out = BytesMut::new();
            encode(&reply, protocol, &mut out);
            prop_assert_eq!(decode(&out), Ok(Some((expected, out.len()))));
        }
    }

    #[test]
    fn decoder_accepts_any_input_without_panic(
        bytes in vec(any::<u8>(), 0..64),
        stream in streams(),
    ) {
        for input in [bytes, stream] {
            if let Ok(Some((_, length))) = decode(&input) {
                prop_assert!(0 < length && length <= input.len());
            }
        }
    }

    #[test]
    fn only_canonical_integers_parse(value: i64, text in "[-+ ]?[0-9]{0,21}") {
        prop_assert_eq!(parse_integer(value.to_string().as_bytes()), Some(value));
        let canonical = text.parse::<i64>().ok().filter(|value| value.to_string() == text);
        prop_assert_eq!(parse_integer(text.as_bytes()), canonical);
    }

    #[test]
    fn printed_doubles_parse_to_the_same(bits: u64, small in -1_000_000_000_i64..1_000_000_000) {
        for value in [f64::from_bits(bits), small as f64 / 1000.0, small as f64] {
            let text = format_double(value);
            prop_assert!(text.as_bytes().len() <= 25);
            match parse_double(text.as_bytes()) {
                Some(read) => prop_assert_eq!(read.to_bits(), value.to_bits()),
                None => prop_assert!(value.is_nan()),
            }
        }
    }

    #[test]
    fn decimals_parse_as_in_standard_library(
        text in "[-+]?[0-9]{0,20}\\.?[0-9]{0,20}([eE][-+]?[0-9]{1,2})?",
    ) {
        prop_assert_eq!(parse_double(text.as_bytes()), text.parse().ok());
    }

    #[test]
    fn hexadecimals_parse_exactly(mantissa in 0_u64..1 << 53, power in 0_u32..60) {
        let text = format!("0x{mantissa:x}p-{power}");
        let expected = mantissa as f64 / 2f64.powi(power as i32);
        prop_assert_eq!(parse_double(text.as_bytes()), Some(expected));
    }

    #[test]
    fn long_doubles_add_integers_exactly(left in any::<i64>(), right in any::<i64>()) {
        // 64 bits of mantissa hold every such sum.
        let sum = LongDouble::from(left).checked_add(LongDouble::from(right));
        let expected = (i128::from(left) + i128::from(right)).to_string();
        prop_assert_eq!(sum.map(|sum| sum.to_string()), Some(expected));
    }

    #[test]
    fn long_doubles_represent_doubles(value in -1e15..1e15_f64) {
        let long = LongDouble::parse(format!("{value:e}").as_bytes());
        let read: Option<f64> = long.and_then(|long| long.to_string().parse().ok());
        // A small number has more than 17 decimals.
        prop_assert!(read.is_some_and(|read| (read - value).abs() <= 1e-17 + value.abs() * 1e-16));
    }

    #[test]
    fn long_double_parser_accepts_any_text_without_panic(text in "[-+0-9a-fxXpPinfINF.]{0,20}") {
        if let Some(number) = LongDouble::parse(text.as_bytes()).filter(|n| n.is_finite()) {
            prop_assert!(LongDouble::parse(number.to_string().as_bytes()).is_some());
        }
    }
}
