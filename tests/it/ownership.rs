//! Who owns a task under each setting, seen over the wire.
//!
//! The rule itself is a pure function with tests of its own; here every method has to ask it.

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::dialect::is_unknown;
use crate::support::upstream::script;
use crate::support::{Gate, Latch, Upstream, eventually, ms};

#[tokio::test]
async fn with_owner_id_whoever_holds_the_id_may_do_everything() {
    let (upstream, latch) = Upstream::holding("worth it").await;
    let gate = Gate::start(&upstream, "[tasks]\nowner = \"id\"").await;
    let maker = gate.client().bearer("U").extension().open().await;
    let (first, second) = (maker.call("slow", json!({})).await.task(), maker.call("slow", json!({})).await.task());
    let other = gate.client().bearer("V").extension().open().await;
    assert_eq!(other.task(&first).await.state(), "working");
    assert_eq!(other.cancel_task(&second).await.result(), &json!({"resultType": "complete"}));
    eventually("the upstream is told", || upstream.cancels().len() == 1).await;
    assert_eq!(upstream.cancels()[0].session(), maker.session.as_deref(), "on the session of the call");
    assert_eq!(maker.task_end(&second).await.state(), "cancelled");
    latch.open();
    assert_eq!(gate.client().open().await.job_end(&first).await.block(1), "worth it");
    assert!(!other.tool_names().await.contains(&"list_jobs".to_owned()), "nothing is listed");
}

#[tokio::test]
async fn with_owner_principal_nobody_is_known_without_a_proof() {
    for declares in [false, true] {
        let (upstream, latch) = Upstream::holding("worth it").await;
        let gate = Gate::start(&upstream, "[tasks]\nowner = \"principal\"\nthreshold = \"30ms\"").await;
        let client = gate.client().bearer("U");
        let client = if declares { client.extension() } else { client }.open().await;
        let meddling = async {
            eventually("it is upstream", || upstream.calls("slow").len() == 1).await;
            sleep(ms(120)).await; // well past the threshold
            latch.open();
        };
        let (answer, ()) = tokio::join!(client.call("slow", json!({})), meddling);
        assert_eq!(answer.text(), "worth it", "it is held");
        assert!(answer.result().get("resultType").is_none(), "{}", answer.raw);
    }
}

#[tokio::test]
async fn with_owner_session_the_session_alone_counts() {
    let (upstream, latch) = Upstream::holding("worth it").await;
    let gate = Gate::start(&upstream, "[tasks]\nowner = \"session\"").await;
    let maker = gate.client().bearer("U").extension().open().await;
    let task = maker.call("slow", json!({})).await.task();
    let sibling = gate.client().bearer("U").extension().open().await;
    is_unknown(&sibling, &task).await;
    is_unknown(&gate.client().extension().open().await, &task).await;
    assert!(upstream.cancels().is_empty(), "what is unknown is not cancelled");
    let rotated = gate.client().bearer("U2").in_session(maker.session.as_deref());
    assert_eq!(rotated.task(&task).await.state(), "working");
    latch.open();
    assert_eq!(maker.task_end(&task).await.state(), "completed");
}

#[tokio::test]
async fn another_credential_on_the_same_session_is_asked_about() {
    let latch = Latch::new();
    let builder = Upstream::builder().on("ping", script::picky("thief")).tool("slow", script::held(&latch, "worth it"));
    let upstream = builder.start().await;
    let gate = Gate::start(&upstream, "").await;
    let maker = gate.client().bearer("U").extension().open().await;
    let task = maker.call("slow", json!({})).await.task();
    assert_eq!(maker.task(&task).await.state(), "working");
    assert!(upstream.of("ping").is_empty(), "its own credential needs no question");

    let thief = gate.client().bearer("thief").in_session(maker.session.as_deref());
    is_unknown(&thief, &task).await;
    assert!(upstream.cancels().is_empty());
    let asked = upstream.of("ping");
    assert!(!asked.is_empty() && asked.iter().all(|ping| ping.header("authorization") == Some("Bearer thief")));
    assert!(asked.iter().all(|ping| ping.session() == maker.session.as_deref()));

    let rotated = gate.client().bearer("U2").in_session(maker.session.as_deref());
    for _ in 0..3 {
        assert_eq!(rotated.task(&task).await.state(), "working");
    }
    let by = |credential: &str| {
        let credential = format!("Bearer {credential}");
        upstream.of("ping").iter().filter(|ping| ping.header("authorization") == Some(&credential)).count()
    };
    assert_eq!(by("U2"), 1, "what was accepted once is not asked again");
    is_unknown(&thief, &task).await;
    latch.open();
    assert_eq!(rotated.task_end(&task).await.state(), "completed");
    assert_eq!(maker.task(&task).await.state(), "completed", "the old one is not locked out");
}

#[tokio::test]
async fn a_question_that_fails_admits_nobody() {
    for status in [403, 500, 404] {
        let broken = script::script(move |mut call| async move { call.raw(status, &[], "") });
        let builder = Upstream::builder().on("ping", broken).tool("slow", script::until_cancelled());
        let upstream = builder.start().await;
        let gate = Gate::start(&upstream, "").await;
        let maker = gate.client().bearer("U").extension().open().await;
        let task = maker.call("slow", json!({})).await.task();
        for other in [gate.client().bearer("V"), gate.client()] {
            is_unknown(&other.in_session(maker.session.as_deref()), &task).await;
        }
        assert_eq!(maker.task(&task).await.state(), "working", "{status}");
    }
}

#[tokio::test]
async fn a_job_without_a_credential_is_anybodys_who_has_its_id() {
    let (upstream, latch) = Upstream::holding("worth it").await;
    let gate = Gate::start(&upstream, "").await;
    let maker = gate.client().open().await;
    let (read, cancelled) = (maker.call("slow", json!({})).await.job(), maker.call("slow", json!({})).await.job());
    let other = gate.client().bearer("V").open().await;
    assert_eq!(other.job(&read, 0.0).await.state(), "running");
    other.cancel_job(&cancelled).await.result();
    assert_eq!(maker.job_end(&cancelled).await.state(), "cancelled");
    eventually("the upstream is told", || upstream.cancels().len() == 1).await;
    assert_eq!(upstream.cancels()[0].session(), maker.session.as_deref());
    latch.open();
    assert_eq!(other.job_end(&read).await.block(1), "worth it");
}

#[tokio::test]
async fn a_task_is_no_others_after_its_end_either() {
    let (upstream, latch) = Upstream::holding("worth it").await;
    let gate = Gate::start(&upstream, "").await;
    let maker = gate.client().bearer("U").extension().open().await;
    let task = maker.call("slow", json!({})).await.task();
    latch.open();
    maker.task_end(&task).await;
    is_unknown(&gate.client().bearer("V").extension().open().await, &task).await;
    is_unknown(&gate.client().extension().open().await, &task).await;
    assert_eq!(gate.client().bearer("U").extension().open().await.task(&task).await.state(), "completed");
}

#[tokio::test]
async fn b72_equal_calls_are_calls_of_their_own() {
    let (upstream, latch) = Upstream::holding("worth it").await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().bearer("U").open().await;
    let arguments = json!({"n": 1});
    let first = client.call("slow", arguments.clone()).await.job();
    let second = client.call("slow", arguments).await.job();
    assert_ne!(first, second);
    client.cancel_job(&first).await.result();
    latch.open();
    assert_eq!(client.job_end(&second).await.block(1), "worth it");
    assert_eq!(client.job_end(&first).await.state(), "cancelled");
    let ids: Vec<Value> = upstream.calls("slow").iter().map(|call| call.json["id"].clone()).collect();
    assert_eq!((ids.len(), ids[0] == ids[1]), (2, false), "{ids:?}");
}
