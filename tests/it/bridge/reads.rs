//! Reads of a job that wait: they ask the store when there is something to read, not in between.

use super::*;
use crate::support::gate::Fault;
use crate::support::soon;

async fn durable(home: &Home, upstream: &Upstream) -> Gate {
    home.start(upstream, &format!("[tasks]\nthreshold = \"30ms\"\n{ALWAYS}")).await
}

#[tokio::test]
async fn a_waiting_read_wakes_by_a_question_and_by_the_end_and_asks_the_store_for_nothing_else() {
    let latch = Latch::new();
    let upstream = tools(&latch).tool("ask", script::curious(&latch)).start().await;
    let home = Home::new();
    let gate = durable(&home, &upstream).await;
    let client = plain(&gate).bearer("a");
    let (asks, ends) = (client.call("ask", json!({})).await.job(), client.call("slow", json!({})).await.job());
    let meanwhile = async {
        tokio::time::sleep(ms(150)).await;
        gate.fault(Fault::Unreadable);
        tokio::time::sleep(ms(300)).await;
        gate.fault(Fault::None);
        latch.open();
    };
    let (asked_for, ended, ()) = tokio::join!(client.job(&asks, 20.0), client.job(&ends, 20.0), meanwhile);
    assert_eq!(asked(&asked_for).len(), 1);
    assert_eq!(ended.state(), "done", "{}", ended.raw);
}

#[tokio::test]
async fn a_read_that_carries_a_question_asks_the_store_for_nothing_until_that_is_answered() {
    let latch = Latch::new();
    let upstream = tools(&latch).tool("ask", script::curious(&latch)).start().await;
    let home = Home::new();
    let gate = durable(&home, &upstream).await;
    let client = gate.client().capabilities(json!({"elicitation": {"form": {}}})).open().await;
    let job = client.call("ask", json!({})).await.job();
    latch.open();
    let mut read = client.job_stream(&job, 0.05).await;
    let question = soon("a question", read.message()).await.expect("the stream goes on");
    assert_eq!(question["method"], "elicitation/create");
    // Its own time is over; it goes on for the question.
    tokio::time::sleep(ms(300)).await;
    gate.fault(Fault::Unreadable);
    tokio::time::sleep(ms(300)).await;
    gate.fault(Fault::None);
    client.answer(&question, json!({"action": "accept"})).await;
    let last = soon("an answer", read.message()).await.expect("it is answered");
    assert_eq!(last["result"]["isError"], json!(null), "{last}");
    assert_eq!(client.job_end(&job).await.block(1), r#"{"action":"accept"}"#);
}
