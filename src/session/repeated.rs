//! What the client of a session said once, and each request to an upstream without sessions repeats.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::jsonrpc::{Envelope, Object, entries};
use crate::mcp::{ClientHello, upward, without_tasks};

/// How large `clientInfo` and `capabilities` may be together, in bytes: every request repeats them.
const MAX_HELLO: usize = 64 << 10;
/// How many resources a session may follow.
const MAX_RESOURCES: usize = 1_000;
/// How long the URI of one may be, and all together, in bytes: every subscription repeats them.
const MAX_URI: usize = 8 << 10;
const MAX_URIS: usize = 1 << 20;

/// Why a client's words are not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooMuch {
    /// They would be repeated with every request.
    #[error("clientInfo and capabilities are larger than 64 KiB together")]
    Hello,
    /// No resource has such a name.
    #[error("uri is longer than 8 KiB")]
    Uri,
    /// It follows enough of them.
    #[error("this session follows as many resources as it may, 1000 or 1 MiB of their URIs: unsubscribe from others")]
    Resources,
}

/// What is known of a client whose upstream only speaks the stateless era (2026-07-28).
#[derive(Debug)]
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

impl Default for Repeated {
    /// A client that said nothing of itself.
    fn default() -> Self {
        Self { client_info: None, capabilities: "{}".into(), state: Mutex::default(), changed: Notify::new() }
    }
}

impl Repeated {
    /// Reads the parameters of `initialize`. Of what the client can do, tasks are left out: they are taskgate's.
    ///
    /// # Errors
    /// If it says more than is repeated with every request.
    pub fn read(params: Option<&str>) -> Result<Self, TooMuch> {
        let params = entries(params.unwrap_or_default());
        let (client_info, capabilities) = (params.get("clientInfo").copied(), params.get("capabilities").copied());
        if client_info.map_or(0, str::len) + capabilities.map_or(0, str::len) > MAX_HELLO {
            return Err(TooMuch::Hello);
        }
        Ok(Self {
            client_info: client_info.map(str::to_owned),
            capabilities: without_tasks(capabilities.unwrap_or("{}")),
            ..Self::default()
        })
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
    ///
    /// # Errors
    /// If that is one too many.
    pub fn follow(&self, uri: &str) -> Result<(), TooMuch> {
        if uri.len() > MAX_URI {
            return Err(TooMuch::Uri);
        }
        let mut state = self.lock();
        if state.resources.contains(uri) {
            return Ok(());
        }
        let kept: usize = state.resources.iter().map(String::len).sum();
        if state.resources.len() >= MAX_RESOURCES || kept + uri.len() > MAX_URIS {
            return Err(TooMuch::Resources);
        }
        state.resources.insert(uri.to_owned());
        self.changed.notify_waiters();
        Ok(())
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
        ))
        .unwrap();
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

    #[test]
    fn a_client_that_says_too_much_of_itself_is_refused() {
        let hello = |length: usize| format!(r#"{{"clientInfo":"{}","capabilities":{{}}}}"#, "x".repeat(length));
        assert!(Repeated::read(Some(&hello(MAX_HELLO - 4))).is_ok());
        assert_eq!(Repeated::read(Some(&hello(MAX_HELLO - 3))).err(), Some(TooMuch::Hello));
    }

    #[test]
    fn resources_are_followed_up_to_a_number_and_a_size() {
        let many = Repeated::default();
        assert!((0..MAX_RESOURCES).all(|n| many.follow(&n.to_string()).is_ok()));
        assert_eq!(many.follow("one more"), Err(TooMuch::Resources));
        assert_eq!(many.follow("7"), Ok(()));
        let large = Repeated::default();
        let uri = |n: usize| format!("{n:0MAX_URI$}");
        assert!((0..MAX_URIS / MAX_URI).all(|n| large.follow(&uri(n)).is_ok()));
        assert_eq!(large.follow("x"), Err(TooMuch::Resources));
        assert_eq!(large.follow(&uri(10).repeat(2)), Err(TooMuch::Uri));
        large.unfollow(&uri(0));
        assert_eq!(large.follow("x"), Ok(()));
    }

    #[tokio::test]
    async fn tells_when_other_resources_are_followed() {
        let repeated = Repeated::read(None).unwrap();
        let changed = repeated.changed();
        repeated.follow("a").unwrap();
        repeated.follow("b").unwrap();
        changed.await;
        let changed = repeated.changed();
        repeated.unfollow("a");
        changed.await;
        assert_eq!(repeated.resources(), ["b"]);
    }
}
