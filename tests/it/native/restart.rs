//! What becomes of calls to stateless servers when taskgate starts anew.

use serde_json::json;

use super::{sent, tasks, tools};
use crate::support::upstream::script;
use crate::support::{Home, Latch, eventually};

#[tokio::test]
async fn a_call_that_was_cut_off_is_lost_unless_it_may_be_repeated() {
    let (latch, again) = (
        Latch::new(),
        json!({
            "inputSchema": {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}},
            "annotations": {"readOnlyHint": true},
        }),
    );
    let reads = script::script({
        let latch = latch.clone();
        move |mut call| {
            let latch = latch.clone();
            async move {
                call.bytes("id: 7\ndata:\n\n");
                latch.passed().await;
                call.say("read");
            }
        }
    });
    let upstream = tools(&Latch::new()).tool_with("reads", &again, reads).start().await;
    let (home, settings) = (Home::new(), "[tasks]\nretry = \"idempotent\"");
    let gate = home.start(&upstream, settings).await;
    let client = tasks(&gate).bearer("u");
    client.tools().await.result();
    let lost = client.call("endless", json!({})).await.task();
    let kept =
        tasks(&gate).bearer("u").header("mcp-param-region", "eu").call("reads", json!({"region": "eu"})).await.task();
    gate.leave().await;
    latch.open();
    let _gate = home.start(&upstream, settings).await;
    let end = client.task_end(&lost).await;
    assert_eq!(end.result()["error"]["data"]["reason"], "outcome_unknown", "{}", end.raw);
    let end = client.task_end(&kept).await;
    assert_eq!(end.result()["result"]["content"][0]["text"], "read", "{}", end.raw);
    eventually("it was sent again", || upstream.calls("reads").len() == 2).await;
    let request = sent(&upstream, "reads");
    assert_eq!((request.header("mcp-param-region"), request.header("authorization")), (Some("eu"), Some("Bearer u")));
    assert!(upstream.http("GET").is_empty(), "no stream is taken up in this era");
}
