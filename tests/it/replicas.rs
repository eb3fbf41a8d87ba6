//! Several taskgates on one store: what one hands out the others know at once, who is gone loses its tasks to the
//! others, and who was only away leaves them alone.

use futures_util::future::join_all;
use serde_json::json;
use tokio::time::sleep;

use crate::support::client::Client;
use crate::support::gate::{Fault, Replica};
use crate::support::upstream::script;
use crate::support::{Dialect, Latch, Shared, Upstream, eventually, ms, soon};

const MANY: &str = "[tasks]\nthreshold = \"5ms\"\nmax_running_per_owner = 10000";

/// The same client at another replica.
fn at(replica: &Replica, dialect: Dialect, client: &Client) -> Client {
    dialect.client(replica, json!({})).in_session(client.session.as_deref())
}

fn under_way(dialect: Dialect) -> &'static str {
    if dialect == Dialect::Job { "running" } else { "working" }
}

/// Waits until a task that nobody can follow any more is told to be lost, and is not told anything else.
async fn is_lost(dialect: Dialect, client: &Client, id: &str) {
    let failed = if dialect == Dialect::Job { "error" } else { "failed" };
    let read = async {
        loop {
            let read = dialect.read(client, id).await;
            if read.state() != under_way(dialect) {
                return read;
            }
            sleep(ms(20)).await;
        }
    };
    let read = soon("the end", read).await;
    assert_eq!(read.state(), failed, "{dialect:?}: {}", read.raw);
    assert!(read.raw.contains("outcome unknown"), "{}", read.raw);
}

#[tokio::test]
async fn b57_a_handle_is_known_to_every_replica_at_once() {
    let (latch, shared) = (Latch::new(), Shared::open(ms(5_000)).await);
    let upstream = Upstream::builder().tool("slow", script::accepted(&latch, "done")).start().await;
    let mut replicas = Vec::new();
    for _ in 0..3 {
        replicas.push(shared.start(&upstream, MANY).await);
    }
    // Each write takes its time: the handle waits for it, and no reader is earlier.
    shared.fault(Fault::Slow(ms(300)));
    for dialect in Dialect::ALL {
        let client = dialect.client(&replicas[0], json!({})).open().await;
        let others: Vec<Client> = replicas[1..].iter().map(|replica| at(replica, dialect, &client)).collect();
        let runs = (0..334).map(async |n| {
            let id = dialect.start(&client, "slow", json!({})).await;
            dialect.read(&others[n % 2], &id).await.state()
        });
        let states = join_all(runs).await;
        assert!(states.iter().all(|state| state == under_way(dialect)), "{dialect:?}: {states:?}");
    }
}

#[tokio::test]
async fn b38_a_cancellation_counts_wherever_it_lands() {
    let (latch, shared) = (Latch::new(), Shared::open(ms(5_000)).await);
    let upstream = Upstream::builder().tool("slow", script::accepted(&latch, "done")).start().await;
    let (here, there) = (shared.start(&upstream, "").await, shared.start(&upstream, "").await);
    for dialect in Dialect::ALL {
        let client = dialect.client(&here, json!({})).open().await;
        let other = at(&there, dialect, &client);
        let id = dialect.start(&client, "slow", json!({})).await;
        let end = dialect.cancel(&other, &id).await;
        assert!(end.json.get("error").is_none(), "{}", end.raw);
        for client in [&client, &other] {
            assert_eq!(dialect.read(client, &id).await.state(), "cancelled", "{dialect:?}");
        }
    }
    eventually("the upstream is told", || upstream.cancels().len() == 3).await;
}

#[tokio::test]
async fn b92_a_replica_that_starts_takes_nothing_from_those_that_live() {
    let (latch, shared) = (Latch::new(), Shared::open(ms(300)).await);
    let upstream = Upstream::builder().tool("slow", script::accepted(&latch, "done")).start().await;
    let first = shared.start(&upstream, "").await;
    let client = first.client().extension().open().await;
    let id = client.call("slow", json!({})).await.task();
    let second = shared.start(&upstream, "").await;
    sleep(ms(700)).await;
    second.kill();
    let third = shared.start(&upstream, "").await;
    third.drain();
    soon("the end of the third", third.finished()).await;
    latch.open();
    let end = client.task_end(&id).await;
    assert_eq!(end.result()["result"]["content"][0]["text"], "done", "{}", end.raw);
}

#[tokio::test]
async fn b92_only_the_tasks_of_a_replica_that_is_gone_are_lost() {
    for dialect in Dialect::ALL {
        let (latch, shared) = (Latch::new(), Shared::open(ms(300)).await);
        let upstream = Upstream::builder().tool("slow", script::accepted(&latch, "done")).start().await;
        let mut replicas = Vec::new();
        let mut tasks = Vec::new();
        for _ in 0..3 {
            let replica = shared.start(&upstream, "").await;
            let client = dialect.client(&replica, json!({})).open().await;
            let mut ids = Vec::new();
            for _ in 0..5 {
                ids.push(dialect.start(&client, "slow", json!({})).await);
            }
            replicas.push(replica);
            tasks.push((client, ids));
        }
        replicas.remove(0).kill();
        let (client, lost) = tasks.remove(0);
        let client = at(&replicas[0], dialect, &client);
        for id in &lost {
            is_lost(dialect, &client, id).await;
        }
        latch.open();
        for (client, ids) in &tasks {
            for id in ids {
                assert_eq!(dialect.text(client, id).await, "done", "{dialect:?}");
            }
        }
        assert_eq!(upstream.calls("slow").len(), 15, "{dialect:?}: none is sent again");
    }
}

#[tokio::test]
async fn b92_a_replica_that_was_away_neither_revives_nor_overwrites() {
    for dialect in Dialect::ALL {
        let (latch, shared) = (Latch::new(), Shared::open(ms(300)).await);
        let upstream = Upstream::builder().tool("slow", script::accepted(&latch, "too late")).start().await;
        let (away, there) = (shared.start(&upstream, "").await, shared.start(&upstream, "").await);
        let client = dialect.client(&away, json!({})).open().await;
        let other = at(&there, dialect, &client);
        let mut ids = Vec::new();
        for _ in 0..5 {
            ids.push(dialect.start(&client, "slow", json!({})).await);
        }
        away.pause(ms(1_000));
        latch.open();
        for id in &ids {
            is_lost(dialect, &other, id).await;
        }
        away.gauge("running_tasks", 0).await;
        for id in &ids {
            is_lost(dialect, &client, id).await;
        }
        assert_eq!(upstream.calls("slow").len(), 5, "{dialect:?}");
    }
}

#[tokio::test]
async fn b92_what_can_be_taken_up_goes_on_at_another_replica() {
    for dialect in Dialect::ALL {
        let (latch, shared) = (Latch::new(), Shared::open(ms(300)).await);
        let solver = Upstream::builder().tool("solve", script::resumable(&latch)).resume(script::resumed(&latch));
        let upstream = solver.start().await;
        let (gone, there) = (shared.start(&upstream, "").await, shared.start(&upstream, "").await);
        let client = dialect.client(&gone, json!({})).open().await;
        let other = at(&there, dialect, &client);
        let id = dialect.start(&client, "solve", json!({"text": "42"})).await;
        // A task of 2025-11-25 is made before its stream has told where it is.
        sleep(ms(200)).await;
        gone.kill();
        latch.open();
        assert_eq!(dialect.text(&other, &id).await, "42", "{dialect:?}");
        assert_eq!(upstream.calls("solve").len(), 1, "{dialect:?}");
    }
}
