//! Small texts of the protocol: content blocks and timestamps.

use crate::jsonrpc::quote;

/// A text content block.
#[must_use]
pub fn text_block(text: &str) -> String {
    format!(r#"{{"type":"text","text":{}}}"#, quote(text))
}

/// A timestamp as RFC 3339 in UTC with milliseconds, from milliseconds since 1970.
#[must_use]
pub fn rfc3339(unix_ms: u64) -> String {
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(unix_ms);
    humantime::format_rfc3339_millis(at).to_string()
}

#[cfg(test)]
mod tests {
    #[test]
    fn timestamps() {
        assert_eq!(super::rfc3339(1_764_374_400_123), "2025-11-29T00:00:00.123Z");
    }
}
