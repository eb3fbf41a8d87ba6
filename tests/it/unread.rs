//! A store that is full of results which nobody has read: none of them is dropped, and no call is lost.

use serde_json::json;
use tokio::time::sleep;

use crate::support::upstream::script;
use crate::support::{Client, Dialect, Gate, Latch, Upstream, eventually, ms, throughout};

const LARGE: usize = 100_000;

/// Waits until a task has ended, by what reads no result.
async fn ended(client: &Client, id: &str) {
    for _ in 0..500 {
        if client.task(id).await.state() == "completed" {
            return;
        }
        sleep(ms(10)).await;
    }
    panic!("{id} does not end");
}

#[tokio::test]
async fn b97_a_store_full_of_unread_results_holds_the_next_call_and_drops_nothing() {
    for (store, dialect) in [("memory", Dialect::Job), ("memory", Dialect::Ext), ("embedded", Dialect::Job)] {
        let big = script::script(|mut call| async move {
            sleep(ms(120)).await;
            call.say(&"A".repeat(LARGE));
        });
        let latch = Latch::new();
        let upstream =
            Upstream::builder().tool("big", big).tool("slow", script::accepted(&latch, "late")).start().await;
        let home = tempfile::tempdir().unwrap();
        let path =
            if store == "embedded" { format!("path = {:?}\n", home.path().join("tasks.db")) } else { String::new() };
        let config = format!("[store]\nkind = \"{store}\"\n{path}[tasks]\nmax_retained = \"250KiB\"");
        let gate = Gate::start(&upstream, &config).await;
        let client = gate.client().open().await;
        let mut jobs = Vec::new();
        for _ in 0..3 {
            let job = client.call("big", json!({})).await.job();
            ended(&client, &job).await;
            jobs.push(job);
        }
        let next = dialect.client(&gate, json!({})).open().await;
        let opening = async {
            eventually("the call is upstream", || upstream.calls("slow").len() == 1).await;
            throughout(ms(150), "it is held, not cancelled", || {
                upstream.cancels().is_empty() && upstream.disconnects().is_empty()
            })
            .await;
            latch.open();
        };
        let (held, ()) = tokio::join!(next.call("slow", json!({})), opening);
        assert_eq!(held.text(), "late", "{store}, {dialect:?}: inline, well past the threshold");
        for job in &jobs {
            assert_eq!(client.job_end(job).await.block(1).len(), LARGE, "{store}, {dialect:?}: unread ones are kept");
        }
        // Now they have been read, and there is room again.
        let job = client.call("big", json!({})).await.job();
        assert_eq!(client.job_end(&job).await.block(1).len(), LARGE);
    }
}
