//! Polls by the hundred, with a new credential, and with a validator behind them.
//!
//! They are answered from the record: the upstream hears of none, and a result stays what it was.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::dialect::is_unknown;
use crate::support::upstream::script;
use crate::support::{Client, Dialect, Gate, Latch, Upstream, ms, throughout};

const STRUCTURED: &str =
    r#"{"content":[{"type":"text","text":"42"}],"structuredContent":{"n":42,"big":9007199254740993}}"#;

#[tokio::test]
async fn b61a_polls_never_reach_the_upstream() {
    for dialect in Dialect::ALL {
        let latch = Latch::new();
        let upstream = Upstream::builder()
            .tool("slow", script::accepted(&latch, "late"))
            .tool("fast", script::says("quick"))
            .start()
            .await;
        let patient = "[upstream]\n[[upstream.rule]]\ntool = \"fast\"\nthreshold = \"30s\"";
        let gate = Gate::start(&upstream, patient).await;
        let client = dialect.client(&gate, json!({})).open().await;
        client.tools().await;
        let id = dialect.start(&client, "slow", json!({})).await;
        // The session's own stream is opened once, whenever.
        let before = upstream.http("POST").len();
        let polls = join_all((0..200).map(|_| dialect.read(&client, &id)));
        let others = join_all((0..5).map(|_| client.call("fast", json!({}))));
        let (polls, others) = tokio::join!(polls, others);
        for poll in &polls {
            assert!(["working", "running"].contains(&poll.state().as_str()), "{}", poll.raw);
        }
        assert!(others.iter().all(|answer| answer.text() == "quick"), "other traffic goes on");
        latch.open();
        dialect.wait(&client, &id).await;
        join_all((0..100).map(|_| dialect.wait(&client, &id))).await;
        assert_eq!(upstream.http("POST").len(), before + 5, "{dialect:?}: only the fast calls");
    }
}

fn schema() -> Value {
    json!({"outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}})
}

async fn structured(latch: &Latch) -> Upstream {
    let tool = script::accepted_then(latch, |mut call| async move { call.result_text(STRUCTURED) });
    Upstream::builder()
        .tool_with("slow", &schema(), tool)
        .tool_with("sync", &schema(), script::answers(STRUCTURED))
        .start()
        .await
}

async fn schema_of(client: &Client, tool: &str) -> Option<Value> {
    let tools = client.tools().await;
    let tools = tools.result()["tools"].as_array().unwrap().clone();
    let found = tools.iter().find(|known| known["name"] == tool).unwrap_or_else(|| panic!("no {tool}: {tools:?}"));
    found.get("outputSchema").cloned()
}

#[tokio::test]
async fn b63_a_validator_meets_neither_a_handle_nor_a_task() {
    let rule = "[upstream]\n[[upstream.rule]]\ntool = \"sync\"\nmode = \"sync\"\n";
    for (setting, kept) in [("drop", false), ("keep", true)] {
        for dialect in Dialect::ALL {
            let latch = Latch::new();
            let upstream = structured(&latch).await;
            let gate = Gate::start(&upstream, &format!("[jobs]\noutput_schema = \"{setting}\"\n{rule}")).await;
            let client = dialect.client(&gate, json!({})).open().await;
            let own = Some(schema()["outputSchema"].clone());
            // Whoever speaks the handshake may be given a job handle, in `content` at least.
            assert_eq!(schema_of(&client, "slow").await, own.clone().filter(|_| kept), "{dialect:?}, {setting}");
            assert_eq!(schema_of(&client, "sync").await, own, "{dialect:?}: never deferred");
            let id = dialect.start(&client, "slow", json!({})).await;
            latch.open();
            let end = dialect.wait(&client, &id).await;
            assert!(end.raw.contains(r#""structuredContent":{"n":42,"big":9007199254740993}"#), "{}", end.raw);
        }
    }
}

#[tokio::test]
async fn b63_handles_of_tasks_have_nothing_to_validate() {
    let latch = Latch::new();
    let upstream = structured(&latch).await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().extension().open().await;
    for handle in [client.call_task("slow", json!({})).await, client.call("slow", json!({})).await] {
        assert!(handle.result().get("structuredContent").is_none(), "{}", handle.raw);
    }
    let hold = Gate::start(&upstream, "[tasks]\nwithout_tasks = \"hold\"").await;
    let held = hold.client().open().await;
    assert_eq!(schema_of(&held, "slow").await, Some(schema()["outputSchema"].clone()), "no handle, no edit");
    latch.open();
}

#[tokio::test]
async fn b07_a_rotated_credential_is_learnt_and_a_foreign_one_refused() {
    for dialect in Dialect::ALL {
        let latch = Latch::new();
        let builder =
            Upstream::builder().on("ping", script::picky("thief")).tool("slow", script::accepted(&latch, "late"));
        let upstream = builder.start().await;
        let gate = Gate::start(&upstream, "").await;
        let maker = dialect.client(&gate, json!({})).bearer("old").open().await;
        let id = dialect.start(&maker, "slow", json!({})).await;

        let thief = gate.client().bearer("thief").in_session(maker.session.as_deref());
        is_unknown(&thief, &id).await;
        let still = || upstream.cancels().is_empty();
        throughout(ms(60), "a thief cancels nothing", still).await;

        let rotated = gate.client().bearer("new").in_session(maker.session.as_deref());
        for _ in 0..3 {
            assert!(["working", "running"].contains(&dialect.read(&rotated, &id).await.state().as_str()));
        }
        let pings =
            || upstream.of("ping").into_iter().filter(|ping| ping.header("authorization") == Some("Bearer new"));
        assert_eq!(pings().count(), 1, "{dialect:?}: learnt once");
        assert!(pings().all(|ping| ping.session() == maker.session.as_deref()));
        latch.open();
        assert_eq!(dialect.text(&rotated, &id).await, "late", "{dialect:?}");
        is_unknown(&thief, &id).await;
        assert_eq!(pings().count(), 1);
    }
}
