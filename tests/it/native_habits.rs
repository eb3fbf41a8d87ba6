//! How long clients of the stateless era wait is learnt of each program, where there is no credential to tell them by.

use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::support::upstream::script;
use crate::support::{Client, Gate, Latch, Upstream, ms};

/// Reads a job as this program, and waits for it as long as it may be.
async fn read(client: &Client, (name, version): (&str, &str), job: &str) -> Value {
    let meta = json!({"io.modelcontextprotocol/clientInfo": {"name": name, "version": version}});
    let params = json!({"name": "get_job_result", "arguments": {"job_id": job, "wait_s": 2.5}, "_meta": meta});
    client.request("tools/call", params).await.json
}

#[tokio::test]
async fn b65_patience_is_learnt_of_each_program() {
    let latch = Latch::new();
    let upstream = Upstream::builder().native().tool("slow", script::held(&latch, "late")).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().stateless(json!({}));
    let job = client.call("slow", json!({})).await.job();
    for _ in 0..2 {
        assert!(timeout(ms(1100), read(&client, ("hasty", "1"), &job)).await.is_err(), "it waits as it was asked to");
    }
    sleep(ms(100)).await;
    let timed = async |program| {
        let started = Instant::now();
        read(&client, program, &job).await;
        started.elapsed()
    };
    let (hasty, other, newer) = tokio::join!(timed(("hasty", "1")), timed(("other", "1")), timed(("hasty", "2")));
    assert!(hasty < ms(2000), "{hasty:?}");
    assert!(other > ms(2300), "{other:?}");
    assert!(newer > ms(2300), "{newer:?}");
    latch.open();
}
