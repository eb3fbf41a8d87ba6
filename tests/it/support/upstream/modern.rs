//! A strict server of the stateless era (2026-07-28): whatever does not fit that revision is refused.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use serde_json::{Value, json};

use super::call::Call;
use super::record::Recorded;
use super::{Builder, Settings};

/// The only version it speaks.
pub const VERSION: &str = "2026-07-28";
const META: &str = "io.modelcontextprotocol";
const NAMED: [(&str, &str); 3] = [("tools/call", "name"), ("prompts/get", "name"), ("resources/read", "uri")];

/// Why a request is refused: status, code, text.
type Refusal = (u16, i64, String);

impl Builder {
    /// Speaks the stateless era and no other, to the letter.
    pub fn modern(mut self) -> Self {
        self.0.modern = true;
        self.without_sessions()
    }

    /// The same, with clients of its own era, which may speak of tasks: it knows nothing of them.
    pub fn native(mut self) -> Self {
        self.0.native = true;
        self.modern()
    }

    /// Speaks both eras: serves each request in its own, those of the stateless one to the letter.
    pub fn both(mut self) -> Self {
        self.0.both = true;
        self.0.native = true;
        self
    }
}

/// Whether a request is of the stateless era, which is what its version or its method says.
pub(super) fn says_so(request: &Recorded) -> bool {
    let inside = &request.json["params"]["_meta"][format!("{META}/protocolVersion")];
    request.header("mcp-protocol-version") == Some(VERSION)
        || inside == VERSION
        || request.method() == "server/discover"
}

/// Why a request is none of this era; `None` if it is one, or if a script of its own answers it.
pub(super) fn refusal(settings: &Settings, request: &Recorded) -> Option<Refusal> {
    if request.http != "POST" {
        return Some((405, -32601, "POST only".to_owned()));
    }
    if settings.methods.contains_key(request.method()) && request.method() == "initialize" {
        return None;
    }
    if request.method() == "initialize" {
        return Some((400, -32022, "Unsupported protocol version".to_owned()));
    }
    if request.json.get("id").is_none() || request.method().is_empty() {
        return Some((400, -32600, format!("nothing but requests, not {}", request.body)));
    }
    header_refusal(settings, request).or_else(|| body_refusal(settings, request)).map(|(code, text)| (400, code, text))
}

fn header_refusal(settings: &Settings, request: &Recorded) -> Option<(i64, String)> {
    let mismatch = |name: &str, expected: &str| {
        let found = request.header(name).map(decoded);
        let found = found.as_deref();
        (found != Some(expected)).then(|| (-32020, format!("Header mismatch: {name} is {found:?}, not {expected:?}")))
    };
    if request.session().is_some() || request.headers.contains_key("last-event-id") {
        return Some((-32600, "there are no sessions here".to_owned()));
    }
    let params = &request.json["params"];
    let named = NAMED.iter().find(|(method, _)| *method == request.method());
    let name = named.and_then(|(_, parameter)| params[*parameter].as_str());
    let mut expected = vec![("mcp-protocol-version".to_owned(), VERSION.to_owned())];
    expected.push(("mcp-method".to_owned(), request.method().to_owned()));
    expected.extend(name.map(|name| ("mcp-name".to_owned(), name.to_owned())));
    expected.extend(arguments(settings, request));
    if let Some(refusal) = expected.iter().find_map(|(name, value)| mismatch(name, value)) {
        return Some(refusal);
    }
    let surplus = |headers: &HeaderMap| {
        let mut names = headers.keys().map(|name| name.as_str().to_owned());
        let may_be_named = request.method().starts_with("tasks/");
        let is_free = |name: &str| may_be_named && name == "mcp-name";
        names
            .find(|name| name.starts_with("mcp-") && !is_free(name) && !expected.iter().any(|(known, _)| known == name))
    };
    surplus(&request.headers).map(|name| (-32020, format!("Header mismatch: {name} repeats nothing")))
}

/// What a header value stands for.
fn decoded(value: &str) -> String {
    let inner = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="));
    let bytes = inner.map(|inner| STANDARD.decode(inner).expect("it is Base64"));
    bytes.map_or_else(|| value.to_owned(), |bytes| String::from_utf8(bytes).expect("it is UTF-8"))
}

/// The headers that the tool's schema wants for these arguments.
fn arguments(settings: &Settings, request: &Recorded) -> Vec<(String, String)> {
    let tool = settings.tools.iter().find(|(definition, _)| definition["name"] == request.tool());
    let properties = tool.and_then(|(definition, _)| definition["inputSchema"]["properties"].as_object());
    let arguments = &request.json["params"]["arguments"];
    let header = |(name, schema): (&String, &Value)| {
        let header = schema["x-mcp-header"].as_str()?;
        let value = arguments.get(name).filter(|value| !value.is_null())?;
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Some((format!("mcp-param-{}", header.to_lowercase()), text))
    };
    properties.into_iter().flatten().filter_map(header).collect()
}

fn body_refusal(settings: &Settings, request: &Recorded) -> Option<(i64, String)> {
    let params = &request.json["params"];
    let meta = |name: &str| &params["_meta"][format!("{META}/{name}")];
    if meta("protocolVersion") != VERSION || !meta("clientCapabilities").is_object() {
        return Some((-32602, format!("_meta lacks what it needs: {}", request.body)));
    }
    let speaks_of_tasks = !settings.native && request.body.contains("io.modelcontextprotocol/tasks");
    if params.get("task").is_some() || speaks_of_tasks {
        return Some((-32602, "nobody speaks of tasks here".to_owned()));
    }
    None
}

pub(super) fn discover(mut call: Call) {
    let settings = &call.shared.settings;
    let mut result = json!({
        "supportedVersions": if settings.both { vec![VERSION, "2025-11-25"] } else { vec![VERSION] },
        "capabilities": settings.capabilities,
        "ttlMs": 60_000,
        "cacheScope": "public",
        "_meta": {format!("{META}/serverInfo"): {"name": "modern", "version": "1"}},
    });
    if let Some(text) = &settings.instructions {
        result["instructions"] = json!(text);
    }
    call.result(&result);
}

/// A result says what kind it is.
pub(super) fn typed(result: &str) -> String {
    if result.contains("\"resultType\"") {
        return result.to_owned();
    }
    let rest = result.trim_start().trim_start_matches('{');
    let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
    format!(r#"{{"resultType":"complete"{comma}{rest}"#)
}

/// The first message of a subscription.
pub(super) fn acknowledgement(request: &Recorded) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {
        "notifications": request.json["params"]["notifications"],
        "_meta": {format!("{META}/subscriptionId"): request.json["id"]},
    }})
}
