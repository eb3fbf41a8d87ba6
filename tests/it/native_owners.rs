//! Who may see the tasks of stateless clients.

use serde_json::json;

use crate::support::dialect::STRANGER;
use crate::support::upstream::script;
use crate::support::{Client, Gate, Latch, Upstream};

fn client(gate: &Gate, credential: &str) -> Client {
    let client = gate.client().stateless_with_tasks(json!({}));
    if credential.is_empty() { client } else { client.bearer(credential) }
}

#[tokio::test]
async fn the_credential_decides_where_there_is_no_session() {
    let latch = Latch::new();
    let upstream = Upstream::builder().native().tool("slow", script::held(&latch, "x")).start().await;
    for (owner, creator, readers, strangers) in [
        ("auto", "u", &["u"][..], &["v", ""][..]),
        ("auto", "", &["u", "v", ""], &[]),
        ("session", "u", &["u"], &["v", ""]),
        ("id", "u", &["u", "v", ""], &[]),
    ] {
        let gate = Gate::start(&upstream, &format!("[tasks]\nowner = \"{owner}\"")).await;
        let task = client(&gate, creator).call("slow", json!({})).await.task();
        let body = |id: &str| client(&gate, "").body("7", "tasks/get", json!({"taskId": id}));
        for reader in readers {
            assert_eq!(client(&gate, reader).task(&task).await.state(), "working", "{owner} {creator} {reader}");
        }
        for stranger in strangers {
            let (this, none) =
                (client(&gate, stranger).ask(body(&task)).await, client(&gate, stranger).ask(body(STRANGER)).await);
            assert_eq!((this.status, this.code()), (200, -32602), "{owner} {creator} {stranger}");
            assert_eq!(this.raw, none.raw, "a foreign task is an unknown one");
            assert_eq!(client(&gate, stranger).cancel_task(&task).await.code(), -32602);
        }
        assert_eq!(client(&gate, creator).task(&task).await.state(), "working", "nobody else cancelled it");
        client(&gate, creator).cancel_task(&task).await.result();
    }
}

#[tokio::test]
async fn without_an_owner_a_call_is_held() {
    let upstream = Upstream::builder()
        .native()
        .tool("slow", script::after(std::time::Duration::from_millis(120), "x"))
        .start()
        .await;
    for (owner, credential) in [("session", ""), ("principal", "u"), ("principal", "")] {
        let gate = Gate::start(&upstream, &format!("[tasks]\nowner = \"{owner}\"\nthreshold = \"20ms\"")).await;
        assert_eq!(client(&gate, credential).call("slow", json!({})).await.text(), "x", "{owner} {credential}");
    }
}
