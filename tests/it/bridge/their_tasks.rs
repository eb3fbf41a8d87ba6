//! Servers of the handshake era with tasks of their own: a stateless client has tasks and jobs of taskgate, which follow
//! those of the server.

use super::*;
use crate::upstream_tasks::{THEIRS, with_tasks};

#[tokio::test]
async fn b101_what_runs_only_as_a_task_there_is_one_here_under_another_id() {
    let latch = Latch::new();
    let upstream = with_tasks(&latch).start().await;
    let gate = bridged(&upstream, 30, "").await;
    let (client, other) = (tasks(&gate).bearer("a"), plain(&gate).bearer("a"));
    // Clients list before they call; who does not finds out by a refusal.
    client.tools().await.result();
    let handle = client.call("solve", json!({"n": 1})).await;
    let task = handle.task();
    assert_ne!(task, THEIRS);
    assert!(handle.result().get("task").is_none(), "{}", handle.raw);
    let job = other.call("solve", json!({"n": 1})).await.job();
    assert_eq!(client.task(&task).await.state(), "working");
    for call in upstream.calls("solve") {
        assert_eq!(call.json["params"]["task"], json!({}), "{}", call.body);
    }
    latch.open();
    let end = client.task_end(&task).await;
    let expected = json!({"resultType": "complete", "content": [{"type": "text", "text": "solved"}]});
    assert_eq!((end.state().as_str(), &end.result()["result"]), ("completed", &expected), "not wrapped twice");
    assert_eq!(other.job_end(&job).await.block(1), "solved");
    let results = upstream.of("tasks/result");
    assert!(results.iter().all(|result| result.json["params"]["taskId"] == THEIRS), "{results:?}");
    assert!(results.iter().all(|result| result.session().is_some()));
}

#[tokio::test]
async fn b101_cancelling_it_cancels_theirs() {
    let latch = Latch::new();
    let upstream = with_tasks(&latch).start().await;
    let gate = bridged(&upstream, 30, "").await;
    let client = tasks(&gate).bearer("a");
    client.tools().await.result();
    let task = client.call("solve", json!({})).await.task();
    assert_eq!(client.cancel_task(&task).await.result(), &json!({"resultType": "complete"}));
    eventually("they hear of it", || upstream.of("tasks/cancel").len() == 1).await;
    let cancel = &upstream.of("tasks/cancel")[0];
    assert_eq!(cancel.json["params"]["taskId"], THEIRS);
    assert_eq!(cancel.session(), upstream.calls("solve")[0].session());
    assert!(upstream.cancels().is_empty());
    assert_eq!(client.task(&task).await.state(), "cancelled");
}

#[tokio::test]
async fn b101_who_has_not_listed_gets_one_too() {
    let latch = Latch::opened();
    let upstream = with_tasks(&latch).start().await;
    let gate = bridged(&upstream, 30_000, "").await;
    for client in [tasks(&gate), plain(&gate)] {
        let answer = client.bearer("a").call("solve", json!({})).await;
        assert_eq!((answer.text(), &answer.result()["resultType"]), ("solved", &json!("complete")));
    }
    assert_eq!(tasks(&gate).bearer("a").task(THEIRS).await.code(), -32602, "their id is none of ours");
}
