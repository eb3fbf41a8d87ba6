//! Who leaves, and whom that concerns.

use tokio::time::{sleep, timeout};

use super::*;
use crate::support::soon;

#[tokio::test]
async fn b33_no_call_is_left_running_whose_handle_nobody_got() {
    let upstream = Upstream::builder().tool("endless", script::until_cancelled()).start().await;
    let gate = bridged(&upstream, 20, "").await;
    let client = tasks(&gate).bearer("a");
    for wait in 14..34 {
        let _ = timeout(ms(wait), client.call("endless", json!({}))).await;
    }
    gate.gauge("held_calls", 0).await;
    // Of whoever left while the handle was on its way, the call is withdrawn, or a task that can be read.
    let settled = async {
        loop {
            let running = upstream.calls("endless").len() - upstream.cancels().len();
            if gate.admin("/metrics").await.1.contains(&format!("\ntaskgate_running_tasks {running}\n")) {
                return;
            }
            sleep(ms(5)).await;
        }
    };
    soon("what is still running there can be read here", settled).await;
}

#[tokio::test]
async fn b33_closing_a_poll_cancels_nothing() {
    let latch = Latch::new();
    let upstream = tools(&latch).start().await;
    let gate = bridged(&upstream, 30, "").await;
    for client in [plain(&gate).bearer("a"), tasks(&gate).bearer("a")] {
        let handle = client.call("slow", json!({})).await;
        let id = handle.result()["taskId"].as_str().map_or_else(|| handle.job(), str::to_owned);
        let reader = plain(&gate).bearer("a");
        assert!(timeout(ms(40), reader.job(&id, 20.0)).await.is_err(), "it waits");
    }
    sleep(ms(40)).await;
    assert!(upstream.cancels().is_empty() && upstream.disconnects().is_empty());
    gate.gauge("running_tasks", 2).await;
    latch.open();
}

#[tokio::test]
async fn b09_what_one_withdraws_is_nobody_elses() {
    let of = |client: Client, credential: &str| if credential.is_empty() { client } else { client.bearer(credential) };
    // All count their requests alike; the last two have no credential either.
    for (one, two) in [("a", "b"), ("a", "a"), ("", "")] {
        let latch = Latch::new();
        let upstream = tools(&latch).start().await;
        let [patient, quick] = [bridged(&upstream, 30_000, "").await, bridged(&upstream, 30, "").await];
        let (leaves, cancels) = (of(tasks(&patient), one), of(tasks(&quick), one));
        let (stays, keeps) = (of(tasks(&patient), two), of(tasks(&quick), two));
        let waiting = tokio::spawn(async move { stays.call("slow", json!({})).await });
        let task = cancels.call("slow", json!({})).await.task();
        let other = keeps.call("slow", json!({})).await.task();
        tokio::select! {
            answer = leaves.call("slow", json!({"leaves": true})) => panic!("{}", answer.raw),
            () = eventually("four are there", || upstream.calls("slow").len() == 4) => {}
        }
        cancels.cancel_task(&task).await.result();
        eventually("two are cancelled", || upstream.cancels().len() == 2).await;
        let name = |session: Option<&str>, id: &Value| (session.map(str::to_owned), id.to_string());
        let calls = upstream.calls("slow");
        let sent: HashSet<_> = calls.iter().map(|call| name(call.session(), &call.json["id"])).collect();
        let named: HashSet<_> = upstream
            .cancels()
            .iter()
            .map(|cancel| name(cancel.session(), &cancel.json["params"]["requestId"]))
            .collect();
        assert_eq!((sent.len(), named.len()), (4, 2), "each call has a name of its own in its session");
        let left = calls.iter().find(|call| call.json["params"]["arguments"]["leaves"] == true).expect("it was sent");
        assert!(named.is_subset(&sent) && named.contains(&name(left.session(), &left.json["id"])));
        latch.open();
        assert_eq!(soon("its end", waiting).await.expect("no panic").text(), "slow end", "{one} {two}");
        assert_eq!(keeps.task_end(&other).await.state(), "completed", "{one} {two}");
        assert_eq!(upstream.cancels().len(), 2, "{one} {two}");
    }
}
