//! Several taskgates on one store: what one hands out the others know at once, and what one has lost it leaves alone.

use serde_json::json;

use crate::support::upstream::script;
use crate::support::{Dialect, Latch, Shared, Upstream};

#[tokio::test]
async fn b57_a_handle_is_known_to_every_replica_at_once() {
    let (latch, shared) = (Latch::new(), Shared::open().await);
    let upstream = Upstream::builder().tool("slow", script::accepted(&latch, "done")).start().await;
    let here = shared.start(&upstream, "[tasks]\nthreshold = \"5ms\"\nmax_running_per_owner = 1000").await;
    let there = shared.start(&upstream, "").await;
    for dialect in Dialect::ALL {
        let client = dialect.client(&here, json!({})).open().await;
        let other = dialect.client(&there, json!({})).in_session(client.session.as_deref());
        let mut last = String::new();
        for _ in 0..50 {
            last = dialect.start(&client, "slow", json!({})).await;
            let read = dialect.read(&other, &last).await;
            assert_eq!(read.state(), if dialect == Dialect::Job { "running" } else { "working" }, "{dialect:?}");
        }
        let end = dialect.cancel(&client, &last).await;
        assert!(end.json.get("error").is_none(), "{}", end.raw);
        assert_eq!(dialect.read(&other, &last).await.state(), "cancelled", "{dialect:?}");
    }
}

#[tokio::test]
async fn b92_a_replica_that_lost_its_tasks_neither_revives_nor_overwrites_them() {
    for dialect in Dialect::ALL {
        let (latch, shared) = (Latch::new(), Shared::open().await);
        let upstream = Upstream::builder().tool("slow", script::accepted(&latch, "too late")).start().await;
        let gate = shared.start(&upstream, "").await;
        let client = dialect.client(&gate, json!({})).open().await;
        let mut ids = Vec::new();
        for _ in 0..5 {
            ids.push(dialect.start(&client, "slow", json!({})).await);
        }
        let taken = shared.take_over().await;
        assert_eq!(taken.len(), 5);
        gate.gauge("running_tasks", 5).await;
        latch.open();
        gate.gauge("running_tasks", 0).await;
        for id in &ids {
            let read = dialect.read(&client, id).await;
            assert_eq!(read.state(), if dialect == Dialect::Job { "running" } else { "working" }, "{}", read.raw);
        }
        taken.lose().await;
        let failed = if dialect == Dialect::Job { "error" } else { "failed" };
        for id in &ids {
            let read = dialect.read(&client, id).await;
            assert_eq!(read.state(), failed, "{dialect:?}: {}", read.raw);
            assert!(read.raw.contains("outcome unknown") && !read.raw.contains("too late"), "{}", read.raw);
        }
        assert_eq!(upstream.calls("slow").len(), 5, "{dialect:?}");
    }
}
