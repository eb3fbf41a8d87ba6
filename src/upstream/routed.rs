//! Headers that repeat what the body of a request says, as stateless upstreams expect it (2026-07-28, "Request Metadata"
//! of Streamable HTTP); none speaks of a session.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

use crate::jsonrpc::Envelope;
use crate::mcp::header::{LAST_EVENT_ID, METHOD, NAME, SESSION_ID, repeats_body};
use crate::mcp::{Params, method, routing};
use crate::session::Catalog;

/// The headers of `message` for a caller that sent these, with the arguments that its tool's schema in `catalog` wants
/// repeated.
pub(super) fn routed(headers: &HeaderMap, message: &Envelope, catalog: Option<&Catalog>) -> HeaderMap {
    let is_replaced = |name: &str| matches!(name, LAST_EVENT_ID | SESSION_ID) || repeats_body(name);
    let mut kept = HeaderMap::with_capacity(headers.len() + 2);
    for (name, value) in headers.iter().filter(|(name, _)| !is_replaced(name.as_str())) {
        kept.append(name.clone(), value.clone());
    }
    let mut put = |name: &str, value: &str| {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
            kept.insert(name, value);
        }
    };
    put(METHOD, message.method());
    let name = routing::name_of(message.method(), message.params());
    if let Some(name) = &name {
        put(NAME, &routing::encode(name));
    }
    for (name, value) in repeated(message, name, catalog) {
        put(&name, &value);
    }
    kept
}

fn repeated(message: &Envelope, tool: Option<Cow<'_, str>>, catalog: Option<&Catalog>) -> Vec<(String, String)> {
    let tool = tool.filter(|_| message.method() == method::TOOLS_CALL);
    let schema = tool.zip(catalog).and_then(|(tool, catalog)| catalog.routed_by(&tool));
    let arguments = Params::peek(message.params()).arguments();
    schema.zip(arguments).map(|(schema, arguments)| routing::param_headers(schema, arguments)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn headers(text: &'static str, catalog: Option<&Catalog>) -> Vec<String> {
        let mut sent = HeaderMap::new();
        for (name, value) in [
            ("mcp-session-id", "s"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "x"),
            ("mcp-name", "x"),
            ("mcp-param-a", "x"),
            ("last-event-id", "7"),
            ("x-own", "1"),
        ] {
            sent.insert(name, HeaderValue::from_static(value));
        }
        let message = Envelope::read(Bytes::from_static(text.as_bytes())).unwrap();
        let routed = routed(&sent, &message, catalog);
        let mut lines: Vec<_> =
            routed.iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    #[test]
    fn b61_headers_repeat_what_the_body_says() {
        let mut catalog = Catalog::default();
        let page = r#"{"tools":[{"name":"a b","inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"Region"}}}}]}"#;
        assert_eq!(catalog.add_page(page), None);
        let call = r#"{"id":1,"method":"tools/call","params":{"name":"\u00e9","arguments":{"r":"us"}}}"#;
        let named = "mcp-name==?base64?w6k=?=";
        let rest = ["mcp-method=tools/call", named, "mcp-protocol-version=2026-07-28", "x-own=1"];
        assert_eq!(headers(call, Some(&catalog)), rest);
        let call = r#"{"id":1,"method":"tools/call","params":{"name":"a b","arguments":{"r":"us"}}}"#;
        let with = ["mcp-method=tools/call", "mcp-name=a b", "mcp-param-region=us", rest[2], rest[3]];
        assert_eq!(headers(call, Some(&catalog)), with);
        assert_eq!(headers(call, None), [with[0], with[1], with[3], with[4]]);
        let list = r#"{"id":1,"method":"tools/list","params":{"name":"a b","arguments":{"r":"us"}}}"#;
        assert_eq!(headers(list, Some(&catalog)), ["mcp-method=tools/list", rest[2], rest[3]]);
    }
}
