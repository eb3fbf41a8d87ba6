//! A disk that fails, told in every dialect: a task that cannot be made is not run, and what is known stays readable.

use serde_json::json;
use tokio::time::sleep;

use crate::store_trouble::ready;
use crate::support::client::{Answer, Client};
use crate::support::gate::{Fault, Home};
use crate::support::upstream::script;
use crate::support::{Dialect, Latch, Upstream, eventually, ms, throughout};

/// Whether an answer says that the store does not work, in the words of its dialect.
#[track_caller]
fn assert_unavailable(dialect: Dialect, answer: &Answer) {
    match dialect {
        Dialect::Ext | Dialect::Core => assert_eq!(answer.reason(), "store_unavailable", "{}", answer.raw),
        Dialect::Job => {
            assert_eq!(answer.result()["isError"], true, "{}", answer.raw);
            assert_eq!(answer.state(), "error", "it is not told to be unknown: {}", answer.raw);
            assert!(answer.text().contains("try again"), "{}", answer.raw);
        }
    }
}

#[tokio::test]
async fn b94_a_core_call_whose_task_cannot_be_written_is_cancelled_upstream_once() {
    let home = Home::new();
    let upstream = Upstream::builder().tool("endless", script::until_cancelled()).start().await;
    let gate = home.start(&upstream, "").await;
    let client = gate.client().open().await;
    // Nobody has noticed yet: the call is sent before the write fails.
    gate.fault(Fault::Broken);
    let refused = client.call_task("endless", json!({})).await;
    assert_eq!((refused.code(), refused.reason()), (-32603, "store_unavailable"), "{}", refused.raw);
    eventually("the upstream is told", || upstream.cancels().len() == 1).await;
    throughout(ms(100), "once", || upstream.cancels().len() == 1).await;
    let calls = upstream.calls("endless");
    assert_eq!(calls.len(), 1);
    let cancel = &upstream.cancels()[0];
    assert_eq!(cancel.json["params"]["requestId"], calls[0].json["id"]);
    assert_eq!(cancel.session(), client.session.as_deref());

    ready(&gate, 503).await;
    let known = client.call_task("endless", json!({})).await;
    assert_eq!(known.reason(), "store_unavailable");
    assert_eq!(upstream.calls("endless").len(), 1, "while the trouble is known nothing is sent");

    gate.fault(Fault::None);
    ready(&gate, 200).await;
    let task = client.call_task("endless", json!({})).await.core_task();
    assert_eq!(client.task(&task).await.state(), "working", "and tasks are made again");
    assert_eq!(upstream.cancels().len(), 1);
}

/// A server with a tool that ends and one that does not.
async fn brief_and_endless() -> Upstream {
    let server = Upstream::builder().tool("brief", script::after(ms(120), "done"));
    server.tool("endless", script::until_cancelled()).start().await
}

/// A task that has ended and one that runs, of one client.
async fn pair(dialect: Dialect, client: &Client) -> (String, String) {
    let brief = dialect.start(client, "brief", json!({})).await;
    assert_eq!(dialect.text(client, &brief).await, "done");
    (brief, dialect.start(client, "endless", json!({})).await)
}

#[tokio::test]
async fn b94_polls_and_cancellations_are_told_the_truth_in_every_dialect() {
    for dialect in Dialect::ALL {
        let home = Home::new();
        let upstream = brief_and_endless().await;
        let gate = home.start(&upstream, "[tasks]\nowner = \"session\"").await;
        let client = dialect.client(&gate, json!({})).open().await;
        let (brief, endless) = pair(dialect, &client).await;
        gate.fault(Fault::Broken);
        for _ in 0..2 {
            assert_eq!(dialect.text(&client, &brief).await, "done", "{dialect:?}: what was written can be read");
            let running = if dialect == Dialect::Job { "running" } else { "working" };
            assert_eq!(dialect.read(&client, &endless).await.state(), running);
            let rows = match dialect {
                Dialect::Ext | Dialect::Core => client.list_tasks(None).await.result()["tasks"].clone(),
                Dialect::Job => client.call("list_jobs", json!({})).await.note()["jobs"].clone(),
            };
            assert_eq!(rows.as_array().map(Vec::len), Some(2), "{dialect:?}: {rows}");
            assert_unavailable(dialect, &dialect.cancel(&client, &endless).await);
        }
        assert!(upstream.cancels().is_empty(), "{dialect:?}: what is not written is not done");
        gate.fault(Fault::None);
        let waiting = async {
            sleep(ms(30)).await;
            dialect.cancel(&client, &endless).await.result();
        };
        let (end, ()) = tokio::join!(dialect.wait(&client, &endless), waiting);
        match dialect {
            Dialect::Core => assert_eq!(end.error()["message"], "cancelled"),
            Dialect::Ext | Dialect::Job => assert_eq!(end.state(), "cancelled", "{dialect:?}"),
        }
        eventually("the upstream is told", || upstream.cancels().len() == 1).await;
    }
}

#[tokio::test]
async fn b94_a_poll_that_cannot_be_read_is_no_unknown_task() {
    for dialect in Dialect::ALL {
        let home = Home::new();
        let upstream = brief_and_endless().await;
        let gate = home.start(&upstream, "[tasks]\nowner = \"session\"").await;
        let client = dialect.client(&gate, json!({})).open().await;
        let (brief, endless) = pair(dialect, &client).await;
        gate.fault(Fault::Unreadable);
        for id in [&brief, &endless] {
            assert_unavailable(dialect, &dialect.read(&client, id).await);
            assert_unavailable(dialect, &dialect.cancel(&client, id).await);
        }
        match dialect {
            Dialect::Ext | Dialect::Core => {
                assert_unavailable(dialect, &client.task_result(&brief).await);
                assert_unavailable(dialect, &client.list_tasks(None).await);
            }
            Dialect::Job => assert_unavailable(dialect, &client.call("list_jobs", json!({})).await),
        }
        ready(&gate, 503).await;
        gate.fault(Fault::None);
        ready(&gate, 200).await;
        assert_eq!(dialect.text(&client, &brief).await, "done", "{dialect:?}: it is all there");
        let running = if dialect == Dialect::Job { "running" } else { "working" };
        assert_eq!(dialect.read(&client, &endless).await.state(), running);
        assert!(upstream.cancels().is_empty(), "{dialect:?}: what cannot be read is not cancelled");
    }
}

#[tokio::test]
async fn b94_an_end_that_cannot_be_written_reaches_those_who_wait_when_it_can() {
    for dialect in Dialect::ALL {
        let home = Home::new();
        let latch = Latch::new();
        let upstream = Upstream::builder().tool("slow", script::accepted(&latch, "late")).start().await;
        let gate = home.start(&upstream, "").await;
        let client = dialect.client(&gate, json!({})).open().await;
        let id = dialect.start(&client, "slow", json!({})).await;
        gate.fault(Fault::Broken);
        latch.open();
        ready(&gate, 503).await;
        let mending = async {
            sleep(ms(50)).await;
            gate.fault(Fault::None);
        };
        let (text, ()) = tokio::join!(dialect.text(&client, &id), mending);
        assert_eq!((text.as_str(), upstream.calls("slow").len()), ("late", 1), "{dialect:?}");
    }
}
