//! A disk that takes its time: a handle is given when its task is on it, and not before.

use std::pin::pin;

use serde_json::json;
use tokio::time::sleep;

use crate::support::gate::{Fault, Home};
use crate::support::upstream::script;
use crate::support::{Dialect, Latch, Upstream, ms};

#[tokio::test]
async fn b57_no_handle_is_given_while_its_task_is_on_its_way_to_the_disk() {
    for dialect in Dialect::ALL {
        let home = Home::new();
        let latch = Latch::new();
        let upstream = Upstream::builder().tool("slow", script::accepted(&latch, "late")).start().await;
        let gate = home.start(&upstream, "").await;
        let client = dialect.client(&gate, json!({})).open().await;
        gate.fault(Fault::Slow(ms(700)));
        let mut start = pin!(dialect.start(&client, "slow", json!({})));
        tokio::select! {
            biased;
            id = &mut start => panic!("{dialect:?}: {id} is not written yet"),
            () = sleep(ms(400)) => {}
        }
        assert_eq!(upstream.calls("slow").len(), 1, "{dialect:?}: the call itself does not wait");
        let id = start.await;
        gate.fault(Fault::None);
        let running = if dialect == Dialect::Job { "running" } else { "working" };
        assert_eq!(dialect.read(&client, &id).await.state(), running);
        latch.open();
        assert_eq!(dialect.text(&client, &id).await, "late");
    }
}
