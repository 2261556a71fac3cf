//! Storage sizes in the syntax of Kubernetes (`resource.Quantity`): whole bytes, never negative.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The reason why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text does not follow the grammar of quantities.
    #[error("`{0}` is not a size: write a number with an optional unit, such as 10Gi, 500M or 1e9")]
    Syntax(String),
    /// The size is below zero.
    #[error("`{0}` is negative")]
    Negative(String),
    /// The size is larger than 2⁶³-1 bytes.
    #[error("`{0}` is larger than 8 EiB")]
    TooLarge(String),
}

/// Reads a quantity as a number of bytes, and rounds a fraction of a byte up, as Kubernetes does.
pub fn bytes(text: &str) -> Result<u64, QuantityError> {
    let shown = || text.chars().take(40).collect::<String>();
    let syntax = || QuantityError::Syntax(shown());
    let (negative, rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(syntax());
    }
    let (base, exponent): (u32, i32) = match suffix {
        "" => (10, 0),
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (2, 10),
        "Mi" => (2, 20),
        "Gi" => (2, 30),
        "Ti" => (2, 40),
        "Pi" => (2, 50),
        "Ei" => (2, 60),
        _ => match suffix.strip_prefix(['e', 'E']).map(str::parse::<i32>) {
            Some(Ok(exponent)) if (-60..=60).contains(&exponent) => (10, exponent),
            _ => return Err(syntax()),
        },
    };
    let too_large = || QuantityError::TooLarge(shown());
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > 18 {
        return Err(syntax());
    }
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Ok(0);
    }
    if negative {
        return Err(QuantityError::Negative(shown()));
    }
    let value = match base {
        2 => binary(digits, exponent, fraction.len()),
        _ => decimal(digits, exponent - fraction.len() as i32),
    };
    let value = value.ok_or_else(too_large)?;
    if value > i64::MAX as u128 {
        return Err(too_large());
    }
    Ok(value as u64)
}

/// Computes digits × 10^exponent, rounded up; `None` where the result is far too large. The first digit is not 0.
fn decimal(digits: &str, exponent: i32) -> Option<u128> {
    const MAX_DIGITS: usize = 38;
    let length = digits.len() as i64 + i64::from(exponent);
    match usize::try_from(length) {
        Err(_) | Ok(0) => Some(1),
        Ok(length) if length > MAX_DIGITS => None,
        Ok(length) if length >= digits.len() => {
            digits.parse::<u128>().ok()?.checked_mul(10u128.checked_pow(exponent.unsigned_abs())?)
        }
        Ok(length) => {
            let (whole, rest) = digits.split_at(length);
            Some(whole.parse::<u128>().ok()? + u128::from(rest.bytes().any(|digit| digit != b'0')))
        }
    }
}

/// Computes digits × 2^exponent ÷ 10^decimals, rounded up; `None` where the result is far too large.
fn binary(digits: &str, exponent: i32, decimals: usize) -> Option<u128> {
    let digits: u128 = digits.parse().ok()?;
    Some(digits.checked_mul(1 << exponent)?.div_ceil(10u128.pow(decimals as u32)))
}

/// Writes a size in the largest binary unit that leaves a whole number: 1073741824 → `1Gi`.
pub fn quantity(bytes: u64) -> Quantity {
    const UNITS: [(&str, u32); 6] = [("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];
    let unit = UNITS.iter().find(|(_, shift)| bytes != 0 && bytes.trailing_zeros() >= *shift);
    Quantity(match unit {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_kubernetes_reads_them() {
        for (text, expected) in [
            ("1Gi", 1 << 30),
            ("1.5Gi", 3 << 29),
            ("500M", 500_000_000),
            ("1e3", 1000),
            ("1E3", 1000),
            ("1E", 1_000_000_000_000_000_000),
            ("0", 0),
            ("100m", 1),
            ("1.1", 2),
            (".5Ki", 512),
            ("+4Ki", 4096),
            ("10000000000000000000000000000000e-60", 1),
            ("10000000000000000000000000000000e-30", 10),
            ("10000000000000000000000000000001e-30", 11),
            ("9000000000000.000000000000000001Ki", 9_216_000_000_000_001),
            ("0e60", 0),
            ("-0.0", 0),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "Gi",
            "1Gib",
            "1.2.3",
            "-1Gi",
            "9Ei",
            "1e99",
            "ten",
            "1 Gi",
            "1e",
            "99999999999999999999999999999999Gi",
        ] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_negative_size_is_not_reported_as_too_large() {
        let text = "-9927996316521339963165213391639163";
        assert!(matches!(bytes(text), Err(QuantityError::Negative(_))), "{text}");
    }

    #[test]
    fn an_exponent_is_limited() {
        for text in ["1e61", "1e-61", "1e2147483647", "1e-2147483648", "1.5e-2147483648"] {
            assert!(matches!(bytes(text), Err(QuantityError::Syntax(_))), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_written_size_is_read_back(value in 0u64..=i64::MAX as u64) {
            assert_eq!(bytes(&quantity(value).0), Ok(value));
        }
        #[test]
        fn any_text_gets_an_answer(text in ".{0,60}") {
            let _ = bytes(&text);
        }
        #[test]
        fn any_number_gets_an_answer(text in "[-+]?[0-9.]{0,40}(e-?[0-9]{1,3}|[numkMGTPE]i?)?") {
            let _ = bytes(&text);
        }
    }
}
