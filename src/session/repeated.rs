//! What the client of a session said once, and each request to an upstream without sessions repeats.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::jsonrpc::{Envelope, Object, entries};
use crate::mcp::{ClientHello, upward};

/// How many resources a session may follow: more are not remembered.
const MAX_RESOURCES: usize = 1_000;

/// What is known of a client whose upstream only speaks the stateless era (2026-07-28).
#[derive(Debug, Default)]
pub struct Repeated {
    client_info: Option<String>,
    capabilities: String,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    log_level: Option<String>,
    resources: BTreeSet<String>,
}

impl Repeated {
    /// Reads the parameters of `initialize`. Of what the client can do, tasks are left out: they are taskgate's.
    #[must_use]
    pub fn read(params: Option<&str>) -> Self {
        let params = entries(params.unwrap_or_default());
        Self {
            client_info: params.get("clientInfo").map(|text| (*text).to_owned()),
            capabilities: upward::capabilities(params.get("capabilities").copied().unwrap_or("{}")),
            ..Self::default()
        }
    }

    /// What is left of it in a record of the session.
    #[must_use]
    pub fn recalled(client: &ClientHello) -> Self {
        let (name, version) = client.client.rsplit_once('/').unwrap_or((&client.client, ""));
        let info = Object::new().string("name", name).string("version", version).finish();
        Self { client_info: Some(info), capabilities: client.abilities.capabilities(), ..Self::default() }
    }

    /// The request as the upstream expects it.
    #[must_use]
    pub fn request(&self, message: &Envelope) -> Bytes {
        let log_level = self.lock().log_level.clone();
        let told = upward::Told {
            client_info: self.client_info.as_deref(),
            capabilities: &self.capabilities,
            log_level: log_level.as_deref(),
        };
        upward::request(message, told)
    }

    /// Later requests ask for log messages from this level on.
    pub fn set_log_level(&self, level: &str) {
        self.lock().log_level = Some(level.to_owned());
    }

    /// The client wants to hear of changes to a resource.
    pub fn follow(&self, uri: &str) {
        let mut state = self.lock();
        if state.resources.len() < MAX_RESOURCES && state.resources.insert(uri.to_owned()) {
            self.changed.notify_waiters();
        }
    }

    /// It does not want to any more.
    pub fn unfollow(&self, uri: &str) {
        if self.lock().resources.remove(uri) {
            self.changed.notify_waiters();
        }
    }

    /// The resources it wants to hear of.
    #[must_use]
    pub fn resources(&self) -> Vec<String> {
        self.lock().resources.iter().cloned().collect()
    }

    /// Resolves when these are others. Cancel safe once created.
    pub fn changed(&self) -> impl Future<Output = ()> + '_ {
        self.changed.notified()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn meta(repeated: &Repeated) -> Value {
        let message = Envelope::read(Bytes::from_static(br#"{"id":1,"method":"x"}"#)).unwrap();
        serde_json::from_slice::<Value>(&repeated.request(&message)).unwrap()["params"]["_meta"].clone()
    }

    #[test]
    fn repeats_what_initialize_said() {
        let repeated = Repeated::read(Some(
            r#"{"clientInfo":{"name":"a","version":"1","title":"A"},"capabilities":{"roots":{},"tasks":{}}}"#,
        ));
        repeated.set_log_level("info");
        assert_eq!(
            meta(&repeated),
            json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "a", "version": "1", "title": "A"},
                "io.modelcontextprotocol/clientCapabilities": {"roots": {}},
                "io.modelcontextprotocol/logLevel": "info",
            })
        );
    }

    #[test]
    fn recalls_what_a_record_has() {
        let client = ClientHello::read(Some(
            r#"{"clientInfo":{"name":"a/b","version":"1"},"capabilities":{"sampling":{"tools":{}}}}"#,
        ));
        let meta = meta(&Repeated::recalled(&client));
        assert_eq!(meta["io.modelcontextprotocol/clientInfo"], json!({"name": "a/b", "version": "1"}));
        assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({"sampling": {}}));
    }

    #[tokio::test]
    async fn tells_when_other_resources_are_followed() {
        let repeated = Repeated::read(None);
        let changed = repeated.changed();
        repeated.follow("a");
        repeated.follow("b");
        changed.await;
        let changed = repeated.changed();
        repeated.unfollow("a");
        changed.await;
        assert_eq!(repeated.resources(), ["b"]);
    }
}
