//! Doubles as C's `%.*g` prints them, and Redis's random numbers. Knows no Lua.

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

/// A number as an argument of `redis.call`: an integer if it is one, else all its digits.
pub(crate) fn write_argument(out: &mut Vec<u8>, value: f64) {
    const EXACT: f64 = (1_i64 << 62) as f64;
    let integer = value as i64;
    if value.abs() <= EXACT
        && integer as f64 == value
        && !(value == 0.0 && value.is_sign_negative())
    {
        out.extend_from_slice(itoa::Buffer::new().format(integer).as_bytes());
    } else {
        write_general(out, value, 17);
    }
}

fn trim_fraction(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

/// The generator behind `math.random`: the 48-bit linear congruence of `lrand48`, which every
/// script starts from the same seed, so that it does the same wherever it runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// As `srand48` does.
    pub(crate) fn new(seed: u32) -> Random {
        Random(u64::from(seed) << 16 | 0x330E)
    }

    /// The next number and the generator after it; in `0.0..1.0`.
    pub(crate) fn next(self) -> (f64, Random) {
        const MODULUS: u64 = 1 << 48;
        const RANGE: u64 = i32::MAX as u64;
        let state = self.0.wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB) % MODULUS;
        let number = (state >> 17) % RANGE;
        (number as f64 / RANGE as f64, Random(state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_as_c_prints_them() {
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
    fn arguments_are_integers_where_they_can_be() {
        let cases = [
            (1.0, "1"),
            (1_700_000_000_000.0, "1700000000000"),
            (922_337_203_685_477.0, "922337203685477"),
            (-3.0, "-3"),
            (1.5, "1.5"),
            (1e17, "100000000000000000"),
            (2f64.powi(63), "9.2233720368547758e+18"),
            (f64::INFINITY, "inf"),
        ];
        for (value, expected) in cases {
            let mut out = Vec::new();
            write_argument(&mut out, value);
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }
}
