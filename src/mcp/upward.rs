//! From a handshake client to a stateless upstream: each request says what the session said once, and answers lose
//! what only the stateless era has.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::jsonrpc::{
    Edit, Envelope, ErrorObject, INTERNAL_ERROR, canonical, entries, members, offset_in, quote, remove, splice,
};

use super::params::{meta_key, string};
use super::patch::{Change, Named, apply, apply_text};
use super::rounds::apply_to_params;
use super::{STATELESS, Version, code, method, text_block};

/// Stands for a server that does not say who it is: clients refuse an `initialize` result without a name.
const SERVER_INFO: &str = r#"{"name":"unknown","version":"0"}"#;

/// What a session said, and each of its requests repeats.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// The text of `clientInfo`.
    pub client_info: Option<&'a str>,
    /// The text of `capabilities`.
    pub capabilities: &'a str,
    /// What `logging/setLevel` asked for.
    pub log_level: Option<&'a str>,
}

/// The request as a stateless upstream expects it.
#[must_use]
pub fn request(message: &Envelope, told: Told<'_>) -> Bytes {
    let is_object = |text: &&str| text.starts_with('{');
    let capabilities = Some(told.capabilities).filter(is_object).unwrap_or("{}");
    let optional = |value: Option<String>| value.map_or(Change::Remove, Change::Set);
    let meta = vec![
        (meta_key::PROTOCOL_VERSION, Change::Set(quote(STATELESS))),
        (meta_key::CLIENT_INFO, optional(told.client_info.filter(is_object).map(str::to_owned))),
        (meta_key::CLIENT_CAPABILITIES, Change::Set(capabilities.to_owned())),
        (meta_key::LOG_LEVEL, optional(told.log_level.map(quote))),
    ];
    apply_to_params(message, vec![("_meta", Change::Inside(meta)), ("task", Change::Remove)])
}

/// The result of `method` for the handshake client. That of a task keeps its kind and its `ttlMs`, which is the
/// task's.
#[must_use]
pub fn result(method: &str, result: &Bytes) -> Bytes {
    let Ok(text) = std::str::from_utf8(result) else { return result.clone() };
    let mut changes = vec![("_meta", Change::Pruned(vec![(meta_key::SERVER_INFO, Change::Remove)]))];
    let of_a_task = method.starts_with("tasks/") || entries(text).get("resultType") == Some(&r#""task""#);
    if !of_a_task {
        changes.extend(["resultType", "ttlMs", "cacheScope"].map(|name| (name, Change::Remove)));
    }
    if method == method::TOOLS_CALL {
        changes.extend(structured_as_text(text));
    }
    let edited = apply(result, &changes);
    if method == method::TOOLS_LIST { without_open_schemas(&edited) } else { edited }
}

/// The parameters of a question as the handshake client reads them: an address that it is to visit has a name there.
#[must_use]
pub fn question(method: &str, params: &str, name: &str) -> String {
    let is_address = method == method::ELICITATION_CREATE && entries(params).get("mode") == Some(&r#""url""#);
    if is_address { apply_text(params, &[("elicitationId", Change::Default(quote(name)))]) } else { params.to_owned() }
}

/// A notification of a subscription for the handshake client, which knows of none.
#[must_use]
pub fn notification(message: &Envelope) -> Bytes {
    apply_to_params(message, vec![("_meta", Change::Pruned(vec![(meta_key::SUBSCRIPTION_ID, Change::Remove)]))])
}

/// The error for the handshake client, which knows none of the codes of 2026-07-28.
#[must_use]
pub fn error(error: ErrorObject) -> ErrorObject {
    match error.code {
        code::HEADER_MISMATCH | code::MISSING_CAPABILITY | code::UNSUPPORTED_VERSION => {
            ErrorObject { code: INTERNAL_ERROR, ..error }
        }
        _ => error,
    }
}

/// The result of `initialize` from that of `server/discover`, for a client that asked for a version: that one if it is
/// known, else the newest of the handshake era.
#[must_use]
pub fn initialize(discover_result: &str, asked_version: &str) -> String {
    let version = Version::handshake(asked_version).unwrap_or(Version::V2025_11_25);
    let found = entries(discover_result);
    let meta = entries(found.get("_meta").copied().unwrap_or_default());
    let server_info = meta.get(meta_key::SERVER_INFO).copied().filter(|text| text.starts_with('{'));
    let changes: Vec<Named<'_>> = vec![
        ("resultType", Change::Remove),
        ("supportedVersions", Change::Remove),
        ("ttlMs", Change::Remove),
        ("cacheScope", Change::Remove),
        ("protocolVersion", Change::Set(quote(version.text()))),
        ("serverInfo", Change::Set(server_info.unwrap_or(SERVER_INFO).to_owned())),
        ("capabilities", Change::Inside(vec![("extensions", Change::Remove)])),
        ("_meta", Change::Pruned(vec![(meta_key::SERVER_INFO, Change::Remove)])),
    ];
    apply_text(discover_result, &changes)
}

/// A structured result that is no object goes, and stands in a text unless one says it already.
fn structured_as_text(result: &str) -> Vec<Named<'static>> {
    let found = entries(result);
    let structured = found.get("structuredContent").copied().filter(|value| !value.starts_with('{'));
    let Some(value) = structured else { return Vec::new() };
    let gone = ("structuredContent", Change::Remove);
    let content = found.get("content").copied().unwrap_or_default();
    let blocks: Option<Vec<&RawValue>> = serde_json::from_str(content).ok();
    let said = blocks.iter().flatten().any(|block| says(block.get(), value));
    if value == "null" || said {
        return vec![gone];
    }
    let block = text_block(&string(value).unwrap_or(Cow::Borrowed(value)));
    let content = match blocks {
        Some(blocks) if !blocks.is_empty() => {
            format!("{},{block}]", content.strip_suffix(']').expect("a list ends with a bracket"))
        }
        _ => format!("[{block}]"),
    };
    vec![gone, ("content", Change::Set(content))]
}

/// Whether a content block is the text of this value.
fn says(block: &str, value: &str) -> bool {
    let block = entries(block);
    let Some(text) = block.get("text").and_then(|raw| string(raw)) else { return false };
    string(value).is_some_and(|value| value == text)
        || canonical(&text).is_some_and(|text| canonical(value).is_some_and(|value| value == text))
}

/// A `tools/list` result without the output schemas whose root is no object: older clients lose the whole list.
fn without_open_schemas(result: &Bytes) -> Bytes {
    let Ok(text) = std::str::from_utf8(result) else { return result.clone() };
    let page = entries(text);
    let tools: Option<Vec<&RawValue>> = page.get("tools").and_then(|list| serde_json::from_str(list).ok());
    let edits: Vec<Edit> = tools.iter().flatten().flat_map(|tool| without_open_schema(text, tool.get())).collect();
    if edits.is_empty() { result.clone() } else { splice(result, edits) }
}

fn without_open_schema(page: &str, tool: &str) -> Vec<Edit> {
    let found = members(tool).unwrap_or_default();
    let is_object = |schema: &str| entries(schema).get("type") == Some(&r#""object""#);
    let open = found.iter().any(|member| member.name == "outputSchema" && !is_object(member.value));
    if open { remove(&found, offset_in(page, tool).start, "outputSchema") } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn given(method: &str, text: &str) -> String {
        String::from_utf8(result(method, &Bytes::copy_from_slice(text.as_bytes())).to_vec()).unwrap()
    }

    #[test]
    fn requests_say_what_the_session_said() {
        let info = r#"{"name":"c","version":"1"}"#;
        let told = Told { client_info: Some(info), capabilities: r#"{"roots":{}}"#, log_level: Some("info") };
        let keys = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"roots":{}},"io.modelcontextprotocol/logLevel":"info""#;
        for (params, expected) in [
            (
                r#"{"name":"t", "arguments":{"n":1e400},"task":{"ttl":1},"_meta":{"progressToken":7 }}"#,
                format!(r#"{{"name":"t", "arguments":{{"n":1e400}},"_meta":{{{keys},"progressToken":7 }}}}"#),
            ),
            ("{}", format!(r#"{{"_meta":{{{keys}}}}}"#)),
            ("null", format!(r#"{{"_meta":{{{keys}}}}}"#)),
            (r#"{"_meta":null}"#, format!(r#"{{"_meta":{{{keys}}}}}"#)),
            (
                r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"1"}}"#,
                format!(
                    r#"{{"_meta":{{{},"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}}"#,
                    keys.split_once(',').unwrap().1
                ),
            ),
            ("[1]", "[1]".into()),
        ] {
            let with = |params: &str| format!(r#"{{"id" : "a","method":"x","params": {params} }}"#);
            let message = Envelope::read(Bytes::from(with(params))).unwrap();
            assert_eq!(request(&message, told), with(&expected));
        }
        let message = Envelope::read(Bytes::from_static(br#"{"id":1,"method":"x"}"#)).unwrap();
        let bare = request(&message, Told { client_info: Some("null"), capabilities: "", log_level: None });
        let bare: Value = serde_json::from_slice(&bare).unwrap();
        assert_eq!(
            bare["params"]["_meta"],
            json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}})
        );
    }

    #[test]
    fn results_lose_what_is_stateless() {
        for (method, before, after) in [
            (
                "resources/read",
                r#"{"contents":[] ,"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{}}}"#,
                r#"{"contents":[]}"#,
            ),
            (
                "tools/call",
                r#"{"resultType":"complete", "n":1e400,"_meta":{"x":1, "io.modelcontextprotocol/serverInfo":{}}}"#,
                r#"{"n":1e400,"_meta":{"x":1}}"#,
            ),
            ("tools/call", r#"{"resultType":"complete"}"#, "{}"),
            ("tools/call", r#"{"resultType":"task","ttlMs":5}"#, r#"{"resultType":"task","ttlMs":5}"#),
            ("tasks/get", r#"{"resultType":"complete","ttlMs":5}"#, r#"{"resultType":"complete","ttlMs":5}"#),
            ("prompts/get", r#"{"_meta":{}}"#, r#"{"_meta":{}}"#),
            ("prompts/get", r#"{"_meta":null}"#, r#"{"_meta":null}"#),
            ("tools/list", "[1]", "[1]"),
            ("tools/call", "null", "null"),
        ] {
            assert_eq!(given(method, before), after, "{before}");
        }
    }

    #[test]
    fn output_schemas_have_an_object_at_their_root() {
        let page = r##"{"ttlMs":0,"tools":[ {"outputSchema":{"type":"array"},"name":"a"},{"name":"b","outputSchema":{"type":"object", "n":1.0}} ,7,{"name":"c" , "outputSchema":{"$ref":"#/$defs/x"}},{"outputSchema":true}],"nextCursor":""}"##;
        assert_eq!(
            given("tools/list", page),
            r##"{"tools":[ {"name":"a"},{"name":"b","outputSchema":{"type":"object", "n":1.0}} ,7,{"name":"c"},{}],"nextCursor":""}"##
        );
        for page in [r#"{"tools":7}"#, r#"{"tools":[]}"#, "{}"] {
            assert_eq!(given("tools/list", page), page);
        }
    }

    #[test]
    fn structured_results_that_are_no_objects_become_text() {
        for (before, after) in [
            (
                r#"{"content":[ {"type":"text","text":"hi"} ],"structuredContent":[1, 2.0]}"#,
                r#"{"content":[ {"type":"text","text":"hi"} ,{"type":"text","text":"[1, 2.0]"}]}"#,
            ),
            (r#"{"content":[],"structuredContent":7}"#, r#"{"content":[{"type":"text","text":"7"}]}"#),
            (r#"{"structuredContent":"a\"b"}"#, r#"{"content":[{"type":"text","text":"a\"b"}]}"#),
            (r#"{"content":null,"structuredContent":true}"#, r#"{"content":[{"type":"text","text":"true"}]}"#),
            (
                r#"{"content":[{"type":"text","text":"[1,2.0]"}],"structuredContent":[1, 2.0]}"#,
                r#"{"content":[{"type":"text","text":"[1,2.0]"}]}"#,
            ),
            (
                r#"{"content":[{"type":"text","text":"done"}],"structuredContent":"done"}"#,
                r#"{"content":[{"type":"text","text":"done"}]}"#,
            ),
            (r#"{"content":[],"structuredContent":null}"#, r#"{"content":[]}"#),
            (r#"{"content":[],"structuredContent":{"a":1}}"#, r#"{"content":[],"structuredContent":{"a":1}}"#),
        ] {
            assert_eq!(given("tools/call", before), after);
        }
        let prompt = r#"{"structuredContent":7}"#;
        assert_eq!(given("prompts/get", prompt), prompt);
    }

    #[test]
    fn addresses_have_a_name() {
        for (method, before, after) in [
            ("elicitation/create", r#"{"mode":"url","url":"u"}"#, r#"{"elicitationId":"q","mode":"url","url":"u"}"#),
            ("elicitation/create", r#"{"mode":"url","elicitationId":7}"#, r#"{"mode":"url","elicitationId":7}"#),
            ("elicitation/create", r#"{"mode":"form"}"#, r#"{"mode":"form"}"#),
            ("sampling/createMessage", r#"{"mode":"url"}"#, r#"{"mode":"url"}"#),
        ] {
            assert_eq!(question(method, before, "q"), after);
        }
    }

    #[test]
    fn notifications_name_no_subscription() {
        let told = |text: &'static str| notification(&Envelope::read(Bytes::from_static(text.as_bytes())).unwrap());
        for (before, after) in [
            (
                r#"{"method":"x","params":{"uri":"a","_meta":{"io.modelcontextprotocol/subscriptionId":1}}}"#,
                r#"{"method":"x","params":{"uri":"a"}}"#,
            ),
            (
                r#"{"method":"x","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"1","n":1.0}}}"#,
                r#"{"method":"x","params":{"_meta":{"n":1.0}}}"#,
            ),
            (r#"{"method":"x"}"#, r#"{"method":"x"}"#),
        ] {
            assert_eq!(told(before), after);
        }
    }

    #[test]
    fn errors_of_the_stateless_era_keep_their_text() {
        for (before, after) in [(-32020, -32603), (-32021, -32603), (-32022, -32603), (-32602, -32602), (-1, -1)] {
            let told: ErrorObject =
                serde_json::from_value(json!({"code": before, "message": "no", "data": 1})).unwrap();
            assert_eq!(error(told.clone()), ErrorObject { code: after, ..told });
        }
    }

    #[test]
    fn initialize_tells_what_was_discovered() {
        let found = r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged": true},"extensions":{"io.modelcontextprotocol/tasks":{}}},"ttlMs":60000,"cacheScope":"private","instructions":"go","resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}"#;
        for (asked, version) in [
            ("2025-06-18", "2025-06-18"),
            ("2024-11-05", "2024-11-05"),
            ("2026-07-28", "2025-11-25"),
            ("", "2025-11-25"),
        ] {
            assert_eq!(
                initialize(found, asked),
                format!(
                    r#"{{"protocolVersion":"{version}","serverInfo":{{"name":"s","version":"1"}},"capabilities":{{"tools":{{"listChanged": true}}}},"instructions":"go"}}"#
                )
            );
        }
        let bare: Value = serde_json::from_str(&initialize(r#"{"capabilities":{"extensions":{}}}"#, "x")).unwrap();
        assert_eq!((&bare["serverInfo"]["name"], &bare["capabilities"]), (&json!("unknown"), &json!({})));
        assert_eq!(initialize("[1]", "x"), "[1]");
    }

    proptest! {
        #[test]
        fn results_of_any_text_never_panic(
            text in "[\\[\\]{}:,\"a1 ]{0,24}|\\{\"(tools|_meta|content|structuredContent)\":[\\[\\]{}:,\"a1 ]{0,9}\\}"
        ) {
            for method in ["tools/list", "tools/call", "tasks/get"] {
                let told = given(method, &text);
                prop_assert!(told == text || serde_json::from_str::<Value>(&told).is_ok(), "{}", told);
            }
            let _ = initialize(&text, "2025-11-25");
        }
    }
}
