//! Sizes, against exact arithmetic on big numbers.

use flex_contract::quantity::{self, QuantityError};
use num_bigint::BigUint;

/// Checks any text: it is a size exactly if the grammar of Kubernetes says so, and its bytes are exact.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let found = quantity::bytes(&text);
    match (&found, exact(&text)) {
        (Ok(bytes), Exact::Bytes(expected)) => assert_eq!(BigUint::from(*bytes), expected, "{text:?}"),
        (Err(QuantityError::Negative(_)), Exact::Negative) => {}
        (Err(QuantityError::TooLarge(_)), Exact::TooLarge) => {}
        (Err(QuantityError::Syntax(_)), Exact::None) => {}
        (found, expected) => panic!("{text:?} is {found:?}, not {expected:?}"),
    }
    match found {
        Ok(bytes) => {
            let written = quantity::quantity(bytes).0;
            assert_eq!(quantity::bytes(&written), Ok(bytes), "{text:?} is written as {written:?}");
        }
        Err(error) => {
            let shown: String = text.chars().take(40).collect();
            let message = error.to_string();
            assert!(message.contains(&shown), "{message:?} does not show {shown:?}");
            assert!(message.chars().count() < 200, "{message:?} is too long");
        }
    }
}

#[derive(Debug)]
enum Exact {
    None,
    Negative,
    TooLarge,
    Bytes(BigUint),
}

/// Parses by the grammar: sign, digits with a point, and a unit or an exponent of at most ±60. Fractions have at most
/// 18 digits that are not trailing zeros.
fn exact(text: &str) -> Exact {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let suffix = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = &rest[..rest.len() - suffix.len()];
    let points = number.bytes().filter(|byte| *byte == b'.').count();
    if points > 1 || number.len() == points {
        return Exact::None;
    }
    let Some((two, ten)) = unit(suffix) else { return Exact::None };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > 18 {
        return Exact::None;
    }
    let digits: BigUint = format!("0{whole}{fraction}").parse().expect("digits are a number");
    if digits == BigUint::ZERO {
        return Exact::Bytes(digits);
    }
    if negative {
        return Exact::Negative;
    }
    let power = |base: u32, exponent: i64| {
        BigUint::from(base).pow(u32::try_from(exponent.max(0)).expect("the exponent is small"))
    };
    let over = digits * power(2, two) * power(10, ten);
    let under = power(10, -ten) * power(10, i64::try_from(fraction.len()).expect("the length is small"));
    let bytes = (over + &under - 1u32) / under;
    if bytes > BigUint::from(u64::MAX >> 1) { Exact::TooLarge } else { Exact::Bytes(bytes) }
}

/// Returns the powers of two and ten of a unit.
fn unit(suffix: &str) -> Option<(i64, i64)> {
    if let Some(location) = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|unit| *unit == suffix) {
        return Some((10 * (location as i64 + 1), 0));
    }
    if let Some(exponent) = suffix.strip_prefix(['e', 'E']).filter(|exponent| !exponent.is_empty()) {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let size: i64 = format!("0{digits}").parse().unwrap_or(i64::MAX);
        return (size <= 60).then_some((0, if exponent.starts_with('-') { -size } else { size }));
    }
    let location = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"].iter().position(|unit| *unit == suffix)?;
    Some((0, 3 * location as i64 - 9))
}
