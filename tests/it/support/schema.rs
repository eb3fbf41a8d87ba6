//! The JSON schemas of the protocol's revisions and of its tasks extension, compiled once per definition.
//!
//! What a test expects is what its author believes of the protocol; the schemas are what the protocol says of itself.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, Once};

use jsonschema::Validator;
use serde_json::{Value, json};

use super::client::Answer;

/// The handshake revisions that have a schema.
pub const REVISIONS: [&str; 3] = ["2025-03-26", "2025-06-18", "2025-11-25"];

/// The tasks extension, in place of a revision.
pub const EXT: &str = "ext-tasks";

/// The variable that names the folder with `mcp-<revision>.json` and `ext-tasks.json`.
const FOLDER: &str = "TASKGATE_SCHEMAS";

/// For each definition used, messages that it must refuse: one that takes these as well proves nothing.
const WRONG: &[(&str, &[&str])] = &[
    ("CallToolRequest", &[r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{}}}"#]),
    ("CallToolResult", &[r#"{"content":"done"}"#, r#"{"content":[],"isError":"no"}"#, r#"{"content":[{"text":"x"}]}"#]),
    ("CancelTaskResult", &[r#"{"status":"cancelled"}"#, r#"{"resultType":"task"}"#]),
    ("CancelledNotification", &[r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#]),
    ("CreateTaskResult", &[r#"{"task":{"taskId":"1"}}"#, r#"{"resultType":"task","taskId":"1","status":"running"}"#]),
    ("CreateMessageRequest", &[r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}"#]),
    ("DiscoverRequest", &[r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{}}}"#]),
    ("DiscoverResult", &[r#"{"supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":0,"cacheScope":"private"}"#]),
    ("ElicitRequest", &[r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":1}}"#]),
    ("ElicitResult", &[r#"{"action":"declined"}"#, r#"{"content":{}}"#]),
    ("Error", &[r#"{"code":"-32603","message":"no"}"#, r#"{"code":-32603}"#]),
    ("GetTaskPayloadResult", &["[]", r#"{"_meta":1}"#]),
    (
        "GetTaskResult",
        &[
            r#"{"taskId":"1","status":"running","createdAt":"","lastUpdatedAt":"","ttl":1,"ttlMs":1}"#,
            r#"{"taskId":"1","status":"working","createdAt":"","lastUpdatedAt":"","ttl":"1 h","ttlMs":"1 h"}"#,
        ],
    ),
    ("HeaderMismatchError", &[r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"x"}}"#]),
    ("InitializeRequestParams", &[r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#]),
    ("InitializeResult", &[r#"{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x"}}"#]),
    ("InputRequiredResult", &[r#"{"resultType":"input_required","inputRequests":{"k":{"method":"x"}}}"#]),
    ("JSONRPCBatchResponse", &["[{}]", r#"[{"jsonrpc":"2.0","id":null,"result":{}}]"#, "{}"]),
    (
        "JSONRPCError",
        &[r#"{"jsonrpc":"2.0","id":1,"error":{"code":1}}"#, r#"{"id":1,"error":{"code":1,"message":""}}"#],
    ),
    ("JSONRPCErrorResponse", &[r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}"#]),
    ("JSONRPCResponse", &[r#"{"jsonrpc":"2.0","result":{}}"#, r#"{"jsonrpc":"1.0","id":1,"result":{}}"#]),
    (
        "JSONRPCResultResponse",
        &[r#"{"jsonrpc":"2.0","id":null,"result":{}}"#, r#"{"jsonrpc":"2.0","id":1,"result":1}"#],
    ),
    ("ListRootsRequest", &[r#"{"jsonrpc":"2.0","id":1,"method":"roots"}"#]),
    ("ListTasksResult", &[r#"{"tasks":{}}"#, r#"{"tasks":[{"taskId":"1"}]}"#]),
    ("ListToolsRequest", &[r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":1}}"#]),
    ("ListToolsResult", &[r#"{"tools":[{"name":"x"}]}"#, r#"{"tools":[],"nextCursor":1}"#]),
    (
        "MissingRequiredClientCapabilityError",
        &[r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32021,"message":"x","data":{}}}"#],
    ),
    ("ProgressNotification", &[r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}"#]),
    ("RelatedTaskMetadata", &[r#"{"id":"1"}"#]),
    (
        "SubscriptionsAcknowledgedNotification",
        &[
            r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/acknowledged","params":{"notifications":{}}}"#,
        ],
    ),
    (
        "SubscriptionsListenResultResponse",
        &[r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":{}}}"#],
    ),
    ("TaskSubscriptionAcknowledgedNotifications", &[r#"{"taskIds":"1"}"#, r#"{"taskIds":[1]}"#]),
    ("Task", &[r#"{"taskId":"1","status":"working"}"#]),
    ("TaskStatusNotification", &[r#"{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"1"}}"#]),
    ("UpdateTaskResult", &[r#"{"resultType":"task"}"#, "{}"]),
];

static DOCUMENTS: LazyLock<Mutex<HashMap<String, Arc<Value>>>> = LazyLock::new(Mutex::default);
static COMPILED: LazyLock<Mutex<HashMap<String, Arc<Validator>>>> = LazyLock::new(Mutex::default);

/// Whether the schemas are there. If not, says so past the capture of the test's output: a check that did not run is no
/// check.
pub fn available() -> bool {
    static SAID: Once = Once::new();
    let there = folder().is_some();
    if !there {
        let line = format!("skipped: {FOLDER} is not set, so no message is held to the schemas\n");
        SAID.call_once(|| std::io::stderr().write_all(line.as_bytes()).expect("standard error is open"));
    }
    there
}

fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// Fails, with everything that is wrong, unless `message` is a `definition` of `version` (a revision, or [`EXT`]).
#[track_caller]
pub fn assert_valid(version: &str, definition: &str, message: &Value) {
    let wrong = errors(version, definition, message);
    assert!(wrong.is_empty(), "no {definition} of {version}:\n  {}\n{message:#}", wrong.join("\n  "));
}

/// What keeps `message` from being a `definition` of `version`.
pub fn errors(version: &str, definition: &str, message: &Value) -> Vec<String> {
    let validator = compiled(version, definition);
    let told = |error: jsonschema::ValidationError<'_>| format!("at {:?}: {error}", error.instance_path().as_str());
    validator.iter_errors(message).map(told).collect()
}

/// Fails unless an answer is a response of this revision whose result is such a `definition`.
#[track_caller]
pub fn assert_result(revision: &str, definition: &str, answer: &Answer) {
    let response = if revision < "2025-11-25" { "JSONRPCResponse" } else { "JSONRPCResultResponse" };
    assert_valid(revision, response, &answer.json);
    assert_keys(&answer.json, &["jsonrpc", "id", "result"]);
    assert_valid(revision, definition, answer.result());
}

/// Fails unless an answer is an error of this revision.
#[track_caller]
pub fn assert_error(revision: &str, answer: &Answer) {
    assert_error_message(revision, &answer.json);
}

/// Fails unless a JSON-RPC message is an error of this revision. JSON-RPC has `null` for an id that could not be read;
/// MCP's schemas know only ids that were, and so cannot say anything about that member.
#[track_caller]
pub fn assert_error_message(revision: &str, message: &Value) {
    let definition = if revision < "2025-11-25" { "JSONRPCError" } else { "JSONRPCErrorResponse" };
    let mut judged = message.clone();
    if judged["id"].is_null() {
        judged["id"] = json!("not read");
    }
    assert_valid(revision, definition, &judged);
    assert_keys(message, &["jsonrpc", "id", "error"]);
    assert!(message["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "it says nothing: {message}");
}

/// The schemas are open, so that a stray top-level member of ours would pass them.
#[track_caller]
fn assert_keys(message: &Value, allowed: &[&str]) {
    let members = message.as_object().expect("validated above");
    assert!(members.keys().all(|key| allowed.contains(&key.as_str())), "more than {allowed:?}: {message}");
}

fn compiled(version: &str, definition: &str) -> Arc<Validator> {
    let name = format!("{version} {definition}");
    if let Some(known) = COMPILED.lock().unwrap().get(&name) {
        return known.clone();
    }
    let validator = Arc::new(compile(version, definition));
    let (_, wrong) = WRONG
        .iter()
        .find(|(known, _)| *known == definition)
        .unwrap_or_else(|| panic!("{definition} has no wrong message to refuse"));
    for message in *wrong {
        let message: Value = serde_json::from_str(message).expect("JSON, if wrong");
        assert!(!validator.is_valid(&message), "{definition} of {version} takes {message}: it proves nothing");
    }
    COMPILED.lock().unwrap().insert(name, validator.clone());
    validator
}

fn compile(version: &str, definition: &str) -> Validator {
    let mut schema = Value::clone(&document(version));
    let definitions = if schema.get("$defs").is_some() { "$defs" } else { "definitions" };
    assert!(schema[definitions].get(definition).is_some(), "{version} has no {definition}");
    schema["$ref"] = json!(format!("#/{definitions}/{definition}"));
    jsonschema::validator_for(&schema).unwrap_or_else(|error| panic!("{version} {definition}: {error}"))
}

fn document(version: &str) -> Arc<Value> {
    let mut documents = DOCUMENTS.lock().unwrap();
    let document = documents.entry(version.to_owned()).or_insert_with(|| {
        let name = if version == EXT { format!("{EXT}.json") } else { format!("mcp-{version}.json") };
        let path = folder().expect("asked for by available()").join(name);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Arc::new(serde_json::from_str(&text).expect("schemas are JSON"))
    });
    document.clone()
}
