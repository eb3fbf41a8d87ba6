//! A server that wants a credential, and says where to get one.

use serde_json::json;

use super::{Builder, Call};

/// Where its documents are: at the root, and for its path.
pub const DOCUMENTS: [&str; 3] = [
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-protected-resource/mcp",
    "/.well-known/oauth-authorization-server",
];

/// What it says to who has none.
pub const REFUSAL: &str = r#"{"error":"invalid_token"}"#;

impl Builder {
    /// Serves who has this bearer token and challenges all others, whatever they want. Its documents are for everybody.
    pub fn guarded(mut self, token: &'static str) -> Self {
        self.0.guard = Some(token);
        self
    }

    /// Its documents say what they are about, as [`resource`] does with as much `padding`.
    pub fn described(mut self, padding: usize) -> Self {
        self.0.padding = Some(padding);
        self
    }
}

/// Its challenge.
pub fn challenge(address: &str) -> String {
    format!(r#"Bearer realm="meshes", resource_metadata="{address}{}""#, DOCUMENTS[1])
}

/// One of its documents.
pub fn document(path: &str) -> String {
    json!({"document": path}).to_string()
}

/// A document about `url`, with white space that no writer of JSON makes.
pub fn resource(url: &str, padding: usize) -> String {
    format!(r#"{{ "x": "http://in/", "resource" :"{url}", "scopes":[ "a" ],"padding":"{}"}}"#, "x".repeat(padding))
}

/// Whether it has answered a request because of what its sender has, or lacks.
pub(super) fn has_answered(call: &mut Call) -> bool {
    let Some(token) = call.shared.settings.guard else { return false };
    let path = call.request.path.split('?').next().unwrap_or_default().to_owned();
    if DOCUMENTS.contains(&&*path) && call.request.http == "GET" {
        let about = format!("http://{}/mcp", call.shared.addr);
        let text = call.shared.settings.padding.map_or_else(|| document(&path), |padding| resource(&about, padding));
        call.raw(200, &[("content-type", "application/json")], text);
        return true;
    }
    if call.request.header("authorization").and_then(|credential| credential.strip_prefix("Bearer ")) == Some(token) {
        return false;
    }
    let challenge = challenge(&format!("http://{}", call.shared.addr));
    call.raw(401, &[("www-authenticate", &challenge), ("content-type", "application/json")], REFUSAL);
    true
}
