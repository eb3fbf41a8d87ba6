//! Answers on their way upstream: several at once, twice, from strangers, over streams that come and go.
//!
//! The first answer wins and goes to whoever asked; everything else is accepted and dropped.

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::support::client::{Client, Events};
use crate::support::dialect::{asked, last, reaches, said};
use crate::support::upstream::{Script, script};
use crate::support::{Dialect, Gate, Latch, PATIENT, Upstream, eventually, ms, throughout};

const RELATED: &str = "io.modelcontextprotocol/related-task";

fn able() -> Value {
    json!({"elicitation": {}, "sampling": {}, "roots": {}})
}

fn yes(n: u64) -> Value {
    json!({"action": "accept", "content": {"n": n}})
}

fn ask(message: &str) -> Value {
    json!({"message": message, "requestedSchema": {"type": "object", "properties": {}}})
}

/// Asks two things at once when the first latch opens, and says both answers when the second is open too.
fn twice(door: &Latch, end: &Latch) -> Script {
    let end = end.clone();
    script::accepted_then(door, move |mut call| {
        let end = end.clone();
        async move {
            let one = call.pose(&json!("one"), "elicitation/create", &ask("one?"));
            let two = call.pose(&json!("two"), "elicitation/create", &ask("two?"));
            let (one, two) = (one.await.unwrap(), two.await.unwrap());
            end.passed().await;
            call.say(&json!([one["result"], two["result"]]).to_string());
        }
    })
}

struct Twice {
    upstream: Upstream,
    gate: Gate,
    door: Latch,
    end: Latch,
}

async fn asking_twice() -> Twice {
    let (door, end) = (Latch::new(), Latch::new());
    let upstream = Upstream::builder().tool("twice", twice(&door, &end)).start().await;
    let gate = Gate::start(&upstream, "").await;
    Twice { upstream, gate, door, end }
}

/// The key of the question with this message.
fn key_of(requests: &[(String, Value)], message: &str) -> String {
    let found = requests.iter().find(|(_, request)| request["params"]["message"] == message);
    found.unwrap_or_else(|| panic!("no {message} in {requests:?}")).0.clone()
}

/// Both questions of a task, as soon as both are open.
async fn both(client: &Client, task: &str) -> (String, String) {
    for _ in 0..500 {
        let requests = asked(client, task).await;
        if requests.len() == 2 {
            return (key_of(&requests, "one?"), key_of(&requests, "two?"));
        }
        sleep(ms(5)).await;
    }
    panic!("never two questions");
}

#[tokio::test]
async fn b49_partial_answers_to_a_task_of_the_extension() {
    let Twice { upstream, gate, door, end } = asking_twice().await;
    let client = Dialect::Ext.client(&gate, able()).open().await;
    let task = client.call("twice", json!({})).await.task();
    door.open();
    let (one, two) = both(&client, &task).await;
    assert_ne!(one, two);
    let acknowledged = json!({"resultType": "complete"});
    let update = async |responses: Value| {
        assert_eq!(client.update_task(&task, responses).await.result(), &acknowledged);
    };
    update(json!({"nobody-asked": yes(9)})).await;
    update(json!({})).await;
    assert_eq!(client.request("tasks/update", json!({"taskId": task})).await.code(), -32602);
    update(json!({two.as_str(): yes(2)})).await;
    let left = asked(&client, &task).await;
    assert_eq!((left.len(), key_of(&left, "one?")), (1, one.clone()), "{left:?}");
    update(json!({two.as_str(): yes(22)})).await;
    let left = asked(&client, &task).await;
    assert_eq!(left.len(), 1, "an answered key stays answered: {left:?}");
    update(json!({one.as_str(): yes(1), two.as_str(): yes(222)})).await;
    let working = reaches(&client, &task, "working").await;
    assert!(working.result().get("inputRequests").is_none(), "{}", working.raw);
    end.open();
    assert_eq!(said(&Dialect::Ext.text(&client, &task).await), json!([yes(1), yes(2)]));
    update(json!({one.as_str(): yes(3)})).await;
    let heard = [upstream.answers_to(&json!("one")).len(), upstream.answers_to(&json!("two")).len()];
    assert_eq!(heard, [1, 1], "each question is answered once");
}

/// The next two questions on a stream, the first one first.
async fn two_of(stream: &mut Events) -> (Value, Value) {
    let (a, b) = (stream.message().await.unwrap(), stream.message().await.unwrap());
    if a["params"]["message"] == "one?" { (a, b) } else { (b, a) }
}

#[tokio::test]
async fn b49_several_questions_on_a_waiting_stream() {
    for dialect in [Dialect::Core, Dialect::Job] {
        let Twice { upstream, gate, door, end } = asking_twice().await;
        let client = dialect.client(&gate, able()).open().await;
        let task = dialect.start(&client, "twice", json!({})).await;
        door.open();
        reaches(&client, &task, "input_required").await;
        let mut stream = dialect.stream(&client, &task).await;
        let (one, two) = two_of(&mut stream).await;
        assert_eq!((&one["params"]["message"], &two["params"]["message"]), (&json!("one?"), &json!("two?")));
        assert_ne!(one["id"], two["id"]);
        for question in [&one, &two] {
            let related = &question["params"]["_meta"][RELATED]["taskId"];
            let expected = if dialect == Dialect::Core { json!(task) } else { Value::Null };
            assert_eq!(related, &expected, "{question}");
        }
        client.answer(&two, yes(2)).await;
        assert_eq!(client.task(&task).await.state(), "input_required", "one is left");
        client.answer(&two, yes(22)).await;
        client.answer(&one, yes(1)).await;
        client.answer(&one, yes(11)).await;
        reaches(&client, &task, "working").await;
        end.open();
        let end = last(&mut stream).await;
        let block = usize::from(dialect == Dialect::Job);
        let text = end["result"]["content"][block]["text"].as_str().unwrap_or_else(|| panic!("{end}"));
        assert_eq!(said(text), json!([yes(1), yes(2)]), "{dialect:?}");
        assert_eq!((upstream.answers_to(&json!("one")).len(), upstream.answers_to(&json!("two")).len()), (1, 1));
    }
}

#[tokio::test]
async fn b49_keys_are_never_used_again() {
    let door = Latch::new();
    let tool = script::accepted_then(&door, |mut call| async move {
        let id = call.arg("id").clone();
        for _ in 0..4 {
            call.ask(&id, "elicitation/create", &ask("again?")).await;
        }
        call.say("done");
    });
    let upstream = Upstream::builder().tool("again", tool).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = Dialect::Ext.client(&gate, able()).open().await;
    let make = async |id: u64| client.call("again", json!({"id": id})).await.task();
    let tasks = [make(0).await, make(1).await];
    door.open();
    let mut keys = std::collections::HashSet::new();
    for round in 1..=4 {
        for task in &tasks {
            let mut open = asked(&client, task).await;
            while open.iter().all(|(key, _)| keys.contains(key)) {
                sleep(ms(5)).await;
                open = asked(&client, task).await;
            }
            assert_eq!(open.len(), 1, "{open:?}");
            assert!(keys.insert(open[0].0.clone()), "{open:?}");
            client.update_task(task, json!({open[0].0.as_str(): yes(round)})).await.result();
        }
    }
    assert_eq!(keys.len(), 8);
    for task in &tasks {
        assert_eq!(client.task_end(task).await.state(), "completed");
    }
}

/// Whether nothing but comments comes for a while.
async fn is_silent(stream: &mut Events) {
    let came = timeout(ms(120), stream.message()).await;
    assert!(came.is_err(), "it should be silent: {came:?}");
}

#[tokio::test]
async fn a_question_is_on_one_stream_at_a_time_and_moves_when_that_ends() {
    for dialect in [Dialect::Core, Dialect::Job] {
        let Twice { upstream, gate, door, end } = asking_twice().await;
        end.open();
        let client = dialect.client(&gate, able()).open().await;
        let task = dialect.start(&client, "twice", json!({})).await;
        let mut first = dialect.stream(&client, &task).await;
        sleep(ms(30)).await;
        let mut second = dialect.stream(&client, &task).await;
        door.open();
        let (one, two) = two_of(&mut first).await;
        is_silent(&mut second).await;
        client.answer(&one, yes(1)).await;
        drop(first);
        let moved = second.message().await.unwrap();
        assert_eq!(moved["id"], two["id"], "the one that is open, and under the same id: {moved}");
        is_silent(&mut second).await;
        drop(second);
        sleep(ms(30)).await;
        let mut third = dialect.stream(&client, &task).await;
        let moved = third.message().await.unwrap();
        assert_eq!(moved["id"], two["id"], "{moved}");
        client.answer(&moved, yes(2)).await;
        let end = last(&mut third).await;
        assert!(end["result"].is_object(), "{end}");
        let heard = [upstream.answers_to(&json!("one")).len(), upstream.answers_to(&json!("two")).len()];
        assert_eq!(heard, [1, 1], "{dialect:?}");
    }
}

#[tokio::test]
async fn b48_a_question_waits_for_the_next_read_that_can_carry_it() {
    let Twice { upstream: _upstream, gate, door, end } = asking_twice().await;
    end.open();
    let client = Dialect::Job.client(&gate, able()).open().await;
    let job = client.call("twice", json!({})).await.job();
    door.open();
    reaches(&client, &job, "input_required").await;
    let plain = gate.client().in_session(client.session.as_deref()).accept("application/json");
    let read = plain.job(&job, 0.1).await;
    assert!(!read.sse && read.state() == "running", "JSON has no room for a question: {}", read.raw);
    let mut short = client.job_stream(&job, 0.3).await;
    let (one, two) = two_of(&mut short).await;
    let read = last(&mut short).await;
    assert!(read["result"]["content"][0]["text"].as_str().unwrap().contains("running"), "{read}");
    let mut next = client.job_stream(&job, 9.0).await;
    let again = two_of(&mut next).await;
    assert_eq!((&again.0["id"], &again.1["id"]), (&one["id"], &two["id"]), "asked once more, under the same ids");
    client.answer(&one, yes(1)).await;
    client.answer(&two, yes(2)).await;
    assert_eq!(last(&mut next).await["result"]["content"][0]["text"].as_str().map(said).unwrap()["status"], "done");
}

#[tokio::test]
async fn an_answer_of_a_stranger_is_none() {
    let Twice { upstream, gate, door, end } = asking_twice().await;
    end.open();
    let maker = Dialect::Ext.client(&gate, able()).bearer("A").open().await;
    let stranger = Dialect::Ext.client(&gate, able()).bearer("B").open().await;
    let nobody = Dialect::Ext.client(&gate, able()).open().await;
    let task = maker.call("twice", json!({})).await.task();
    door.open();
    let (one, two) = both(&maker, &task).await;
    for client in [&stranger, &nobody] {
        client.answer(&json!({"id": one}), yes(66)).await;
        let refused = client.update_task(&task, json!({two.as_str(): yes(66)})).await;
        assert_eq!(
            (refused.code(), &refused.error()["message"]),
            (-32602, &json!("Task is not available in this session"))
        );
    }
    let unheard = || upstream.answers_to(&json!("one")).len() + upstream.answers_to(&json!("two")).len() == 0;
    throughout(ms(100), "no stranger is heard", unheard).await;
    assert_eq!(asked(&maker, &task).await.len(), 2);
    let sibling = Dialect::Core.client(&gate, able()).bearer("A").open().await;
    sibling.answer(&json!({"id": one}), yes(1)).await;
    maker.update_task(&task, json!({two.as_str(): yes(2)})).await.result();
    assert_eq!(said(&Dialect::Ext.text(&maker, &task).await), json!([yes(1), yes(2)]), "the owner is, in any session");
    let sessions: Vec<_> =
        upstream.answers_to(&json!("one")).iter().map(|heard| heard.session().map(str::to_owned)).collect();
    assert_eq!(sessions, std::slice::from_ref(&maker.session), "on the session that asked");
}

#[tokio::test]
async fn b47_answers_find_the_session_that_asked() {
    let tool = script::script(|mut call| async move {
        let answer = call.ask(&json!(0), "elicitation/create", &ask("who?")).await;
        call.say(&answer["result"].to_string());
    });
    let upstream = Upstream::builder().tool("who", tool).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let (a, b) = (gate.client().capabilities(able()).open().await, gate.client().capabilities(able()).open().await);
    let open = async |client: &Client| {
        let body = client.body("5", "tools/call", json!({"name": "who", "arguments": {}}));
        let mut stream = client.post(body).await.events();
        let question = stream.message().await.unwrap();
        assert_eq!((&question["id"], &question["method"]), (&json!(0), &json!("elicitation/create")));
        (stream, question)
    };
    let (mut of_a, question_a) = open(&a).await;
    let (mut of_b, question_b) = open(&b).await;
    b.answer(&question_b, yes(2)).await;
    let end = last(&mut of_b).await;
    assert_eq!(said(end["result"]["content"][0]["text"].as_str().unwrap()), yes(2));
    is_silent(&mut of_a).await;
    b.answer(&json!({"id": "unknown"}), yes(3)).await;
    a.answer(&question_a, yes(1)).await;
    let end = last(&mut of_a).await;
    assert_eq!(said(end["result"]["content"][0]["text"].as_str().unwrap()), yes(1));
    eventually("both were heard", || upstream.answers_to(&json!(0)).len() == 2).await;
    let sessions: Vec<_> =
        upstream.answers_to(&json!(0)).iter().map(|heard| heard.session().map(str::to_owned)).collect();
    assert_eq!(sessions, [b.session.clone(), a.session.clone()]);
}
