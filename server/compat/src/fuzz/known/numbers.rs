//! How numbers are printed by servers.

use crate::wire::frame::Frame;

/// Whether they differ only in how numbers are printed: with 17 digits by the reference, by the
/// target with the fewest unambiguous digits, or all digits of a whole number. `is_number` gets a
/// reply and its place in the array around it, and returns whether it is a number.
pub(super) fn same_but_digits(
    ours: &Frame,
    theirs: &Frame,
    at: Option<usize>,
    is_number: &dyn Fn(&Frame, Option<usize>) -> bool,
) -> bool {
    let same_number = || {
        let text = std::str::from_utf8(&ours.text).ok();
        let number = text.and_then(|text| text.parse::<f64>().ok()).filter(|it| it.is_finite());
        matches!(ours.kind, b'$' | b',')
            && is_number(ours, at)
            && !(ours.text.contains(&b'.') && ours.text.ends_with(b"0"))
            && number.is_some_and(|number| {
                let shortest = digits(&ours.text) == digits(format!("{number:e}").as_bytes());
                (shortest || ours.text == format!("{number:.0}").as_bytes())
                    && theirs.text == seventeen_digits(number).as_bytes()
            })
    };
    ours.kind == theirs.kind
        && ours.missing == theirs.missing
        && (ours.text == theirs.text || same_number())
        && ours.items.len() == theirs.items.len()
        && ours
            .items
            .iter()
            .zip(&theirs.items)
            .enumerate()
            .all(|(at, (ours, theirs))| same_but_digits(ours, theirs, Some(at), is_number))
}

/// Whether they differ only in how numbers are printed: those of the reference may be negative
/// zeros, or have 17 digits.
pub(super) fn same_numbers(ours: &Frame, theirs: &Frame) -> bool {
    let number = |frame: &Frame| std::str::from_utf8(&frame.text).ok()?.parse::<f64>().ok();
    ours.kind == theirs.kind
        && (ours.text == theirs.text || number(ours).is_some() && number(ours) == number(theirs))
        && ours.items.len() == theirs.items.len()
        && ours.items.iter().zip(&theirs.items).all(|(one, other)| same_numbers(one, other))
}

/// The significant digits of a number, without sign, point and exponent.
pub(super) fn digits(text: &[u8]) -> Vec<u8> {
    let mantissa = text.split(|byte| *byte == b'e').next().unwrap_or_default();
    let digits: Vec<u8> = mantissa.iter().copied().filter(u8::is_ascii_digit).collect();
    let first = digits.iter().position(|digit| *digit != b'0').unwrap_or(digits.len());
    let last = digits.iter().rposition(|digit| *digit != b'0').map_or(first, |last| last + 1);
    digits[first..last].to_vec()
}

/// A number in the format `%.17g` of C's `printf`.
pub fn seventeen_digits(number: f64) -> String {
    let scientific = format!("{number:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    match usize::try_from(16 - exponent) {
        Ok(decimals) if exponent >= -4 => trim(&format!("{number:.decimals$}")),
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", trim(mantissa), exponent.abs())
        }
    }
}
