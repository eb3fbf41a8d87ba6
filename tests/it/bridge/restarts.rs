//! The sessions of tasks that go on after a restart: nobody else has them, so they end with the last of their tasks.

use super::*;

const SHARED: &str = "[tasks]\nthreshold = \"30ms\"\n[upstream]\nbridge = \"always\"\nbridge_sessions = \"shared\"\n";

/// A server whose calls end, on another stream, with one latch each, by what their argument `text` says.
fn solver(latches: &[(&'static str, Latch)]) -> Builder {
    let latches = latches.to_vec();
    let resumed = script::script(move |mut call| {
        let latches = latches.clone();
        async move {
            let cursor = call.request.header("last-event-id").unwrap_or_default().to_owned();
            let (id, text) = cursor.split_once('|').expect("an event of a call");
            call.open();
            let (_, latch) = latches.iter().find(|(name, _)| *name == text).expect("a latch");
            latch.passed().await;
            call.say_to(id, text);
        }
    });
    Upstream::builder().tool("solve", script::resumable(&Latch::new())).resume(resumed)
}

#[tokio::test]
async fn a_session_ends_with_the_last_of_its_tasks_also_after_two_restarts() {
    let latches = [("first", Latch::new()), ("last", Latch::new())];
    let upstream = solver(&latches).start().await;
    let home = Home::new();
    let mut gate = home.start(&upstream, SHARED).await;
    let client = tasks(&gate);
    let mut made = Vec::new();
    for (text, _) in &latches {
        made.push(client.call("solve", json!({"text": text})).await.task());
    }
    assert_eq!(upstream.of("initialize").len(), 1, "they share a session");
    for _ in 0..2 {
        gate.leave().await;
        gate = home.start(&upstream, SHARED).await;
    }
    let client = tasks(&gate);
    for (task, (text, latch)) in made.iter().zip(&latches) {
        assert!(upstream.http("DELETE").is_empty(), "it is needed for {text}");
        latch.open();
        assert_eq!(client.task_end(task).await.result()["result"]["content"][0]["text"], *text);
        tokio::time::sleep(ms(50)).await;
    }
    eventually("it is closed", || upstream.http("DELETE").len() == 1).await;
    assert!(upstream.sessions().is_empty());
}

#[tokio::test]
async fn the_end_of_a_session_is_said_with_its_owners_credential() {
    let latches = [("only", Latch::opened())];
    let upstream = solver(&latches).start().await;
    let home = Home::new();
    let settings = format!("[tasks]\nthreshold = \"30ms\"\n{ALWAYS}");
    let gate = home.start(&upstream, &settings).await;
    let task = tasks(&gate).bearer("a").call("solve", json!({"text": "only"})).await.task();
    gate.leave().await;
    let gate = home.start(&upstream, &settings).await;
    assert_eq!(tasks(&gate).bearer("a").task_end(&task).await.result()["status"], "completed");
    eventually("it is closed", || upstream.http("DELETE").len() == 1).await;
    assert_eq!(upstream.http("DELETE")[0].header("authorization"), Some("Bearer a"));
}

#[tokio::test]
async fn the_session_of_a_client_goes_on_when_its_tasks_have_ended() {
    let latches = [("only", Latch::opened())];
    let upstream = solver(&latches).start().await;
    let home = Home::new();
    let settings = "[tasks]\nthreshold = \"30ms\"\n";
    let gate = home.start(&upstream, settings).await;
    let client = gate.client().extension().open().await;
    let task = client.call("solve", json!({"text": "only"})).await.task();
    gate.leave().await;
    let gate = home.start(&upstream, settings).await;
    let client = gate.client().extension().in_session(client.session.as_deref());
    assert_eq!(client.task_end(&task).await.result()["status"], "completed");
    tokio::time::sleep(ms(100)).await;
    assert!(upstream.http("DELETE").is_empty());
}
