//! Integers and doubles, parsed and printed exactly as Redis does.

use std::fmt::{self, Write};

use memchr::memchr;

/// Parses an integer in the only form that Redis prints: no plus, no leading zero, no space, no
/// `-0`; all of `i64`.
#[inline]
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    // Most counters of holders.
    match text {
        [digit @ b'0'..=b'9'] => Some(i64::from(digit - b'0')),
        _ => parse_longer(text),
    }
}

/// As [`parse_integer`], for any text.
fn parse_longer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [] => return None,
        [b'0', rest @ ..] => return (rest.is_empty() && !negative).then_some(0),
        _ if digits.len() <= SAFE_DIGITS => return parse_short(negative, digits),
        _ => {}
    }
    let mut value: i64 = 0;
    for byte in digits {
        if !byte.is_ascii_digit() {
            return None;
        }
        // Negative while parsing, because the minimum has no positive counterpart.
        value = value.checked_mul(10)?.checked_sub(i64::from(byte - b'0'))?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

/// Any number of this many digits fits into an `i64`.
const SAFE_DIGITS: usize = 18;

/// As [`parse_integer`], for at most [`SAFE_DIGITS`] digits.
fn parse_short(negative: bool, digits: &[u8]) -> Option<i64> {
    let mut value: i64 = 0;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.wrapping_mul(10).wrapping_add(i64::from(digit));
    }
    Some(if negative { value.wrapping_neg() } else { value })
}

/// Parses a double in a command's argument: all that C's `strtod` accepts, and nothing around it.
/// These are decimal and hexadecimal floats, `inf` and `infinity` in any case; not NaN, no space,
/// no number that rounds to infinity, and none except zero that rounds to zero.
pub fn parse_double(text: &[u8]) -> Option<f64> {
    if let Some((negative, hex)) = strip_hex_prefix(text) {
        let magnitude = Hex::parse(hex)?.round(&DOUBLE)?;
        let value = magnitude.to_double();
        return Some(if negative { -value } else { value });
    }
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let in_range = match value {
        _ if value.is_nan() => false,
        _ if value.is_infinite() => !text.iter().any(u8::is_ascii_digit),
        _ if value == 0.0 => !has_nonzero_digit(text),
        _ => true,
    };
    in_range.then_some(value)
}

/// Prints a double as Redis 7.2 prints scores and RESP3 doubles.
///
/// Integers up to half the range of `i64` have all their digits and no exponent. Other doubles have
/// the fewest digits that parse to the same double: without an exponent if the point is among the
/// digits or near them, otherwise as `1.5e+30`, `1e-7` (no padding zero in the exponent). Redis's
/// printer uses one digit more than the fewest for one double in a thousand.
pub fn format_double(value: f64) -> DoubleText {
    let mut text = DoubleText::default();
    // The buffer holds every double: writing cannot fail.
    let _ = write_double(value, &mut text);
    text
}

/// The text of a double, on the stack.
#[derive(Clone, Copy, Default)]
pub struct DoubleText {
    bytes: [u8; DOUBLE_TEXT_BYTES_MAX],
    len: usize,
}

impl DoubleText {
    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// The text as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl AsRef<[u8]> for DoubleText {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Display for DoubleText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for DoubleText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl fmt::Write for DoubleText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// Room for a text, of which the longest has 25 bytes: a sign, 17 digits and 7 zeros.
const DOUBLE_TEXT_BYTES_MAX: usize = 32;
/// Largest integral double that is printed as an integer: half of `i64::MAX`, rounded.
const INTEGRAL_MAX: f64 = (1_u64 << 62) as f64;
/// Most zeros after the digits of a number without an exponent.
const TRAILING_ZEROS_MAX: i32 = 7;
/// Most decimals of a number without an exponent.
const DECIMALS_MAX: i32 = 6;
/// Bound of the power of ten below which a number with more decimals has no exponent either.
const POWER_MAX: i32 = 4;

fn write_double(value: f64, out: &mut DoubleText) -> fmt::Result {
    if value.is_nan() {
        return out.write_str("nan");
    }
    if value.is_sign_negative() {
        out.write_str("-")?;
    }
    let magnitude = value.abs();
    if magnitude.is_infinite() {
        return out.write_str("inf");
    }
    if magnitude <= INTEGRAL_MAX && magnitude.trunc() == magnitude {
        return out.write_str(itoa::Buffer::new().format(magnitude as u64));
    }
    let mut scientific = DoubleText::default();
    write!(scientific, "{magnitude:e}")?;
    let (digits, power) = scientific.as_str().split_once('e').ok_or(fmt::Error)?;
    let power: i32 = power.parse().map_err(|_| fmt::Error)?;
    let (first, others) = digits.split_once('.').unwrap_or((digits, ""));
    write_digits(first, others, power, out)
}

/// Writes `first.others` times ten to the `power`, with an exponent or without.
fn write_digits(first: &str, others: &str, power: i32, out: &mut DoubleText) -> fmt::Result {
    let decimals = others.len() as i32 - power;
    if (-TRAILING_ZEROS_MAX..=0).contains(&decimals) {
        write!(out, "{first}{others}{:0<1$}", "", decimals.unsigned_abs() as usize)
    } else if decimals > 0 && (decimals <= DECIMALS_MAX || power.abs() < POWER_MAX) {
        match usize::try_from(power) {
            Ok(whole) => write!(out, "{first}{}.{}", &others[..whole], &others[whole..]),
            Err(_) => {
                let zeros = power.unsigned_abs() as usize - 1;
                write!(out, "0.{:0<1$}{first}{others}", "", zeros)
            }
        }
    } else {
        let point = if others.is_empty() { "" } else { "." };
        write!(out, "{first}{point}{others}e{power:+}")
    }
}

/// A binary floating-point format: values are `mantissa * 2^exponent`.
pub(crate) struct Format {
    /// Bits of the mantissa.
    pub(crate) precision: u32,
    /// The exponent of the smallest numbers.
    pub(crate) exponent_min: i32,
    /// The exponent of the largest numbers.
    pub(crate) exponent_max: i32,
}

const DOUBLE: Format = Format { precision: 53, exponent_min: -1074, exponent_max: 971 };

/// A number rounded to a format: `mantissa * 2^exponent`, with the longest mantissa that the format
/// allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rounded {
    pub(crate) mantissa: u64,
    pub(crate) exponent: i32,
}

impl Rounded {
    fn to_double(self) -> f64 {
        let implicit_bit = 1 << (DOUBLE.precision - 1);
        if self.mantissa < implicit_bit {
            return f64::from_bits(self.mantissa);
        }
        let biased = (self.exponent - DOUBLE.exponent_min + 1) as u64;
        f64::from_bits((self.mantissa - implicit_bit) | (biased << (DOUBLE.precision - 1)))
    }
}

/// Rounds `mantissa * 2^exponent` to the nearest number of a format, ties to even; `None` if it is
/// larger than the largest. `more` means that the exact mantissa has more bits below the last one;
/// then `mantissa` must have at least two bits more than the format.
pub(crate) fn round(mantissa: u128, more: bool, exponent: i64, format: &Format) -> Option<Rounded> {
    if mantissa == 0 {
        return Some(Rounded { mantissa: 0, exponent: format.exponent_min });
    }
    let length = i64::from(u128::BITS - mantissa.leading_zeros());
    let target = (exponent + length - i64::from(format.precision)).max(format.exponent_min.into());
    let (mut mantissa, mut exponent) = (shift_right(mantissa, more, target - exponent), target);
    if mantissa >> format.precision != 0 {
        mantissa >>= 1;
        exponent += 1;
    }
    if exponent > format.exponent_max.into() {
        return None;
    }
    Some(Rounded { mantissa: mantissa as u64, exponent: exponent as i32 })
}

/// Shifts out `count` bits, rounding to nearest, ties to even; a negative count shifts in zeros.
pub(crate) fn shift_right(value: u128, more: bool, count: i64) -> u128 {
    let count = match count {
        ..=0 => return value << count.unsigned_abs(),
        1..=127 => count,
        128 => return u128::from(value > HALF || value == HALF && more),
        _ => return 0,
    };
    let kept = value >> count;
    let lost = value & ((1 << count) - 1);
    let half = 1 << (count - 1);
    let up = lost > half || lost == half && (more || kept & 1 == 1);
    kept + u128::from(up)
}

const HALF: u128 = 1 << 127;

/// A hexadecimal float, exact except for bits far below any format's precision.
pub(crate) struct Hex {
    mantissa: u128,
    more: bool,
    exponent: i64,
}

impl Hex {
    /// Parses the text after `0x`: digits with at most one point, and a power of two.
    pub(crate) fn parse(text: &[u8]) -> Option<Hex> {
        let (digits, power) = match text.iter().position(|byte| matches!(byte, b'p' | b'P')) {
            Some(at) => (&text[..at], parse_exponent(&text[at + 1..])?),
            None => (text, 0),
        };
        let point = memchr(b'.', digits).unwrap_or(digits.len());
        let fraction = digits.get(point + 1..).unwrap_or_default();
        let mut hex = Hex { mantissa: 0, more: false, exponent: power };
        for byte in digits[..point].iter().chain(fraction) {
            let digit = char::from(*byte).to_digit(16)?;
            if hex.mantissa >> (u128::BITS - 4) == 0 {
                hex.mantissa = hex.mantissa << 4 | u128::from(digit);
            } else {
                hex.more |= digit != 0;
                hex.exponent += 4;
            }
        }
        hex.exponent -= 4 * fraction.len() as i64;
        (point + fraction.len() > 0).then_some(hex)
    }

    /// Rounds to a format. `None` if the result is infinite, or zero for a number other than zero.
    pub(crate) fn round(&self, format: &Format) -> Option<Rounded> {
        let rounded = round(self.mantissa, self.more, self.exponent, format)?;
        (rounded.mantissa != 0 || self.mantissa == 0).then_some(rounded)
    }
}

/// The text after `0x`, and whether there is a minus before it.
pub(crate) fn strip_hex_prefix(text: &[u8]) -> Option<(bool, &[u8])> {
    match text {
        [b'0', b'x' | b'X', hex @ ..] | [b'+', b'0', b'x' | b'X', hex @ ..] => Some((false, hex)),
        [b'-', b'0', b'x' | b'X', hex @ ..] => Some((true, hex)),
        _ => None,
    }
}

/// Parses a signed decimal exponent. Larger ones than `EXPONENT_MAX` are all the same.
pub(crate) fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut exponent = 0;
    for byte in digits {
        let digit = char::from(*byte).to_digit(10)?;
        exponent = (exponent * 10 + i64::from(digit)).min(EXPONENT_MAX);
    }
    Some(if negative { -exponent } else { exponent })
}

/// Bound of exponents: no sequence of digits is long enough to bring a greater one back into range.
const EXPONENT_MAX: i64 = 1 << 48;

fn has_nonzero_digit(decimal: &[u8]) -> bool {
    decimal
        .iter()
        .take_while(|byte| !matches!(byte, b'e' | b'E'))
        .any(|byte| matches!(byte, b'1'..=b'9'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_parse_only_in_canonical_form() {
        for (text, expected) in [
            ("0", Some(0)),
            ("7", Some(7)),
            ("-7", Some(-7)),
            ("1234567890", Some(1_234_567_890)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("99999999999999999999", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("+1", None),
            ("00", None),
            ("01", None),
            ("-01", None),
            (" 1", None),
            ("1 ", None),
            ("1.0", None),
            ("1e3", None),
            ("0x10", None),
            ("1\0", None),
        ] {
            assert_eq!(parse_integer(text.as_bytes()), expected, "{text:?}");
        }
    }

    /// The results are those of `ZADD key text member` on Redis 7.0.15.
    #[test]
    fn doubles_parse_as_in_redis() {
        for (text, expected) in [
            ("1", 1.0),
            ("+1", 1.0),
            ("-1.5", -1.5),
            (".5", 0.5),
            ("5.", 5.0),
            ("00012", 12.0),
            ("1e5", 1e5),
            ("1E+5", 1e5),
            ("1e00000000000000000000005", 1e5),
            ("0e99999999999", 0.0),
            ("1e-320", 1e-320),
            ("4.9e-324", 5e-324),
            ("1.7976931348623157e308", f64::MAX),
            ("inf", f64::INFINITY),
            ("+iNf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("0x10", 16.0),
            ("-0X1F", -31.0),
            ("0x1.8", 1.5),
            ("0x.8", 0.5),
            ("0x8.", 8.0),
            ("0x1p4", 16.0),
            ("0x1P+4", 16.0),
            ("0x0p99999999999999999999", 0.0),
            ("0x1P-1074", 5e-324),
            ("0x1.8p-1075", 5e-324),
            ("0x1.fffffffffffffp1023", f64::MAX),
            ("0x1.00000000000008", 1.0),
            ("0x1.000000000000080000000000000000000000001", 1.0 + f64::EPSILON),
            ("0x1.00000000000018", 1.0 + 2.0 * f64::EPSILON),
            (
                "0x123456789abcdef0123456789abcdef0123456789",
                0x123456789abcdf_u64 as f64 * 2f64.powi(108),
            ),
        ] {
            assert_eq!(parse_double(text.as_bytes()), Some(expected), "{text:?}");
        }
        assert!(parse_double(b"-0").is_some_and(|zero| zero.is_sign_negative()));
    }

    #[test]
    fn invalid_doubles_are_refused() {
        for text in [
            "",
            ".",
            "+",
            "-",
            "e5",
            "1e",
            "1e+",
            "++1",
            "- 1",
            " 1",
            "1 ",
            "\t1",
            "1\n",
            "1\0",
            "\x001",
            "1,5",
            "1_0",
            "1d",
            "1f",
            "1e5x",
            "infinit",
            "nan",
            "NaN",
            "-nan",
            "nan(1)",
            "0x",
            "0x.",
            "0x.p1",
            "0x1p",
            "0x1pz",
            "0x 1",
            "0x1.1.1",
            "0xg",
            "--0x1",
            "1e400",
            "-1e400",
            "1e-400",
            "2e-324",
            "1.7976931348623159e308",
            "0x1p1024",
            "0x1p-1075",
            "0x1.fffffffffffff8p1023",
            "0x1p99999999999999999999",
            "0x1p-99999999999999999999",
        ] {
            assert_eq!(parse_double(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_double(b"1\xff"), None);
        assert_eq!(parse_double("1".repeat(5000).as_bytes()), None);
    }

    #[test]
    fn doubles_print_as_in_redis() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (3.0, "3"),
            (-3.0, "-3"),
            (0.1, "0.1"),
            (0.1 + 0.2, "0.30000000000000004"),
            (-1.5, "-1.5"),
            (1e5, "100000"),
            (1e18, "1000000000000000000"),
            (2f64.powi(61), "2305843009213693952"),
            (2f64.powi(62), "4611686018427387904"),
            (2f64.powi(62) * 1.5, "6917529027641082000"),
            (5e18, "5e+18"),
            (1e20, "1e+20"),
            (1.5e300, "1.5e+300"),
            (1.2345678901234568e22, "12345678901234568000000"),
            (-1.2345678901234567e23, "-123456789012345670000000"),
            (1.2345678901234568e24, "1.2345678901234568e+24"),
            (7.296538342788e19, "72965383427880000000"),
            (0.001, "0.001"),
            (0.000001, "0.000001"),
            (0.0000001, "1e-7"),
            (0.00012345678, "1.2345678e-4"),
            (0.0012345678, "0.0012345678"),
            (1234.123456789, "1234.123456789"),
            (12345.123456, "12345.123456"),
            (12345.1234567, "1.23451234567e+4"),
            (f64::MAX, "1.7976931348623157e+308"),
            (-2.2250738585072014e-308, "-2.2250738585072014e-308"),
            (5e-324, "5e-324"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
            (-f64::NAN, "nan"),
        ] {
            assert_eq!(format_double(value).as_str(), expected, "{value:e}");
        }
    }
}
