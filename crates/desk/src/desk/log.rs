//! The log of a container.

/// The largest number of lines of a log that become last words.
const LINES: usize = 80;
/// The largest number of bytes of a log that become last words.
const BYTES: usize = 2048;

/// Returns the end of a log, as the kubelet takes it for a termination message.
pub fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let end = lines[lines.len().saturating_sub(LINES)..].join("\n");
    let mut from = end.len().saturating_sub(BYTES);
    while !end.is_char_boundary(from) {
        from += 1;
    }
    end[from..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_is_short() {
        let log: String = (0..200).map(|n| format!("line {n}\n")).collect();
        let end = last_lines(&log);
        assert!(end.starts_with("line 120\n") && end.ends_with("line 199"), "{end}");
        assert!(last_lines(&"ü".repeat(5000)).len() <= BYTES);
    }
}
