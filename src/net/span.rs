//! How long something took or may take, in the words of a message. Owns the rounding; measures
//! nothing.

use std::time::Duration;

/// Whole seconds, or milliseconds below one: what is left of a deadline is never a round number,
/// and nobody reads its nanoseconds.
pub(crate) fn rounded(span: &Duration) -> String {
    let millis = (span.as_micros() + 500) / 1_000;
    match millis {
        0..1_000 => format!("{millis} ms"),
        _ => format!("{} s", (millis + 500) / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_written_for_people() {
        assert_eq!(rounded(&Duration::from_nanos(29_997_588_072)), "30 s");
        assert_eq!(rounded(&Duration::from_nanos(9_999_998_198)), "10 s");
        assert_eq!(rounded(&Duration::from_nanos(999_999_999)), "1 s");
        assert_eq!(rounded(&Duration::from_millis(250)), "250 ms");
        assert_eq!(rounded(&Duration::ZERO), "0 ms");
    }
}
