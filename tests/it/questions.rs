//! What upstreams ask after the client has its handle: put to it in its own dialect, or declined in time.
//!
//! An upstream that waits for an answer nobody will give is a task that never ends.

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::support::dialect::{reaches, said};
use crate::support::upstream::{Script, script};
use crate::support::{Dialect, Gate, Latch, Upstream, ms, throughout, within};

const RELATED: &str = "io.modelcontextprotocol/related-task";
const QUESTIONS: [&str; 3] = ["elicitation/create", "sampling/createMessage", "roots/list"];

/// Every ability that questions need.
fn able() -> Value {
    json!({"elicitation": {}, "sampling": {}, "roots": {}})
}

fn params(method: &str) -> Value {
    match method {
        "elicitation/create" => {
            json!({"message": "go on?", "requestedSchema": {"type": "object", "properties": {}}, "_meta": {"x/y": 1}})
        }
        "sampling/createMessage" => {
            json!({"messages": [{"role": "user", "content": {"type": "text", "text": "why?"}}], "maxTokens": 9})
        }
        _ => json!({}),
    }
}

fn answer(method: &str) -> Value {
    match method {
        "elicitation/create" => json!({"action": "accept", "content": {"cells": 12}}),
        "sampling/createMessage" => {
            json!({"role": "assistant", "content": {"type": "text", "text": "because"}, "model": "m"})
        }
        _ => json!({"roots": [{"uri": "file:///meshes"}]}),
    }
}

/// Asks under the id 0 when the latch opens, and says what was answered.
fn curious(door: &Latch, method: &'static str) -> Script {
    script::accepted_then(door, move |mut call| async move {
        let answer = call.ask(&json!(0), method, &params(method)).await;
        if call.arg("then") == "hang" {
            std::future::pending::<()>().await;
        }
        call.say(&answer.to_string());
    })
}

/// One call in one dialect whose upstream asks when the latch is opened.
struct Asking {
    dialect: Dialect,
    upstream: Upstream,
    _gate: Gate,
    client: crate::support::Client,
    id: String,
    door: Latch,
}

async fn asking(dialect: Dialect, method: &'static str, capabilities: Value, (config, then): (&str, &str)) -> Asking {
    let door = Latch::new();
    let upstream = Upstream::builder().tool("curious", curious(&door, method)).start().await;
    let gate = Gate::start(&upstream, config).await;
    let client = dialect.client(&gate, capabilities).open().await;
    let id = dialect.start(&client, "curious", json!({"then": then})).await;
    Asking { dialect, upstream, _gate: gate, client, id, door }
}

impl Asking {
    async fn said(&self) -> Value {
        said(&self.dialect.text(&self.client, &self.id).await)
    }
}

#[tokio::test]
async fn every_question_is_answered_in_every_dialect() {
    let cells = Dialect::ALL.into_iter().flat_map(|dialect| QUESTIONS.map(|method| (dialect, method)));
    join_all(cells.map(|(dialect, method)| async move {
        let asking = asking(dialect, method, able(), ("", "")).await;
        asking.door.open();
        let request = dialect.answer_next(&asking.client, &asking.id, |_| answer(method)).await;
        let what = format!("{dialect:?}, {method}: {request}");
        assert_eq!(request["method"], method, "{what}");
        let mut seen = request["params"].clone();
        let related = seen["_meta"].as_object_mut().and_then(|meta| meta.remove(RELATED));
        let expected = (dialect == Dialect::Core).then(|| json!({"taskId": asking.id}));
        assert_eq!(related, expected, "{what}");
        let theirs = params(method);
        assert!(theirs.as_object().unwrap().iter().all(|(key, value)| seen[key] == *value), "{what}");
        let heard = asking.said().await;
        assert_eq!((&heard["id"], &heard["result"]), (&json!(0), &answer(method)), "{what}");
        let answers = asking.upstream.answers_to(&json!(0));
        assert_eq!((answers.len(), answers[0].session()), (1, asking.client.session.as_deref()), "{what}");
    }))
    .await;
}

#[tokio::test]
async fn an_answer_that_is_an_error_is_one_upstream() {
    let error = json!({"code": -1, "message": "the user said no", "data": {"why": 1}});
    for dialect in [Dialect::Core, Dialect::Job] {
        for method in QUESTIONS {
            let asking = asking(dialect, method, able(), ("", "")).await;
            asking.door.open();
            let request = dialect.stream(&asking.client, &asking.id).await.message().await.unwrap();
            asking.client.refuse(&request, error.clone()).await;
            let heard = asking.said().await;
            assert_eq!((&heard["id"], &heard["error"]), (&json!(0), &error), "{dialect:?}, {method}");
        }
    }
}

#[tokio::test]
async fn b48_what_the_client_cannot_be_asked_is_declined_at_once() {
    let cells = Dialect::ALL.into_iter().flat_map(|dialect| QUESTIONS.map(|method| (dialect, method)));
    join_all(cells.map(|(dialect, method)| async move {
        let others = match method {
            "roots/list" => json!({"elicitation": {}, "sampling": {}}),
            "sampling/createMessage" => json!({"elicitation": {}, "roots": null}),
            _ => json!({"roots": {}}),
        };
        let asking = asking(dialect, method, others, ("", "")).await;
        asking.door.open();
        let started = Instant::now();
        let heard = asking.said().await;
        assert!(started.elapsed() < ms(1_000), "{dialect:?}, {method}: {:?}", started.elapsed());
        match method {
            "elicitation/create" => assert_eq!(heard["result"], json!({"action": "decline"}), "{dialect:?}"),
            _ => assert!(heard["error"]["code"].is_i64(), "{dialect:?}, {method}: {heard}"),
        }
    }))
    .await;
}

#[tokio::test]
async fn b48_nobody_answers_and_the_clock_of_the_work_stands_still_meanwhile() {
    let config = "[tasks]\ninput_timeout = \"900ms\"\nmax_runtime = \"700ms\"";
    let cells = Dialect::ALL.into_iter().flat_map(|dialect| QUESTIONS.map(|method| (dialect, method)));
    join_all(cells.map(|(dialect, method)| async move {
        let asking = asking(dialect, method, able(), (config, "")).await;
        asking.door.open();
        let started = Instant::now();
        reaches(&asking.client, &asking.id, "input_required").await;
        let heard = asking.said().await;
        assert!(started.elapsed() > ms(880), "{dialect:?}, {method}: {:?}", started.elapsed());
        match method {
            "elicitation/create" => assert_eq!(heard["result"], json!({"action": "decline"}), "{dialect:?}"),
            _ => assert_eq!(heard["error"]["data"]["reason"], "input_timeout", "{dialect:?}, {method}"),
        }
        assert!(asking.upstream.cancels().is_empty(), "{dialect:?}, {method}");
    }))
    .await;
}

#[tokio::test]
async fn the_clock_of_the_work_goes_on_after_the_answer() {
    let config = "[tasks]\nmax_runtime = \"600ms\"";
    join_all(Dialect::ALL.map(|dialect| async move {
        let asking = asking(dialect, "roots/list", able(), (config, "hang")).await;
        asking.door.open();
        reaches(&asking.client, &asking.id, "input_required").await;
        sleep(ms(700)).await;
        assert_eq!(asking.client.task(&asking.id).await.state(), "input_required", "{dialect:?}");
        dialect.answer_next(&asking.client, &asking.id, |_| answer("roots/list")).await;
        let end = reaches(&asking.client, &asking.id, "failed").await;
        assert!(end.result()["statusMessage"].as_str().unwrap().contains("max"), "{dialect:?}: {}", end.raw);
        within(ms(1_000), "the upstream is told", || asking.upstream.cancels().len() == 1).await;
    }))
    .await;
}

#[tokio::test]
async fn b49_cancelling_while_it_waits_unblocks_the_upstream() {
    for dialect in Dialect::ALL {
        let asking = asking(dialect, "elicitation/create", able(), ("", "")).await;
        asking.door.open();
        let request = match dialect {
            Dialect::Ext => {
                let (key, _) = crate::support::dialect::asked(&asking.client, &asking.id).await.remove(0);
                json!({"id": key})
            }
            Dialect::Core | Dialect::Job => dialect.stream(&asking.client, &asking.id).await.message().await.unwrap(),
        };
        dialect.cancel(&asking.client, &asking.id).await.result();
        let unblocked = || asking.upstream.answers_to(&json!(0)).len() == 1 && asking.upstream.cancels().len() == 1;
        within(ms(1_000), "the upstream is unblocked and told", unblocked).await;
        let heard = &asking.upstream.answers_to(&json!(0))[0];
        assert_eq!(heard.json["result"]["action"], "decline", "{dialect:?}");
        assert_eq!(asking.client.task(&asking.id).await.state(), "cancelled", "{dialect:?}");
        asking.client.answer(&request, answer("elicitation/create")).await;
        throughout(ms(60), "an answer comes too late", || asking.upstream.answers_to(&json!(0)).len() == 1).await;
    }
}

#[tokio::test]
async fn how_a_task_that_waits_for_a_person_reads() {
    let [ext, core, job] = [Dialect::Ext, Dialect::Core, Dialect::Job]
        .map(|dialect| asking(dialect, "elicitation/create", able(), ("", "")));
    let (ext, core, job) = tokio::join!(ext, core, job);
    for asking in [&ext, &core, &job] {
        asking.door.open();
        let read = reaches(&asking.client, &asking.id, "input_required").await;
        assert_eq!(read.result()["statusMessage"], "waiting for an answer: go on?", "{}", read.raw);
        let has_requests = read.result().get("inputRequests").is_some();
        assert_eq!(has_requests, asking.dialect == Dialect::Ext, "{}", read.raw);
        assert!(!read.raw.contains(RELATED), "{}", read.raw);
    }
    let requests = ext.client.task(&ext.id).await.result()["inputRequests"].as_object().unwrap().clone();
    let request = json!({"method": "elicitation/create", "params": params("elicitation/create")});
    assert_eq!(requests.values().collect::<Vec<_>>(), [&request]);

    let read = job.client.job(&job.id, 0.0).await;
    let note = read.note();
    assert_eq!(note["status"], "running", "{}", read.raw);
    let message = note["message"].as_str().unwrap();
    assert!(message.contains("waiting for an answer: go on?"), "{message}");
    assert!(message.contains("not finished") && message.contains("get_job_result(job_id="), "{message}");
    assert_eq!(read.result()["isError"], false);

    for method in ["sampling/createMessage", "roots/list"] {
        let asking = asking(Dialect::Job, method, able(), ("", "")).await;
        asking.door.open();
        reaches(&asking.client, &asking.id, "input_required").await;
        let read = asking.client.job(&asking.id, 0.0).await;
        assert!(read.note()["message"].as_str().unwrap().contains("waiting for the client's"), "{}", read.raw);
    }
}

#[tokio::test]
async fn b51_an_upstream_that_pings_hears_of_somebody() {
    for dialect in Dialect::ALL {
        let door = Latch::new();
        let tool = script::accepted_then(&door, |mut call| async move {
            for number in 0..10 {
                let pong = call.pose(&json!(format!("ping-{number}")), "ping", &json!({}));
                match tokio::time::timeout(ms(1_000), pong).await {
                    Ok(Ok(pong)) if pong["result"] == json!({}) => sleep(ms(10)).await,
                    _ => return call.error(-32000, "nobody is there", &Value::Null),
                }
            }
            call.say("alive");
        });
        let upstream = Upstream::builder().tool("pinging", tool).start().await;
        let gate = Gate::start(&upstream, "").await;
        let client = dialect.client(&gate, json!({})).open().await;
        let id = dialect.start(&client, "pinging", json!({})).await;
        door.open();
        let answered = || (0..10).all(|n| upstream.answers_to(&json!(format!("ping-{n}"))).len() == 1);
        within(ms(5_000), "nobody reads meanwhile", answered).await;
        assert_eq!(dialect.text(&client, &id).await, "alive", "{dialect:?}");
        assert_eq!(client.task(&id).await.state(), "completed");
    }
}
