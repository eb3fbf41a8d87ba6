//! What happens at the same moment: an end and a cancellation, two answers to one question.
//!
//! Whoever is first decides, once, and everybody is told the same ever after.

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::client::{Answer, Client};
use crate::support::dialect::asked;
use crate::support::upstream::script;
use crate::support::{Dialect, Gate, Latch, Upstream, ms};

const ASYNC: &str = "[tasks]\nmode = \"async\"\nmax_running_per_owner = 1000\n";

/// How a task ended, as its reader sees it.
#[derive(Debug, PartialEq)]
struct Seen {
    status: String,
    result: Option<String>,
}

/// What a client of this dialect sees of an ended task: its status, and the result if it has one.
async fn seen(dialect: Dialect, client: &Client, id: &str) -> Seen {
    let read = dialect.read(client, id).await;
    let text = |result: &Value, block: usize| result["content"][block]["text"].as_str().map(str::to_owned);
    let result = match dialect {
        Dialect::Ext => text(&read.result()["result"], 0),
        Dialect::Job => text(read.result(), 1),
        Dialect::Core => {
            let result = client.task_result(id).await;
            match result.json.get("error") {
                Some(error) => {
                    assert_eq!((&error["code"], &error["message"]), (&json!(-32603), &json!("cancelled")));
                    None
                }
                None => text(result.result(), 0),
            }
        }
    };
    Seen { status: read.state(), result }
}

/// Whether the answer to the cancellation says that it was cancelled; `None` if it says nothing of that.
fn told(dialect: Dialect, answer: &Answer) -> Option<bool> {
    match dialect {
        Dialect::Ext => {
            assert_eq!(answer.result(), &json!({"resultType": "complete"}));
            None
        }
        Dialect::Core if answer.json.get("error").is_some() => {
            assert_eq!(answer.code(), -32602, "{}", answer.raw);
            Some(false)
        }
        Dialect::Core | Dialect::Job => match answer.state().as_str() {
            "cancelled" => Some(true),
            "done" if dialect == Dialect::Job => Some(false),
            other => panic!("{dialect:?} cancelled into {other}: {}", answer.raw),
        },
    }
}

/// Calls until there is a handle: on a busy machine a result may be there before it.
async fn started(dialect: Dialect, client: &Client, arguments: Value) -> String {
    loop {
        let answer = match dialect {
            Dialect::Core => client.call_task("jitter", arguments.clone()).await,
            Dialect::Ext | Dialect::Job => client.call("jitter", arguments.clone()).await,
        };
        match dialect {
            Dialect::Core => return answer.core_task(),
            Dialect::Ext | Dialect::Job if answer.text() == "done" => {}
            Dialect::Ext => return answer.task(),
            Dialect::Job => return answer.job(),
        }
    }
}

/// One race; returns whether the work was first.
async fn race(dialect: Dialect, client: &Client, number: u64) -> bool {
    let id = started(dialect, client, json!({"ms": 20 + number * 7 % 21})).await;
    sleep(ms(10 + number * 13 % 31)).await;
    let answer = dialect.cancel(client, &id).await;
    let first = seen(dialect, client, &id).await;
    let finished = first.status == if dialect == Dialect::Job { "done" } else { "completed" };
    assert!(finished || first.status == "cancelled", "{first:?}");
    assert_eq!(first.result.as_deref(), finished.then_some("done"), "a result exactly when it completed: {first:?}");
    if let Some(cancelled) = told(dialect, &answer) {
        assert_eq!(cancelled, !finished, "{} and then {first:?}", answer.raw);
    }
    sleep(ms(40)).await; // by now both have happened
    assert_eq!(seen(dialect, client, &id).await, first, "it never changes");
    finished
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b37_two_thousand_cancellations_around_the_end() {
    let jitter = || {
        script::script(|mut call| async move {
            call.open();
            sleep(ms(call.arg("ms").as_u64().unwrap())).await;
            call.say("done");
        })
    };
    for (dialect, runs) in [(Dialect::Ext, 640), (Dialect::Core, 720), (Dialect::Job, 640)] {
        let upstream = Upstream::builder().tool("jitter", jitter()).start().await;
        let gate = Gate::start(&upstream, ASYNC).await;
        let client = dialect.client(&gate, json!({})).open().await;
        let mut finished = 0;
        for batch in 0..runs / 80 {
            let races = (0..80).map(|number| race(dialect, &client, batch * 80 + number));
            finished += join_all(races).await.into_iter().filter(|first| *first).count() as u64;
        }
        assert!(finished > 0 && finished < runs, "{dialect:?}: {finished} of {runs} finished: no race was run");
    }
}

/// One question answered by two at once; returns what the tool heard.
async fn duel(client: &Client, (number, door): (usize, &Latch)) -> Value {
    let task = client.call("curious", json!({"n": number})).await.task();
    door.open();
    let (key, _) = asked(client, &task).await.remove(0);
    let question = json!({"id": key});
    let update = client.update_task(&task, json!({key.as_str(): {"action": "accept", "content": {"by": "update"}}}));
    let response = client.answer(&question, json!({"action": "accept", "content": {"by": "response"}}));
    let (updated, ()) = tokio::join!(update, response);
    assert_eq!(updated.result(), &json!({"resultType": "complete"}));
    let end = client.task_end(&task).await;
    let text = end.result()["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{}", end.raw));
    serde_json::from_str(text).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b49_five_hundred_questions_answered_twice_at_once() {
    let doors: Arc<Vec<Latch>> = Arc::new((0..500).map(|_| Latch::new()).collect());
    let curious = {
        let doors = doors.clone();
        script::script(move |mut call| {
            let doors = doors.clone();
            async move {
                call.open();
                let number = call.arg("n").clone();
                doors[usize::try_from(number.as_u64().unwrap()).unwrap()].passed().await;
                let answer = call.ask(&number, "elicitation/create", &json!({"message": "?"})).await;
                sleep(ms(15)).await; // a second answer would come now
                call.say(&answer["result"].to_string());
            }
        })
    };
    let upstream = Upstream::builder().tool("curious", curious).start().await;
    let gate = Gate::start(&upstream, ASYNC).await;
    let client = Dialect::Ext.client(&gate, json!({"elicitation": {}})).open().await;
    let mut winners = Vec::new();
    let numbered: Vec<(usize, &Latch)> = doors.iter().enumerate().collect();
    for batch in numbered.chunks(50) {
        winners.extend(join_all(batch.iter().map(|run| duel(&client, *run))).await);
    }
    let heard: Vec<Value> = upstream.answers().into_iter().map(|answer| answer.json).collect();
    assert_eq!(heard.len(), 500, "each question is answered once");
    for (number, winner) in winners.iter().enumerate() {
        let answer =
            heard.iter().find(|answer| answer["id"] == number).unwrap_or_else(|| panic!("{number} unanswered"));
        assert_eq!(&answer["result"], winner);
        assert!(["update", "response"].contains(&winner["content"]["by"].as_str().unwrap()), "{winner}");
    }
}
