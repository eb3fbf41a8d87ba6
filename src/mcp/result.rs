//! What a result says it is: `resultType`, which the stateless era has and the handshake era has not.

use bytes::Bytes;

use crate::jsonrpc::{entries, insert_first, members, remove, splice};

const RESULT_TYPE: &str = "resultType";

/// A complete result as the stateless era has it; what says itself what it is, and what is no object, stays.
#[must_use]
pub fn with_result_type(result: &Bytes) -> Bytes {
    let text = std::str::from_utf8(result).unwrap_or_default();
    match members(text) {
        Some(found) if found.iter().all(|member| member.name != RESULT_TYPE) => {
            insert_first(result, 0, RESULT_TYPE, "\"complete\"")
        }
        _ => result.clone(),
    }
}

/// A complete result as the handshake era has it.
#[must_use]
pub fn without_result_type(result: &Bytes) -> Bytes {
    let text = std::str::from_utf8(result).unwrap_or_default();
    let edits = members(text).map(|found| remove(&found, 0, RESULT_TYPE)).unwrap_or_default();
    if edits.is_empty() { result.clone() } else { splice(result, edits) }
}

/// Whether a result asks for more before there is a complete one (`InputRequiredResult`, 2026-07-28).
#[must_use]
pub fn is_input_required(result: &str) -> bool {
    entries(result).get(RESULT_TYPE) == Some(&"\"input_required\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_it_is_in_one_era_only() {
        for (plain, typed) in [
            (r#"{"content":[],"n":1.0}"#, r#"{"resultType":"complete","content":[],"n":1.0}"#),
            ("{}", r#"{"resultType":"complete"}"#),
            (r#"{ "a":1 }"#, r#"{"resultType":"complete", "a":1 }"#),
        ] {
            let (plain, typed) = (Bytes::from_static(plain.as_bytes()), Bytes::from_static(typed.as_bytes()));
            assert_eq!(with_result_type(&plain), typed);
            assert_eq!(with_result_type(&typed), typed);
            let value = |text: &Bytes| serde_json::from_slice::<serde_json::Value>(text).unwrap();
            assert_eq!(value(&without_result_type(&typed)), value(&plain));
            assert_eq!(without_result_type(&plain), plain);
        }
        for odd in ["[]", "7", "null", ""] {
            let odd = Bytes::from_static(odd.as_bytes());
            assert_eq!((with_result_type(&odd), without_result_type(&odd)), (odd.clone(), odd.clone()));
        }
        assert!(is_input_required(r#"{"resultType":"input_required"}"#));
        assert!(!is_input_required(r#"{"resultType":"complete"}"#) && !is_input_required("[]"));
    }
}
