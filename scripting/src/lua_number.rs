//! Numbers as C's `%.*g` prints them and `strtod` reads them.
//! Independent of Lua.

use lockwheel_resp::format_double;

/// Appends `value` with `precision` significant digits, as C's `%.{precision}g`.
pub(crate) fn write_general(out: &mut Vec<u8>, value: f64, precision: usize) {
    if value.is_nan() {
        out.extend_from_slice(if value.is_sign_negative() { b"-nan" } else { b"nan" });
        return;
    }
    if value.is_infinite() {
        out.extend_from_slice(if value < 0.0 { b"-inf" } else { b"inf" });
        return;
    }
    let precision = precision.max(1);
    let scientific = format!("{:.*e}", precision - 1, value);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= precision as i32 {
        out.extend_from_slice(trim_fraction(mantissa).as_bytes());
        let sign = if exponent < 0 { '-' } else { '+' };
        out.extend_from_slice(format!("e{sign}{:02}", exponent.abs()).as_bytes());
    } else {
        let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
        out.extend_from_slice(trim_fraction(&format!("{value:.decimals$}")).as_bytes());
    }
}

/// Writes a number as an argument of `redis.call`: as an integer if it is one, else with the fewest
/// digits that distinguish it from all other numbers.
pub(crate) fn write_argument(out: &mut Vec<u8>, value: f64) {
    const EXACT: f64 = (1_i64 << 62) as f64;
    let integer = value as i64;
    if value.abs() <= EXACT && integer as f64 == value {
        out.extend_from_slice(itoa::Buffer::new().format(integer).as_bytes());
    } else if value.is_finite() {
        out.extend_from_slice(format_double(value).as_bytes());
    } else {
        write_general(out, value, 17);
    }
}

/// Reads a string as a number as Lua does: blanks around it and hexadecimal digits are allowed.
pub(crate) fn parse_number(text: &[u8]) -> Option<f64> {
    let text = text.trim_ascii();
    let (number, len) = strtod(text)?;
    (len == text.len()).then_some(number)
}

/// The number at the start of a string and its length, as C's `strtod` reads it.
pub(crate) fn strtod(text: &[u8]) -> Option<(f64, usize)> {
    let sign = usize::from(matches!(text, [b'+' | b'-', ..]));
    let rest = &text[sign..];
    let negative = text.first() == Some(&b'-');
    let signed = |value: f64| if negative { -value } else { value };
    let starts =
        |word: &[u8]| rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    for (word, value) in
        [(&b"infinity"[..], f64::INFINITY), (b"inf", f64::INFINITY), (b"nan", f64::NAN)]
    {
        if starts(word) {
            return Some((signed(value), sign + word.len()));
        }
    }
    if starts(b"0x")
        && let Some((value, len)) = hexadecimal(&rest[2..])
    {
        return Some((signed(value), sign + 2 + len));
    }
    let len = decimal_length(rest)?;
    let value: f64 = std::str::from_utf8(&rest[..len]).ok()?.parse().ok()?;
    Some((signed(value), sign + len))
}

/// The length of the decimal number at the start of a string.
fn decimal_length(text: &[u8]) -> Option<usize> {
    let digits = |at: usize| text[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(0);
    let mut len = whole;
    if text.get(len) == Some(&b'.') {
        let fraction = digits(len + 1);
        if whole + fraction == 0 {
            return None;
        }
        len += 1 + fraction;
    } else if whole == 0 {
        return None;
    }
    if matches!(text.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(text.get(len + 1), Some(b'+' | b'-')));
        let exponent = digits((len + 1 + sign).min(text.len()));
        if exponent > 0 {
            len += 1 + sign + exponent;
        }
    }
    Some(len)
}

/// Reads hexadecimal digits with an optional fraction and binary exponent. Returns the number and
/// its length. Digits beyond the precision of a double count for the magnitude only.
fn hexadecimal(text: &[u8]) -> Option<(f64, usize)> {
    let digit = |at: usize| text.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let (mut value, mut at, mut digits) = (0_f64, 0, 0);
    while let Some(next) = digit(at) {
        value = value * 16.0 + f64::from(next);
        (at, digits) = (at + 1, digits + 1);
    }
    if text.get(at) == Some(&b'.') {
        let mut scale = 1.0 / 16.0;
        let mut end = at + 1;
        while let Some(next) = digit(end) {
            value += f64::from(next) * scale;
            scale /= 16.0;
            (end, digits) = (end + 1, digits + 1);
        }
        at = end;
    }
    if digits == 0 {
        return None;
    }
    if matches!(text.get(at), Some(b'p' | b'P')) {
        let sign = usize::from(matches!(text.get(at + 1), Some(b'+' | b'-')));
        let rest = text.get(at + 1 + sign..).unwrap_or_default();
        let len = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if len > 0 {
            let exponent = std::str::from_utf8(&rest[..len]).ok()?.parse().unwrap_or(9_999_i32);
            let exponent = if text.get(at + 1) == Some(&b'-') { -exponent } else { exponent };
            value *= 2_f64.powi(exponent);
            at += 1 + sign + len;
        }
    }
    Some((value, at))
}

fn trim_fraction(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_by_c() {
        let cases = [
            (0.1, 17, "0.10000000000000001"),
            (0.1, 14, "0.1"),
            (1e15, 14, "1e+15"),
            (1e100, 17, "1e+100"),
            (1e-7, 17, "9.9999999999999995e-08"),
            (123456.0, 14, "123456"),
            (-0.0, 17, "-0"),
            (f64::NEG_INFINITY, 14, "-inf"),
            (9.999999999999999e14, 14, "1e+15"),
            (0.0001, 14, "0.0001"),
            (0.00001, 14, "1e-05"),
        ];
        for (value, precision, expected) in cases {
            let mut out = Vec::new();
            write_general(&mut out, value, precision);
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }

    #[test]
    fn integral_arguments_are_written_as_integers() {
        let cases = [
            (1.0, "1"),
            (1_700_000_000_000.0, "1700000000000"),
            (922_337_203_685_477.0, "922337203685477"),
            (-3.0, "-3"),
            (1.5, "1.5"),
            (1e17, "100000000000000000"),
            (2f64.powi(63), "9223372036854776000"),
            (0.1, "0.1"),
            (-0.0, "0"),
            (1e21, "1e+21"),
            (f64::INFINITY, "inf"),
        ];
        for (value, expected) in cases {
            let mut out = Vec::new();
            write_argument(&mut out, value);
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }
}
