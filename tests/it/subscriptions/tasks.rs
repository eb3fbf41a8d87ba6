//! Tasks: whose, when, and what is said of them.

use super::*;
use crate::support::client::text_request;
use crate::support::upstream::script::{self, script};

#[tokio::test]
async fn b61c_own_tasks_are_told_of_and_others_are_left_out() {
    let latch = Latch::new();
    let upstream = slow(&latch).start().await;
    let (gate, clients) = both(&upstream, "").await;
    let stranger = gate.client().bearer("other").extension().open().await;
    let foreign = stranger.call("slow", json!({})).await.task();
    for (client, id) in clients.iter().zip(["\"sub-1\"", "7"]) {
        let (one, two) = (client.call("slow", json!({})).await.task(), client.call("forever", json!({})).await.task());
        let unknown = "00000000-0000-4000-8000-000000000000";
        let filter = json!({"taskIds": [one, foreign, unknown, "no id", two, one]});
        let (mut stream, honoured) = Stream::open(client, id, filter).await;
        assert_eq!(honoured, json!({"taskIds": [one, two]}));
        // How each stands comes right after it, in that order.
        assert_eq!(stream.status().await, (one.clone(), "working".into()));
        assert_eq!(stream.status().await, (two.clone(), "working".into()));
        client.cancel_task(&two).await.result();
        assert_eq!(stream.status().await, (two, "cancelled".into()));
    }
    for client in &clients {
        let (mut stream, honoured) = Stream::open(client, "8", json!({"taskIds": [foreign]})).await;
        assert_eq!(honoured, json!({"taskIds": []}), "possibly none, and the stream stays open");
        let comment = stream.events.next().await.unwrap();
        assert!(comment.comment.is_some() && comment.data.is_none(), "{comment:?}");
    }
    latch.open();
    assert_eq!(stranger.task_end(&foreign).await.state(), "completed");
}

#[tokio::test]
async fn b61c_the_whole_task_is_pushed_and_closing_the_stream_cancels_nothing() {
    let latch = Latch::new();
    let upstream = slow(&latch).start().await;
    let (_gate, clients) = both(&upstream, "").await;
    let mut open = Vec::new();
    for client in &clients {
        let task = client.call("slow", json!({})).await.task();
        let (mut closed, _) = Stream::open(client, "1", json!({"taskIds": [task]})).await;
        assert_eq!(closed.status().await.1, "working");
        drop(closed);
        let (mut stream, _) = Stream::open(client, "2", json!({"taskIds": [task]})).await;
        assert_eq!(stream.status().await.1, "working");
        open.push((client, task, stream));
    }
    latch.open();
    for (client, task, mut stream) in open {
        let mut told = stream.task().await;
        assert_eq!(told["result"]["content"][0]["text"], "slow end", "{told}");
        let mut read = client.task(&task).await.result().clone();
        for (object, beside) in [(&mut told, &["_meta"][..]), (&mut read, &["resultType", "ttl", "pollInterval"])] {
            beside.iter().for_each(|name| drop(object.as_object_mut().unwrap().remove(*name)));
        }
        assert_eq!(told, read, "it is what tasks/get says");
        // One that has ended is told of at once, too.
        let (mut late, _) = Stream::open(client, "3", json!({"taskIds": [task]})).await;
        assert_eq!(late.status().await, (task, "completed".into()));
    }
    assert!(upstream.cancels().is_empty());
}

#[tokio::test]
async fn questions_are_pushed_and_failures_as_well() {
    let latch = Latch::new();
    let fails = script::accepted_then(&latch, |mut call| async move {
        call.error(-32042, "out of tokens", &json!({"left": 0}));
    });
    let asks = script::accepted_then(&latch, |mut call| async move {
        let schema = json!({"type": "object", "properties": {"go": {"type": "boolean"}}});
        let params = json!({"message": "go on?", "requestedSchema": schema});
        let answer = call.ask(&json!(0), "elicitation/create", &params).await;
        call.say(&answer["result"].to_string());
    });
    let upstream = slow(&latch).tool("curious", asks).tool("fails", fails).start().await;
    let (_gate, clients) = both(&upstream, "").await;
    let mut open = Vec::new();
    for client in &clients {
        let (asks, fails) =
            (client.call("curious", json!({})).await.task(), client.call("fails", json!({})).await.task());
        let (stream, _) = Stream::open(client, "1", json!({"taskIds": [asks, fails]})).await;
        open.push((client, asks, fails, stream));
    }
    latch.open();
    for (client, asks, fails, mut stream) in open {
        let (mut answered, mut ends) = (false, Vec::new());
        while ends.len() < 2 {
            let told = stream.task().await;
            match told["status"].as_str().unwrap() {
                "input_required" => {
                    let (key, request) = told["inputRequests"].as_object().unwrap().iter().next().unwrap();
                    assert_eq!(request["method"], "elicitation/create");
                    let answers = json!({key: {"action": "accept", "content": {"go": true}}});
                    client.update_task(&asks, answers).await.result();
                    answered = true;
                }
                "working" => {}
                _ => ends.push(told),
            }
        }
        assert!(answered);
        ends.sort_by_key(|told| told["status"].to_string());
        assert_eq!((&ends[0]["taskId"], &ends[0]["status"]), (&json!(asks), &json!("completed")));
        assert_eq!((&ends[1]["taskId"], &ends[1]["error"]["code"]), (&json!(fails), &json!(-32042)));
    }
}

#[tokio::test]
async fn progress_is_no_message_and_its_words_are_told_seldom() {
    let latch = Latch::new();
    let upstream = Upstream::builder()
        .tool("busy", {
            let latch = latch.clone();
            script(move |mut call| {
                let latch = latch.clone();
                async move {
                    call.open();
                    for n in 0..60 {
                        call.progress(f64::from(n), 60.0, "step");
                        tokio::time::sleep(ms(5)).await;
                    }
                    latch.passed().await;
                    call.say("done");
                }
            })
        })
        .start()
        .await;
    let (_gate, clients) = both(&upstream, "").await;
    let mut open = Vec::new();
    for client in &clients {
        let params = json!({"name": "busy", "arguments": {}, "_meta": {"progressToken": "p"}});
        let task = client.request("tools/call", params).await.task();
        open.push(Stream::open(client, "1", json!({"taskIds": [task]})).await.0);
    }
    tokio::time::sleep(ms(400)).await;
    latch.open();
    for mut stream in open {
        let mut working = 0;
        while stream.task().await["status"] == "working" {
            working += 1;
        }
        assert!(working <= 3, "{working} messages for words of progress in half a second");
    }
}

#[tokio::test]
async fn only_who_declared_tasks_listens_to_them() {
    let upstream = slow(&Latch::new()).start().await;
    let (gate, _) = both(&upstream, "").await;
    let plain = gate.client().open().await;
    let answer = plain.request("subscriptions/listen", json!({"notifications": {"taskIds": []}})).await;
    assert_eq!((answer.status, answer.code()), (200, -32602));
    assert!(answer.error()["message"].as_str().unwrap().contains("io.modelcontextprotocol/tasks"), "{}", answer.raw);
    let stateless = gate.client().stateless(json!({}));
    let answer = stateless.request("subscriptions/listen", json!({"notifications": {"taskIds": []}})).await;
    assert_eq!((answer.status, answer.code()), (400, -32021));
    let needed = &answer.error()["data"]["requiredCapabilities"]["extensions"];
    assert!(needed.get("io.modelcontextprotocol/tasks").is_some(), "{}", answer.raw);
    // Declared in the request alone.
    let per_request = gate.client().extension_per_request().open().await;
    let (_, honoured) = Stream::open(&per_request, "1", json!({"taskIds": []})).await;
    assert_eq!(honoured, json!({"taskIds": []}));
}

#[tokio::test]
async fn what_cannot_be_listened_to_is_refused() {
    let upstream = slow(&Latch::new()).start().await;
    let (gate, clients) = both(&upstream, "").await;
    let many = vec!["x"; 1_001];
    for client in &clients {
        for params in [
            json!({}),
            json!({"notifications": null}),
            json!({"notifications": []}),
            json!({"notifications": {"taskIds": "x"}}),
            json!({"notifications": {"taskIds": [1]}}),
            json!({"notifications": {"taskIds": many}}),
        ] {
            let answer = client.request("subscriptions/listen", params.clone()).await;
            assert_eq!((answer.status, answer.code()), (200, -32602), "{params}");
        }
        let (_, honoured) = Stream::open(client, "2", json!({"taskIds": many[1..]})).await;
        assert_eq!(honoured, json!({"taskIds": []}));
    }
    for client in [
        gate.client().accept("application/json").extension().open().await,
        gate.client().accept("application/json").stateless_with_tasks(json!({})),
    ] {
        let answer = client.request("subscriptions/listen", json!({"notifications": {"taskIds": []}})).await;
        assert_eq!((answer.status, answer.code()), (406, -32600));
    }
    let mismatch = text_request("1", "subscriptions/listen", &json!({"notifications": {"taskIds": []}}));
    let answer = gate.client().stateless_with_tasks(json!({})).ask(mismatch).await;
    assert_eq!((answer.status, answer.code()), (400, -32602), "a stateless request says who asks");
    assert!(upstream.of("subscriptions/listen").is_empty());
}

#[tokio::test]
async fn it_ends_with_a_result_when_the_process_goes_down() {
    let upstream = slow(&Latch::new()).start().await;
    let (gate, clients) = both(&upstream, "[server]\ndrain_timeout = \"50ms\"").await;
    let mut open = Vec::new();
    for client in &clients {
        let task = client.call("slow", json!({})).await.task();
        let (mut stream, _) = Stream::open(client, "\"s\"", json!({"taskIds": [task]})).await;
        assert_eq!(stream.status().await.1, "working");
        open.push(stream);
    }
    let leaving = gate.leave();
    let ends = async {
        for mut stream in open {
            let told = stream.task().await;
            assert_eq!(told["error"]["data"]["reason"], "outcome_unknown", "{told}");
            stream.end().await;
        }
    };
    tokio::join!(leaving, ends);
}

#[tokio::test]
async fn it_ends_with_its_session() {
    let latch = Latch::new();
    let upstream = slow(&latch).start().await;
    let (_gate, [client, _]) = both(&upstream, "").await;
    let (stream, _) = Stream::open(&client, "1.0", json!({"taskIds": []})).await;
    client.delete().await;
    stream.end().await;
}

#[tokio::test]
async fn two_streams_of_one_client_are_told_apart() {
    let latch = Latch::new();
    let upstream = slow(&latch).start().await;
    let (_gate, clients) = both(&upstream, "").await;
    for client in &clients {
        let task = client.call("forever", json!({})).await.task();
        let (mut one, _) = Stream::open(client, "1", json!({"taskIds": [task]})).await;
        let (mut two, _) = Stream::open(client, "\"1\"", json!({"taskIds": [task]})).await;
        client.cancel_task(&task).await.result();
        for stream in [&mut one, &mut two] {
            while stream.status().await.1 != "cancelled" {}
        }
        // Withdrawing the request says nothing and ends nothing.
        assert_eq!(client.cancelled(&json!(1)).await.status, 202);
        assert!(one.events.next().await.unwrap().comment.is_some());
    }
}
