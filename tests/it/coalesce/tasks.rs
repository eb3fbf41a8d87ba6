//! Equal calls of clients that asked for tasks: one exchange, and a task for each.

use serde_json::json;

use super::ON;
use crate::support::upstream::script;
use crate::support::{Gate, Latch, Upstream, ms, throughout, within};

const RELATED: &str = "io.modelcontextprotocol/related-task";

#[tokio::test]
async fn b72_equal_core_calls_share_the_work_and_each_has_its_task() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("slow", script::accepted(&latch, "done")).start().await;
    let gate = Gate::start(&upstream, ON).await;
    let client = gate.client().open().await;
    let (one, two) = tokio::join!(client.call_task("slow", json!({})), client.call_task("slow", json!({})));
    let (one, two) = (one.core_task(), two.core_task());
    assert_ne!(one, two);
    let opening = async {
        tokio::time::sleep(ms(40)).await; // so that both wait
        latch.open();
    };
    let (first, second, ()) = tokio::join!(client.task_result(&one), client.task_result(&two), opening);
    for (answer, id) in [(first, &one), (second, &two)] {
        assert_eq!(answer.text(), "done");
        assert_eq!(answer.result()["_meta"][RELATED]["taskId"], **id, "its own task");
        assert_eq!(client.task(id).await.state(), "completed");
    }
    assert_eq!(upstream.calls("slow").len(), 1);
    assert!(upstream.cancels().is_empty() && upstream.disconnects().is_empty());
}

#[tokio::test]
async fn b72_a_cancelled_core_task_leaves_the_other() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("slow", script::accepted(&latch, "done")).start().await;
    let gate = Gate::start(&upstream, ON).await;
    let client = gate.client().open().await;
    let (one, two) = tokio::join!(client.call_task("slow", json!({})), client.call_task("slow", json!({})));
    let (one, two) = (one.core_task(), two.core_task());
    let cancelling = async {
        tokio::time::sleep(ms(40)).await;
        assert_eq!(client.cancel_task(&one).await.state(), "cancelled");
        throughout(ms(100), "the other goes on", || upstream.cancels().is_empty() && upstream.disconnects().is_empty())
            .await;
        assert_eq!(client.task(&two).await.state(), "working");
        latch.open();
    };
    let (first, second, ()) = tokio::join!(client.task_result(&one), client.task_result(&two), cancelling);
    assert_eq!((first.code(), first.error()["message"].as_str()), (-32603, Some("cancelled")));
    assert_eq!(second.text(), "done");
    assert_eq!(client.task(&one).await.state(), "cancelled");
    assert_eq!((upstream.calls("slow").len(), upstream.cancels().len()), (1, 0));
}

#[tokio::test]
async fn b72_the_last_core_task_to_be_cancelled_cancels_the_work() {
    let upstream = Upstream::builder().tool("endless", script::until_cancelled()).start().await;
    let gate = Gate::start(&upstream, ON).await;
    let client = gate.client().open().await;
    let (one, two) = tokio::join!(client.call_task("endless", json!({})), client.call_task("endless", json!({})));
    for task in [one.core_task(), two.core_task()] {
        assert_eq!(client.cancel_task(&task).await.state(), "cancelled");
    }
    within(ms(1_000), "the upstream is told", || upstream.cancels().len() == 1).await;
    throughout(ms(100), "once", || upstream.cancels().len() == 1).await;
    assert_eq!(upstream.calls("endless").len(), 1);
}
