//! The 80-bit floats of `INCRBYFLOAT` and `HINCRBYFLOAT`: with 64 bits of mantissa, decimal sums
//! are as people expect. The results are exact in every bit, on every machine.

use std::cmp::Ordering;
use std::fmt;

use crate::number::{Format, Hex, Rounded, parse_exponent, round, shift_right, strip_hex_prefix};

/// An x87 extended-precision number, not NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongDouble {
    negative: bool,
    magnitude: Magnitude,
}

impl LongDouble {
    /// Zero.
    pub const ZERO: LongDouble = LongDouble {
        negative: false,
        magnitude: Magnitude::Finite(Rounded { mantissa: 0, exponent: FORMAT.exponent_min }),
    };

    /// Parses all that C's `strtold` accepts, and nothing around it: decimal and hexadecimal
    /// floats, `inf` and `infinity` in any case. `None` for NaN, for numbers that round to
    /// infinity, for numbers other than zero that round to zero, and for overlong text.
    pub fn parse(text: &[u8]) -> Option<LongDouble> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        if let Some((negative, hex)) = strip_hex_prefix(text) {
            let magnitude = Magnitude::Finite(Hex::parse(hex)?.round(&FORMAT)?);
            return Some(LongDouble { negative, magnitude });
        }
        let (negative, unsigned) = match text {
            [b'-', unsigned @ ..] => (true, unsigned),
            [b'+', unsigned @ ..] => (false, unsigned),
            unsigned => (false, unsigned),
        };
        let magnitude = match unsigned.to_ascii_lowercase().as_slice() {
            b"inf" | b"infinity" => Magnitude::Infinite,
            decimal => Magnitude::Finite(parse_decimal(decimal)?),
        };
        Some(LongDouble { negative, magnitude })
    }

    /// Whether this is not infinity.
    pub fn is_finite(self) -> bool {
        matches!(self.magnitude, Magnitude::Finite(_))
    }

    /// The sum, correctly rounded; `None` if it is NaN or infinity.
    pub fn checked_add(self, other: LongDouble) -> Option<LongDouble> {
        let (Magnitude::Finite(left), Magnitude::Finite(right)) = (self.magnitude, other.magnitude)
        else {
            return None;
        };
        let (large, small, negative) = match compare(left, right) {
            Ordering::Less => (right, left, other.negative),
            Ordering::Equal => (left, right, self.negative && other.negative),
            Ordering::Greater => (left, right, self.negative),
        };
        let distance = large.exponent.abs_diff(small.exponent).min(u128::BITS - 1);
        let large_bits = u128::from(large.mantissa) << GUARD_BITS;
        let small_bits = u128::from(small.mantissa) << GUARD_BITS;
        let aligned = small_bits >> distance;
        let more = aligned << distance != small_bits;
        let sum = if self.negative == other.negative {
            large_bits + aligned
        } else {
            // Borrow one from the last bit for the bits that the alignment cut off.
            large_bits - aligned - u128::from(more)
        };
        let exponent = i64::from(large.exponent) - i64::from(GUARD_BITS);
        let magnitude = Magnitude::Finite(round(sum, more, exponent, &FORMAT)?);
        Some(LongDouble { negative, magnitude })
    }

    /// Converts seconds to milliseconds: a thousand times this, correctly rounded, then rounded up
    /// to an integer. `None` if larger than the largest integer; the smallest integer if smaller.
    pub fn ceil_thousandfold(self) -> Option<i64> {
        let product = match self.magnitude {
            Magnitude::Finite(number) => {
                let thousandfold = u128::from(number.mantissa) * 1000;
                round(thousandfold, false, number.exponent.into(), &FORMAT)
            }
            Magnitude::Infinite => None,
        };
        // A mantissa without a fraction has all 64 bits: too many for an integer.
        let fraction = product.filter(|product| product.exponent < 0);
        let Some(Rounded { mantissa, exponent }) = fraction else {
            return self.negative.then_some(i64::MIN);
        };
        let whole = mantissa.checked_shr(exponent.unsigned_abs()).unwrap_or(0);
        if self.negative {
            return Some(i64::try_from(whole).map_or(i64::MIN, i64::wrapping_neg));
        }
        let more = mantissa.trailing_zeros() < exponent.unsigned_abs() && mantissa != 0;
        i64::try_from(whole).ok()?.checked_add(i64::from(more))
    }
}

impl From<i64> for LongDouble {
    fn from(value: i64) -> LongDouble {
        let finite = round(value.unsigned_abs().into(), false, 0, &FORMAT);
        let magnitude = finite.map_or(Magnitude::Infinite, Magnitude::Finite);
        LongDouble { negative: value < 0, magnitude }
    }
}

impl fmt::Display for LongDouble {
    /// As Redis stores and returns it: 17 decimals without trailing zeros, never an exponent, never
    /// `-0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.negative { "-" } else { "" };
        let Magnitude::Finite(number) = self.magnitude else {
            return write!(f, "{sign}inf");
        };
        if number.exponent >= 0 {
            let mut whole = Big::from(number.mantissa);
            whole.shift_left(number.exponent as usize);
            return write!(f, "{sign}{}", whole.into_decimal());
        }
        let scaled = u128::from(number.mantissa) * u128::from(DECIMALS_SCALE);
        let scaled = shift_right(scaled, false, -i64::from(number.exponent));
        let (whole, decimals) = (scaled / DECIMALS_SCALE_WIDE, scaled % DECIMALS_SCALE_WIDE);
        if scaled == 0 {
            f.write_str("0")
        } else if decimals == 0 {
            write!(f, "{sign}{whole}")
        } else {
            let decimals = format!("{decimals:0DECIMALS$}");
            write!(f, "{sign}{whole}.{}", decimals.trim_end_matches('0'))
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Magnitude {
    Finite(Rounded),
    Infinite,
}

const FORMAT: Format = Format { precision: 64, exponent_min: -16445, exponent_max: 16320 };
/// The longest text that Redis parses as such a number.
const TEXT_BYTES_MAX: usize = 5 * 1024 - 1;
/// Bits below the mantissa during an addition: the sum and its carry still fit into 128 bits.
const GUARD_BITS: u32 = 62;
const DECIMALS: usize = 17;
const DECIMALS_SCALE: u64 = 10_u64.pow(DECIMALS as u32);
const DECIMALS_SCALE_WIDE: u128 = DECIMALS_SCALE as u128;
/// Exponent of a power of ten that is above all numbers.
const POWER_MAX: i64 = 4933;
/// Exponent of a power of ten below which numbers are rounded to zero.
const POWER_MIN: i64 = -4951;

/// Mantissas have the maximum length, so exponents are compared first.
fn compare(left: Rounded, right: Rounded) -> Ordering {
    (left.exponent, left.mantissa).cmp(&(right.exponent, right.mantissa))
}

/// Parses a decimal without sign, correctly rounded; `None` if it is invalid or out of range.
fn parse_decimal(text: &[u8]) -> Option<Rounded> {
    let (digits, exponent) = match text.iter().position(|&byte| byte == b'e') {
        Some(at) => (&text[..at], parse_exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let point = digits.iter().position(|&byte| byte == b'.').unwrap_or(digits.len());
    let (whole, fraction) = (&digits[..point], digits.get(point + 1..).unwrap_or_default());
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut values = Vec::with_capacity(digits.len());
    for byte in whole.iter().chain(fraction) {
        values.push(char::from(*byte).to_digit(10)?);
    }
    let significant = values.iter().position(|&digit| digit > 0).unwrap_or(values.len());
    let significant = &values[significant..];
    if significant.is_empty() {
        return round(0, false, 0, &FORMAT);
    }
    let exponent = exponent - fraction.len() as i64;
    if !(POWER_MIN..=POWER_MAX).contains(&(exponent + significant.len() as i64)) {
        return None;
    }
    let mut significand = Big::from_digits(significant);
    let mut denominator = Big::from(1);
    let scaled = if exponent < 0 { &mut denominator } else { &mut significand };
    scaled.multiply_power_of_ten(exponent.unsigned_abs() as usize);
    let (quotient, more, exponent) = divide(significand, denominator);
    round(quotient, more, exponent, &FORMAT).filter(|rounded| rounded.mantissa != 0)
}

/// The first bits of a quotient, whether more bits follow, and the exponent. Both arguments must
/// not be zero.
fn divide(mut numerator: Big, mut denominator: Big) -> (u128, bool, i64) {
    let distance = numerator.bits() as i64 - denominator.bits() as i64;
    let shorter = if distance < 0 { &mut numerator } else { &mut denominator };
    shorter.shift_left(distance.unsigned_abs() as usize);
    let mut quotient = 0;
    for _ in 0..QUOTIENT_BITS {
        quotient <<= 1;
        if numerator >= denominator {
            numerator.subtract(&denominator);
            quotient |= 1;
        }
        numerator.shift_left(1);
    }
    (quotient, !numerator.is_zero(), distance - (QUOTIENT_BITS - 1))
}

/// A first bit that may be zero, the mantissa, and two bits for rounding.
const QUOTIENT_BITS: i64 = 1 + FORMAT.precision as i64 + 2;

/// A natural number of any size: limbs, the least significant first, the last one not zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Big {
    limbs: Vec<u64>,
}

impl Big {
    fn from_digits(digits: &[u32]) -> Big {
        let mut big = Big::default();
        for chunk in digits.chunks(LIMB_DIGITS) {
            let value = chunk.iter().fold(0, |value, &digit| value * 10 + u64::from(digit));
            big.multiply_add(10_u64.pow(chunk.len() as u32), value);
        }
        big
    }

    fn is_zero(&self) -> bool {
        self.limbs.is_empty()
    }

    /// The number of bits up to the highest one.
    fn bits(&self) -> usize {
        let top = self.limbs.last().map_or(0, |limb| limb.leading_zeros() as usize);
        self.limbs.len() * LIMB_BITS - top
    }

    fn multiply_add(&mut self, factor: u64, summand: u64) {
        let mut carry = summand;
        for limb in &mut self.limbs {
            let wide = u128::from(*limb) * u128::from(factor) + u128::from(carry);
            *limb = wide as u64;
            carry = (wide >> LIMB_BITS) as u64;
        }
        if carry != 0 {
            self.limbs.push(carry);
        }
    }

    fn multiply_power_of_ten(&mut self, mut power: usize) {
        while power > 0 {
            let step = power.min(LIMB_DIGITS);
            self.multiply_add(10_u64.pow(step as u32), 0);
            power -= step;
        }
    }

    fn shift_left(&mut self, count: usize) {
        if self.is_zero() {
            return;
        }
        let bits = count % LIMB_BITS;
        if bits != 0 {
            self.multiply_add(1 << bits, 0);
        }
        self.limbs.splice(0..0, std::iter::repeat_n(0, count / LIMB_BITS));
    }

    /// Subtracts `other`, which must not be larger.
    fn subtract(&mut self, other: &Big) {
        let mut borrow = false;
        let others = other.limbs.iter().copied().chain(std::iter::repeat(0));
        for (limb, other) in self.limbs.iter_mut().zip(others) {
            let (difference, first) = limb.overflowing_sub(other);
            let (difference, second) = difference.overflowing_sub(borrow.into());
            *limb = difference;
            borrow = first || second;
        }
        self.trim();
    }

    /// Divides in place and returns the remainder.
    fn divide_by(&mut self, divisor: u64) -> u64 {
        let mut remainder = 0;
        for limb in self.limbs.iter_mut().rev() {
            let wide = u128::from(remainder) << LIMB_BITS | u128::from(*limb);
            *limb = (wide / u128::from(divisor)) as u64;
            remainder = (wide % u128::from(divisor)) as u64;
        }
        self.trim();
        remainder
    }

    fn into_decimal(mut self) -> String {
        let mut chunks = Vec::new();
        while !self.is_zero() {
            chunks.push(self.divide_by(DECIMALS_SCALE));
        }
        let mut text = chunks.pop().unwrap_or(0).to_string();
        for chunk in chunks.iter().rev() {
            text += &format!("{chunk:0DECIMALS$}");
        }
        text
    }

    fn trim(&mut self) {
        let len = self.limbs.iter().rposition(|&limb| limb != 0).map_or(0, |top| top + 1);
        self.limbs.truncate(len);
    }
}

impl From<u64> for Big {
    fn from(value: u64) -> Big {
        let mut big = Big { limbs: vec![value] };
        big.trim();
        big
    }
}

impl Ord for Big {
    fn cmp(&self, other: &Big) -> Ordering {
        let by_length = self.limbs.len().cmp(&other.limbs.len());
        by_length.then_with(|| self.limbs.iter().rev().cmp(other.limbs.iter().rev()))
    }
}

impl PartialOrd for Big {
    fn partial_cmp(&self, other: &Big) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

const LIMB_BITS: usize = u64::BITS as usize;
/// Any number of this many decimal digits fits into a limb.
const LIMB_DIGITS: usize = 19;

#[cfg(test)]
mod tests {
    use super::*;

    const TOO_LARGE: &str = "ERR increment would produce NaN or Infinity";
    const NO_FLOAT: &str = "ERR value is not a valid float";

    fn sum(left: &str, right: &str) -> String {
        let parse = |text: &str| LongDouble::parse(text.as_bytes());
        let (Some(left), Some(right)) = (parse(left), parse(right)) else {
            return NO_FLOAT.to_owned();
        };
        assert_eq!(left.checked_add(right), right.checked_add(left));
        left.checked_add(right).map_or(TOO_LARGE.to_owned(), |sum| sum.to_string())
    }

    /// Outcomes of `SET key left`, `INCRBYFLOAT key right` on Redis 7.0.15.
    const SUMS: &[(&str, &str, &str)] = &[
        ("10.5", "0.1", "10.6"),
        ("10.50", "-5", "5.5"),
        ("5.0e3", "2.0e2", "5200"),
        ("3.0", "0", "3"),
        ("0.1", "0.2", "0.3"),
        ("-0", "-0", "0"),
        ("3", "-3", "0"),
        ("-1e-20", "0", "0"),
        ("1e-17", "0", "0.00000000000000001"),
        ("5e-18", "0", "0"),
        ("5.1e-18", "0", "0.00000000000000001"),
        ("1.5e-17", "0", "0.00000000000000002"),
        ("2.5e-17", "0", "0.00000000000000002"),
        ("1e19", "1", "10000000000000000001"),
        ("1e-4950", "0", "0"),
        ("1e-4951", "0", NO_FLOAT),
        ("0x1p-16445", "0", "0"),
        ("0x1p-16446", "0", NO_FLOAT),
        ("0x1.8p-16446", "0", "0"),
        ("1.2e4932", "0", NO_FLOAT),
        ("0x1.ffffffffffffffffp16383", "0", NO_FLOAT),
        ("1e4932", "1e4932", TOO_LARGE),
        ("inf", "1", TOO_LARGE),
        ("inf", "-Infinity", TOO_LARGE),
        ("nan", "1", NO_FLOAT),
        (" 1", "1", NO_FLOAT),
        ("1 ", "1", NO_FLOAT),
        ("1e", "1", NO_FLOAT),
        (".", "1", NO_FLOAT),
        ("", "1", NO_FLOAT),
        ("--1", "1", NO_FLOAT),
        ("-11488808837988313381.5", "40004e4", "-11488808837588273382"),
        ("4611686018427387906.271", "9.565789120370441e-4940", "4611686018427387906.5"),
        ("18446744073709551614.039", "649699e-5", "18446744073709551620"),
        ("-0x3fcbc8a62737a.5c3370efap-191", "-11657666691172162045.5", "-11657666691172162046"),
        ("13365761916620360249", "0.9350240795037539", "13365761916620360250"),
        ("-990242424560542150", "0x79b553b56fa61.faf662ap16", "139329883785059506480"),
        ("-3010245732.229841825", "-0.0506253868093", "-3010245732.28046721196733415"),
        (
            "-13776707561000386085.5",
            "95693916225826423295251.8747705825834",
            "95680139518265422905344",
        ),
        ("546", "0090202848211.91131420332205", "90202848757.91131420433521271"),
        (
            "-35767919946777203.517584196752670271091",
            "-0.1457370618206708",
            "-35767919946777203.6640625",
        ),
        ("-6.9461e-305", "1152921504606846979.568", "1152921504606846979.625"),
        ("-9223372036854775811.727", "-2847275451064443482.2261391399", "-12070647487919219294"),
        ("81528056461104.5", "-7080889223047522880", "-7080807694991061775.5"),
        ("0.0000000000000037271254", "665.002", "665.00200000000000372"),
        ("12556414936725227173", "4611686018427387906.011", "17168100955152615079"),
        ("9.13644002732295690095870757", "6.2559821433e-86", "9.1364400273229569"),
        ("0.954401381e-4926", "0.00000000000000000110803098386960198", "0"),
        ("0x4aefcf.44962d4e6ecdd0c6p-160", "0.009243684064039427", "0.00924368406403943"),
        ("9895249.568412372845750855723", "-9895249.568412372845750855723", "0"),
        ("-970356e-12", "29902572350935089819.49999999999999999999999999", "29902572350935089820"),
        ("-23986105369425691689.", "911604e-6", "-23986105369425691688"),
        ("0733573365152713.2917891372", "-148", "733573365152565.29180908203125"),
        ("0.4935872603829006", "2305843009213693953.101", "2305843009213693953.5"),
        ("541056e29", "-514.41", "54105600000000000001310686579785728"),
        ("416667e-9", "0x6611c9483ffb.7e7p50", "126355893076598773898874454016"),
        ("11202278724656488609", "-2639710592958011282", "8562568131698477327"),
        ("9.650577263437e-4927", "-9.650577263437e-4927", "0"),
        ("0.53e112", "-0.53e112", "0"),
        ("11.011539", "233.744", "244.75553899999999999"),
        ("0x3.a651bp-113", "838", "838"),
        ("2305843009213693951.235", "77.81", "2305843009213694029"),
        ("0.3", "4611686018427387901.206", "4611686018427387901.5"),
        ("5.6371216593652e-303", "4.3e-125", "0"),
        ("-0xa9f8903b06.18e5cp-107", "1.735256821680e-108", "0"),
        ("-0.000023", "0x51d4b2f13ec08343.8e3bb12ab2p-16", "89973977071296.512725830078125"),
        ("0x7d4f0a13a43.396e68995202165p35", "89", "295876914622517562523648"),
        ("0.0000000000093", "-0x174ff246.2ab0b49p-168", "0.0000000000093"),
        ("0x8cd6e8.1b348aa7af3614bp-114", "5.", "5"),
    ];

    #[test]
    fn sums_are_as_in_redis() {
        for (left, right, expected) in SUMS {
            assert_eq!(sum(left, right), *expected, "{left} + {right}");
        }
    }

    #[test]
    fn largest_number_has_the_longest_text() {
        let largest = sum("0x1.fffffffffffffffep16383", "0");
        assert_eq!(largest.len(), 4933);
        assert!(largest.starts_with("11897314953572317650212638530309702051690633"), "{largest}");
        assert_eq!(sum(&format!("0.1{}", "0".repeat(5116)), "1"), "1.1");
        assert_eq!(sum(&format!("0.1{}", "0".repeat(5117)), "1"), NO_FLOAT);
        assert_eq!(sum(&"1".repeat(5000), "1"), NO_FLOAT);
    }

    #[test]
    fn integers_convert_exactly() {
        for value in [0, 1, -1, i64::MAX, i64::MIN] {
            let number = LongDouble::from(value);
            assert_eq!(number.to_string(), value.to_string());
            assert_eq!(LongDouble::parse(value.to_string().as_bytes()), Some(number));
        }
        assert_eq!(LongDouble::from(0), LongDouble::ZERO);
    }

    #[test]
    fn infinity_parses_but_is_not_finite() {
        for (text, finite) in [("inf", false), ("-INFINITY", false), ("1e4000", true)] {
            let number = LongDouble::parse(text.as_bytes());
            assert_eq!(number.map(LongDouble::is_finite), Some(finite), "{text}");
        }
    }

    /// The results are the timeouts of `BLPOP` in Redis 8.0 for these seconds.
    #[test]
    fn seconds_convert_to_milliseconds() {
        for (text, expected) in [
            ("0", Some(0)),
            ("-0", Some(0)),
            ("1", Some(1000)),
            ("0.001", Some(1)),
            ("0.1", Some(100)),
            ("0.0001", Some(1)),
            ("1e-4950", Some(1)),
            ("1.0005", Some(1001)),
            ("-0.0001", Some(0)),
            ("-0.001", Some(0)),
            ("-1.5005", Some(-1500)),
            ("0x0.8", Some(500)),
            ("9223372036854775.807", Some(i64::MAX)),
            ("9223372036854775.808", None),
            ("1e4931", None),
            ("inf", None),
            ("-9223372036854775.809", Some(i64::MIN)),
            ("-1e400", Some(i64::MIN)),
            ("-inf", Some(i64::MIN)),
        ] {
            let number = LongDouble::parse(text.as_bytes()).expect("a number");
            assert_eq!(number.ceil_thousandfold(), expected, "{text}");
        }
    }
}
