//! Sizes as Kubernetes writes them (`resource.Quantity`), for storage: whole bytes, never negative.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// It does not follow the grammar of quantities.
    #[error("`{0}` is not a size: write a number with an optional unit, such as 10Gi, 500M or 1e9")]
    Syntax(String),
    /// It is below zero.
    #[error("`{0}` is negative")]
    Negative(String),
    /// It does not fit into 63 bits of bytes.
    #[error("`{0}` is larger than 8 EiB")]
    TooLarge(String),
}

/// The number of bytes of a quantity; a fraction of a byte is rounded up, as Kubernetes does.
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
    let (base, exponent): (u128, i32) = match suffix {
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
            Some(Ok(exponent)) if exponent.abs() <= 60 => (10, exponent),
            _ => return Err(syntax()),
        },
    };
    let too_large = || QuantityError::TooLarge(shown());
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > 18 {
        return Err(syntax());
    }
    let digits: u128 = match format!("{whole}{fraction}").trim_start_matches('0') {
        "" => 0,
        digits if digits.len() > 30 => return Err(too_large()),
        digits => digits.parse().map_err(|_| syntax())?,
    };
    if negative && digits != 0 {
        return Err(QuantityError::Negative(shown()));
    }
    // digits × base^exponent ÷ 10^fraction, rounded up.
    let scale = base.checked_pow(exponent.unsigned_abs());
    let decimals = 10u128.pow(fraction.len() as u32);
    let value = match (digits, exponent >= 0) {
        (0, _) => 0,
        (digits, true) => digits.checked_mul(scale.ok_or_else(too_large)?).ok_or_else(too_large)?.div_ceil(decimals),
        (digits, false) => match scale.and_then(|scale| scale.checked_mul(decimals)) {
            Some(divisor) => digits.div_ceil(divisor),
            None => 1,
        },
    };
    if value > i64::MAX as u128 {
        return Err(too_large());
    }
    Ok(value as u64)
}

/// A quantity in the largest binary unit that leaves a whole number: 1073741824 → `1Gi`.
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
    fn sizes() {
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

    proptest::proptest! {
        #[test]
        fn a_written_size_reads_back(value in 0u64..=i64::MAX as u64) {
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
