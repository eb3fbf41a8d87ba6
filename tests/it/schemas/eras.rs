//! What is translated between the eras is what the other era's schema wants.

use bytes::Bytes;
use serde_json::Value;
use taskgate::jsonrpc::Envelope;
use taskgate::mcp::rounds::{input_required, question, retry};
use taskgate::mcp::{STATELESS, downward, upward};

use crate::support::schema::{self, assert_valid};

const HANDSHAKE: &str = "2025-11-25";
const INFO: &str = r#"{"name":"s","version":"1"}"#;

fn value(text: impl AsRef<[u8]>) -> Value {
    serde_json::from_slice(text.as_ref()).expect("what is translated is JSON")
}

#[test]
fn results_and_questions_for_a_stateless_client() {
    if !schema::available() {
        return;
    }
    for (method, definition, text) in [
        ("tools/call", "CallToolResult", r#"{"content":[{"type":"text","text":"42"}],"structuredContent":{"n":42}}"#),
        (
            "tools/list",
            "ListToolsResult",
            r#"{"tools":[{"name":"t","inputSchema":{"type":"object"}}],"_meta":{"x/y":1}}"#,
        ),
    ] {
        let told = downward::result(method, &Bytes::from_static(text.as_bytes()), Some(INFO));
        assert_valid(STATELESS, definition, &value(told));
    }
    let hello = format!(
        r#"{{"protocolVersion":"{HANDSHAKE}","capabilities":{{"tools":{{}},"tasks":{{"list":{{}}}}}},"serverInfo":{INFO},"instructions":"go"}}"#
    );
    assert_valid(HANDSHAKE, "InitializeResult", &value(&hello));
    assert_valid(STATELESS, "DiscoverResult", &value(downward::discover(&hello, &[STATELESS])));

    let form = r#"{"message":"?","requestedSchema":{"type":"object","properties":{}},"_meta":{"progressToken":1}}"#;
    let sampling = r#"{"messages":[],"maxTokens":1,"task":{"ttl":1}}"#;
    let data = r#"{"elicitations":[{"mode":"url","url":"https://x","message":"m","elicitationId":"e"}]}"#;
    let [address] = <[String; 1]>::try_from(downward::url_questions(Some(data))).expect("one is listed");
    let [form, sampling] = [("elicitation/create", form), ("sampling/createMessage", sampling)]
        .map(|(method, params)| question(method, Some(params)).expect("it has parameters"));
    let asked = [
        ("a", "elicitation/create", Some(&*form)),
        ("b", "elicitation/create", Some(&*address)),
        ("c", "sampling/createMessage", Some(&*sampling)),
        ("d", "roots/list", None),
    ];
    assert_valid(STATELESS, "InputRequiredResult", &value(input_required(asked, Some("sealed"), Some(INFO))));
}

#[test]
fn requests_of_a_stateless_client() {
    if !schema::available() {
        return;
    }
    let capabilities = r#"{"elicitation":{"form":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
    for client_info in [None, Some(INFO)] {
        let params = downward::initialize(client_info, Some(capabilities));
        assert_valid(HANDSHAKE, "InitializeRequestParams", &value(params));
    }
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"t","_meta":{{"io.modelcontextprotocol/protocolVersion":"{STATELESS}","io.modelcontextprotocol/clientCapabilities":{capabilities}}}}}}}"#
    );
    assert_valid(STATELESS, "CallToolRequest", &value(&call));
    let sent = downward::request(&Envelope::read(Bytes::from(call)).expect("a message"), Some("\"ours\""));
    assert_valid(HANDSHAKE, "CallToolRequest", &value(sent));
}

#[test]
fn requests_of_a_handshake_client_and_their_results() {
    if !schema::available() {
        return;
    }
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","task":{"ttl":1}}}"#;
    let told = upward::Told { client_info: Some(INFO), capabilities: r#"{"roots":{}}"#, log_level: Some("info") };
    let sent = upward::request(&Envelope::read(Bytes::from_static(call.as_bytes())).expect("a message"), told);
    assert_valid(STATELESS, "CallToolRequest", &value(&sent));
    let again = retry(&Envelope::read(sent).expect("a message"), &[("k", r#"{"action":"decline"}"#)], Some("\"s\""));
    assert_valid(STATELESS, "CallToolRequest", &value(&again));

    let found = format!(
        r#"{{"supportedVersions":["{STATELESS}"],"capabilities":{{"tools":{{}},"extensions":{{}}}},"ttlMs":0,"cacheScope":"private","resultType":"complete","_meta":{{"io.modelcontextprotocol/serverInfo":{INFO}}}}}"#
    );
    assert_valid(STATELESS, "DiscoverResult", &value(&found));
    for asked in ["2025-03-26", "2025-06-18", HANDSHAKE] {
        assert_valid(asked, "InitializeResult", &value(upward::initialize(&found, asked)));
    }
    for (method, definition, text) in [
        ("tools/call", "CallToolResult", r#"{"resultType":"complete","content":[],"structuredContent":[1]}"#),
        (
            "tools/list",
            "ListToolsResult",
            r#"{"resultType":"complete","ttlMs":0,"cacheScope":"public","tools":[{"name":"t","inputSchema":{"type":"object"},"outputSchema":{"type":"array"}}]}"#,
        ),
    ] {
        assert_valid(STATELESS, definition, &value(text));
        let told = value(upward::result(method, &Bytes::from_static(text.as_bytes())));
        assert_valid(HANDSHAKE, definition, &told);
    }
}
