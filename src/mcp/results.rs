//! What only results of the stateless era carry: which kind they are, who answers, and how long they may be kept.

use bytes::Bytes;

use crate::jsonrpc::entries;

use super::method;
use super::patch::{Change, Named, apply};

/// How long a page that depends on its client may be kept, in milliseconds.
const LONGEST_KEPT: f64 = 60_000.0;

/// Whether results of this method carry `ttlMs` and `cacheScope` (`CacheableResult` of 2026-07-28).
#[must_use]
pub fn is_cacheable(method: &str) -> bool {
    matches!(
        method,
        method::DISCOVER
            | method::TOOLS_LIST
            | method::PROMPTS_LIST
            | method::RESOURCES_LIST
            | method::RESOURCE_TEMPLATES_LIST
            | method::RESOURCES_READ
    )
}

/// The result as one that is complete; one that says what it is already stays as it is.
#[must_use]
pub fn with_result_type(result: &Bytes) -> Bytes {
    apply(result, &[("resultType", complete())])
}

/// The result without `resultType`.
#[must_use]
pub fn without_result_type(result: &Bytes) -> Bytes {
    apply(result, &[("resultType", Change::Remove)])
}

/// A stateless `tools/list` result that depends on its client: not shared, and kept for a minute at most.
#[must_use]
pub fn private(result: &Bytes) -> Bytes {
    let mut changes = vec![("cacheScope", Change::Set(r#""private""#.into()))];
    let text = std::str::from_utf8(result).unwrap_or_default();
    if let Some(ttl) = entries(text).get("ttlMs")
        && !ttl.parse::<f64>().is_ok_and(|ttl| ttl <= LONGEST_KEPT)
    {
        changes.push(("ttlMs", Change::Set(format!("{LONGEST_KEPT}"))));
    }
    apply(result, &changes)
}

/// Says that a result is complete, where it says nothing.
pub(super) fn complete<'a>() -> Change<'a> {
    Change::Default(r#""complete""#.into())
}

/// Says that a result may not be kept.
pub(super) fn not_kept<'a>() -> [Named<'a>; 2] {
    [("ttlMs", Change::Set("0".into())), ("cacheScope", Change::Set(r#""private""#.into()))]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(edit: fn(&Bytes) -> Bytes, text: &str) -> String {
        String::from_utf8(edit(&Bytes::copy_from_slice(text.as_bytes())).to_vec()).unwrap()
    }

    #[test]
    fn says_what_a_result_is_and_takes_it_back() {
        for (bare, typed) in [
            ("{}", r#"{"resultType":"complete"}"#),
            (r#"{ "n":1.0 }"#, r#"{"resultType":"complete", "n":1.0 }"#),
            ("[]", "[]"),
            ("7", "7"),
        ] {
            assert_eq!(edited(with_result_type, bare), typed);
        }
        for text in [r#"{"resultType":"task"}"#, r#"{"resultType":"complete","n":1.0}"#] {
            assert_eq!(edited(with_result_type, text), text);
        }
        assert_eq!(
            edited(without_result_type, r#"{"n": 1.0 ,"resultType":"complete","x":[ ]}"#),
            r#"{"n": 1.0,"x":[ ]}"#
        );
        assert_eq!(edited(without_result_type, "null"), "null");
    }

    #[test]
    fn a_page_of_ones_own_is_private_for_a_minute() {
        for (before, after) in [
            (r#"{"ttlMs":300000,"cacheScope":"public","n":1.0}"#, r#"{"ttlMs":60000,"cacheScope":"private","n":1.0}"#),
            (r#"{"ttlMs":60000,"cacheScope":"private"}"#, r#"{"ttlMs":60000,"cacheScope":"private"}"#),
            (r#"{"ttlMs":0}"#, r#"{"cacheScope":"private","ttlMs":0}"#),
            (r#"{"ttlMs":1e400}"#, r#"{"cacheScope":"private","ttlMs":60000}"#),
            (r#"{"ttlMs":null}"#, r#"{"cacheScope":"private","ttlMs":60000}"#),
            ("{}", r#"{"cacheScope":"private"}"#),
            ("[1]", "[1]"),
        ] {
            assert_eq!(edited(private, before), after);
        }
    }

    #[test]
    fn what_is_listed_and_read_can_be_kept() {
        for (method, cacheable) in [
            ("server/discover", true),
            ("tools/list", true),
            ("tools/call", false),
            ("prompts/list", true),
            ("prompts/get", false),
            ("resources/list", true),
            ("resources/templates/list", true),
            ("resources/read", true),
            ("completion/complete", false),
        ] {
            assert_eq!(is_cacheable(method), cacheable, "{method}");
        }
    }
}
