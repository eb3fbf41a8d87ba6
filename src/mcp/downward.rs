//! From a stateless client to a handshake upstream: requests lose what a session says once, and answers gain what the
//! stateless era wants in each.

use bytes::Bytes;

use crate::jsonrpc::{Envelope, ErrorObject, INVALID_PARAMS, Object, entries};
use serde_json::value::RawValue;

use super::params::meta_key;
use super::patch::{Change, Named, apply, apply_text};
use super::results::{complete, is_cacheable, not_kept};
use super::rounds::{INPUT_RESPONSES, REQUEST_STATE, apply_to_params, question};
use super::{TASKS_EXTENSION, Version, code, method, without_tasks};

/// Who opens an upstream session when the client does not say who it is.
const CLIENT_INFO: &str = concat!(r#"{"name":"taskgate","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#);

/// The request as a handshake upstream expects it: without the metadata and the parameters that only the stateless era
/// has, and with this progress token (JSON text) or none.
#[must_use]
pub fn request(message: &Envelope, progress_token: Option<&str>) -> Bytes {
    let meta = vec![
        (meta_key::PROTOCOL_VERSION, Change::Remove),
        (meta_key::CLIENT_INFO, Change::Remove),
        (meta_key::CLIENT_CAPABILITIES, Change::Remove),
        (meta_key::LOG_LEVEL, Change::Remove),
        ("progressToken", progress_token.map_or(Change::Remove, |token| Change::Set(token.into()))),
    ];
    let changes = vec![
        ("_meta", Change::Pruned(meta)),
        ("task", Change::Remove),
        (INPUT_RESPONSES, Change::Remove),
        (REQUEST_STATE, Change::Remove),
    ];
    apply_to_params(message, changes)
}

/// The result of `method` for the stateless client: complete, not to be kept, from this server (JSON text of its
/// `serverInfo`).
#[must_use]
pub fn result(method: &str, result: &Bytes, server_info: Option<&str>) -> Bytes {
    let mut changes = vec![("resultType", complete())];
    if is_cacheable(method) {
        changes.extend(not_kept());
    }
    changes.extend(served_by(server_info));
    apply(result, &changes)
}

/// The error for the stateless client: a resource that is not there is an invalid parameter.
#[must_use]
pub fn error(error: ErrorObject) -> ErrorObject {
    match error.code {
        code::RESOURCE_NOT_FOUND => ErrorObject { code: INVALID_PARAMS, ..error },
        _ => error,
    }
}

/// The questions that an error with [`code::URL_ELICITATION_REQUIRED`] stands for: the parameters of an
/// `elicitation/create` each. Empty if its data holds none.
#[must_use]
pub fn url_questions(data: Option<&str>) -> Vec<String> {
    let data = entries(data.unwrap_or_default());
    let listed = data.get("elicitations").and_then(|text| serde_json::from_str::<Vec<&RawValue>>(text).ok());
    let asked = listed.unwrap_or_default().into_iter().map(RawValue::get).filter(|text| text.starts_with('{'));
    asked
        .filter_map(|params| question(method::ELICITATION_CREATE, Some(params)))
        .map(|params| apply_text(&params, &[("mode", Change::Default(r#""url""#.into()))]))
        .collect()
}

/// The result of `server/discover` from that of `initialize`: its capabilities with the tasks extension, and never
/// with tasks of 2025-11-25.
#[must_use]
pub fn discover(initialize_result: &str, versions: &[&str]) -> String {
    let versions = serde_json::to_string(versions).expect("strings are JSON");
    let server_info = entries(initialize_result).get("serverInfo").map(|text| (*text).to_owned());
    let extensions = vec![(TASKS_EXTENSION, Change::Set("{}".into()))];
    let capabilities = vec![("tasks", Change::Remove), ("extensions", Change::Inside(extensions))];
    let mut changes = vec![
        ("protocolVersion", Change::Remove),
        ("serverInfo", Change::Remove),
        ("resultType", complete()),
        ("supportedVersions", Change::Set(versions)),
        ("capabilities", Change::Inside(capabilities)),
    ];
    changes.extend(not_kept());
    changes.extend(served_by(server_info.as_deref()));
    apply_text(initialize_result, &changes)
}

/// The parameters of the `initialize` that opens an upstream session for a client (JSON texts of what it says in
/// `_meta`). Tasks are ours: the upstream hears of none.
#[must_use]
pub fn initialize(client_info: Option<&str>, capabilities: Option<&str>) -> String {
    let object = |text: &&str| text.starts_with('{');
    Object::new()
        .string("protocolVersion", Version::V2025_11_25.text())
        .raw("capabilities", &without_tasks(capabilities.filter(object).unwrap_or("{}")))
        .raw("clientInfo", client_info.filter(object).unwrap_or(CLIENT_INFO))
        .finish()
}

/// Names the server among the metadata of a result.
fn served_by(server_info: Option<&str>) -> Option<Named<'static>> {
    let info = server_info.filter(|text| text.starts_with('{'))?;
    Some(("_meta", Change::Inside(vec![(meta_key::SERVER_INFO, Change::Set(info.into()))])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    const INFO: &str = r#"{"name":"s","version":"1"}"#;

    fn sent(text: &str, token: Option<&str>) -> String {
        let message = Envelope::read(Bytes::copy_from_slice(text.as_bytes())).unwrap();
        String::from_utf8(request(&message, token).to_vec()).unwrap()
    }

    fn given(method: &str, text: &str) -> String {
        String::from_utf8(result(method, &Bytes::copy_from_slice(text.as_bytes()), Some(INFO)).to_vec()).unwrap()
    }

    #[test]
    fn requests_lose_what_is_stateless() {
        let stateless = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28", "traceparent" : "00-1","io.modelcontextprotocol/clientInfo":{},"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/logLevel":"info","progressToken":7}"#;
        for (params, token, expected) in [
            (
                format!(
                    r#"{{"name":"t", "arguments":{{"n":1e400}},"task":{{}},"_meta":{stateless},"requestState":"s"}}"#
                ),
                Some("\"ours\""),
                r#"{"name":"t", "arguments":{"n":1e400},"_meta":{"traceparent" : "00-1","progressToken":"ours"}}"#,
            ),
            (format!(r#"{{"_meta":{stateless}}}"#), None, r#"{"_meta":{"traceparent" : "00-1"}}"#),
            (r#"{"_meta":{"progressToken":1},"cursor":"c"}"#.into(), None, r#"{"cursor":"c"}"#),
            (r#"{"inputResponses":{},"a":1}"#.into(), Some("3"), r#"{"_meta":{"progressToken":3},"a":1}"#),
            (r#"{"_meta":null}"#.into(), Some("3"), r#"{"_meta":{"progressToken":3}}"#),
            (r#"{"_meta":null}"#.into(), None, r#"{"_meta":null}"#),
            (r#"{"_meta":["x"]}"#.into(), None, r#"{"_meta":["x"]}"#),
            ("[1]".into(), Some("3"), "[1]"),
            ("null".into(), None, "null"),
        ] {
            let with = |params: &str| format!(r#"{{"jsonrpc" : "2.0","id":1.0,"method":"x","params": {params} }}"#);
            assert_eq!(sent(&with(&params), token), with(expected));
        }
        let bare = r#"{"id":1,"method":"x"}"#;
        assert_eq!(sent(bare, None), bare);
        assert_eq!(sent(bare, Some("3")), r#"{"params":{"_meta":{"progressToken":3}},"id":1,"method":"x"}"#);
    }

    #[test]
    fn results_gain_what_the_stateless_era_wants() {
        let info = format!(r#""io.modelcontextprotocol/serverInfo":{INFO}"#);
        for (method, before, after) in [
            (
                "tools/call",
                r#"{"content":[] ,"n":1e400}"#,
                format!(r#"{{"resultType":"complete","_meta":{{{info}}},"content":[] ,"n":1e400}}"#),
            ),
            (
                "tools/list",
                r#"{"tools":[],"_meta": {"x":1}}"#,
                format!(
                    r#"{{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[],"_meta": {{{info},"x":1}}}}"#
                ),
            ),
            ("tools/call", r#"{"_meta":null}"#, format!(r#"{{"resultType":"complete","_meta":{{{info}}}}}"#)),
            ("tools/call", "[1]", "[1]".into()),
            ("tools/list", "null", "null".into()),
            ("tools/list", "7", "7".into()),
        ] {
            assert_eq!(given(method, before), after);
        }
        let kept = Bytes::from_static(b"{\"resultType\":\"complete\"}");
        for info in [None, Some("null"), Some("[]")] {
            assert_eq!(result("tools/call", &kept, info), kept);
        }
    }

    #[test]
    fn errors_have_the_codes_of_the_stateless_era() {
        for (before, after) in [(-32002, -32602), (-32602, -32602), (-32042, -32042), (-1, -1)] {
            let told: ErrorObject =
                serde_json::from_value(json!({"code": before, "message": "no", "data": 1})).unwrap();
            assert_eq!(error(told.clone()), ErrorObject { code: after, ..told });
        }
    }

    #[test]
    fn addresses_to_visit_become_questions() {
        let data = r#"{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://x/?a=1","message":"m"},7,
            {"url":"https://y","elicitationId":"f"}]}"#;
        assert_eq!(
            url_questions(Some(data)),
            [r#"{"mode":"url","url":"https://x/?a=1","message":"m"}"#, r#"{"mode":"url","url":"https://y"}"#]
        );
        for data in [None, Some("null"), Some("[]"), Some(r#"{"elicitations":{}}"#), Some("{")] {
            assert!(url_questions(data).is_empty(), "{data:?}");
        }
    }

    #[test]
    fn discovers_what_initialize_told() {
        let told = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged": true},"tasks":{"list":{}},"x":1.0},"serverInfo":{"name":"s","version":"1"},"instructions":"go","vendor":[1e400]}"#;
        assert_eq!(
            discover(told, &["2026-07-28"]),
            r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}},"capabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}},"tools":{"listChanged": true},"x":1.0},"instructions":"go","vendor":[1e400]}"#
        );
        for (capabilities, expected) in [
            ("", json!({"io.modelcontextprotocol/tasks": {}})),
            (r#""capabilities":null,"#, json!({"io.modelcontextprotocol/tasks": {}})),
            (
                r#""capabilities":{"extensions":{"io.modelcontextprotocol/tasks":{"a":1},"z":{}}},"#,
                json!({"io.modelcontextprotocol/tasks": {}, "z": {}}),
            ),
        ] {
            let told = format!(r#"{{{capabilities}"protocolVersion":"2025-06-18"}}"#);
            let found: Value = serde_json::from_str(&discover(&told, &["2026-07-28"])).unwrap();
            assert_eq!(found["capabilities"]["extensions"], expected);
            assert!(found.get("_meta").is_none());
        }
        assert_eq!(discover("[1]", &[]), "[1]");
    }

    #[test]
    fn b101_opens_a_session_with_what_the_client_can_be_asked() {
        let told = initialize(
            Some(r#"{"name":"c","version":"2.0"}"#),
            Some(r#"{"elicitation":{"form":{}},"extensions":{"io.modelcontextprotocol/tasks":{}},"roots":{}}"#),
        );
        assert_eq!(
            told,
            r#"{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{"form":{}},"roots":{}},"clientInfo":{"name":"c","version":"2.0"}}"#
        );
        for odd in [None, Some("null"), Some("[]")] {
            let told: Value = serde_json::from_str(&initialize(odd, odd)).unwrap();
            assert_eq!((&told["clientInfo"]["name"], &told["capabilities"]), (&json!("taskgate"), &json!({})));
        }
        let more = initialize(None, Some(r#"{"extensions":{"io.modelcontextprotocol/tasks":{},"z":1},"tasks":{}}"#));
        assert!(more.contains(r#""capabilities":{"extensions":{"z":1}}"#), "{more}");
    }

    proptest! {
        #[test]
        fn results_of_any_text_never_panic(text in "[\\[\\]{}:,\"a1 ]{0,24}|\\{\"_meta\":[\\[\\]{}:,\"a1 ]{0,9}\\}") {
            let told = given("tools/list", &text);
            prop_assert!(told == text || serde_json::from_str::<Value>(&told).unwrap()["resultType"] == "complete");
            let _ = discover(&text, &["2026-07-28"]);
            let _ = url_questions(Some(&text));
        }
    }
}
