//! `subscriptions/listen`: a stream on which a client is told of its tasks, of lists and of resources.

use serde_json::{Value, json};

use crate::support::client::{Events, Reply};
use crate::support::schema::{self, EXT, assert_valid};
use crate::support::upstream::{Builder, Get, script};
use crate::support::{Client, Gate, Latch, Upstream, eventually, ms, soon};

mod bounds;
mod bridged;
mod endings;
mod merged;
mod tasks;
mod without_get;

const TAG: &str = "io.modelcontextprotocol/subscriptionId";
const ALWAYS: &str = "[upstream]\nbridge = \"always\"\n";

/// Asks to listen under an id written exactly so.
async fn ask(client: &Client, id: &str, filter: Value) -> Reply {
    client.post(client.body(id, "subscriptions/listen", json!({"notifications": filter}))).await
}

/// One subscription of a client.
struct Stream {
    events: Events,
    id: Value,
}

impl Stream {
    /// Listens, and returns what is honoured.
    async fn open(client: &Client, id: &str, filter: Value) -> (Self, Value) {
        let events = ask(client, id, filter).await.events();
        let mut stream = Self { events, id: serde_json::from_str(id).unwrap() };
        let first = stream.next().await;
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
        if schema::available() {
            assert_valid("2026-07-28", "SubscriptionsAcknowledgedNotification", &first);
            assert_valid(EXT, "TaskSubscriptionAcknowledgedNotifications", &first["params"]["notifications"]);
        }
        (stream, first["params"]["notifications"].clone())
    }

    /// The next message, which belongs to this subscription.
    async fn next(&mut self) -> Value {
        let message = soon("a message", self.events.message()).await.expect("the stream goes on");
        assert_eq!(message["params"]["_meta"][TAG], self.id, "{message}");
        assert!(message.get("id").is_none(), "{message}");
        message
    }

    /// The next message, which tells of a task: its parameters.
    async fn task(&mut self) -> Value {
        let message = self.next().await;
        assert_eq!(message["method"], "notifications/tasks", "{message}");
        assert!(message["params"].get("resultType").is_none(), "{message}");
        if schema::available() {
            assert_valid(EXT, "TaskStatusNotification", &message);
        }
        message["params"].clone()
    }

    /// The next message, which tells of a task: its id and its status.
    async fn status(&mut self) -> (String, String) {
        let task = self.task().await;
        let text = |name: &str| task[name].as_str().unwrap().to_owned();
        (text("taskId"), text("status"))
    }

    /// The result that ends it.
    async fn end(mut self) {
        let last = soon("the end", self.events.message()).await.expect("a result");
        assert_eq!(last["id"], self.id, "{last}");
        assert_eq!(last["result"], json!({"resultType": "complete", "_meta": {TAG: self.id}}), "{last}");
        if schema::available() {
            assert_valid("2026-07-28", "SubscriptionsListenResultResponse", &last);
        }
        assert!(self.events.message().await.is_none());
    }
}

/// A server of slow tools, and its latch.
fn slow(latch: &Latch) -> Builder {
    Upstream::builder().tool("slow", script::accepted(latch, "slow end")).tool(
        "forever",
        script::script(|mut call| async move {
            call.open();
            call.cancelled().await;
        }),
    )
}

/// Clients of both eras in front of servers that open sessions.
async fn both(upstream: &Upstream, more: &str) -> (Gate, [Client; 2]) {
    let gate = Gate::start(upstream, &format!("{more}\n{ALWAYS}")).await;
    let capabilities = json!({"elicitation": {"form": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}}});
    let session = gate.client().capabilities(capabilities.clone()).open().await;
    let stateless = gate.client().bearer("a").stateless(capabilities);
    (gate, [session, stateless])
}
