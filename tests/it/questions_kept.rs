//! Questions and answers keep what they are: digits, types of ids, unknown fields, and their session's end.
//!
//! taskgate names each question anew towards clients, and touches nothing else of it.

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::dialect::reaches;
use crate::support::upstream::script;
use crate::support::{Dialect, Gate, Latch, Upstream, ms, within};

const RELATED: &str = "io.modelcontextprotocol/related-task";
const PARAMS: &str = r#"{"message":"a\u2028b","x":{"big":9007199254740993,"one":1.0,"wide":1e400},"_meta":{"y/z":-0}}"#;
const ANSWER: &str = r#"{"action":"accept","content":{"big":9007199254740993,"one":1.0,"wide":1e400},"x":null}"#;

/// Asks with ids of the same text and another type, when the latch opens.
fn curious(door: &Latch) -> script::Script {
    script::accepted_then(door, |mut call| async move {
        let (number, text) = (json!(7), json!("7"));
        let first = call.hear(&number);
        let second = call.hear(&text);
        for id in ["7", "\"7\""] {
            call.event(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"elicitation/create","params":{PARAMS}}}"#));
        }
        let (first, second) = (first.await.unwrap(), second.await.unwrap());
        call.say(&format!("{} {}", first["result"]["action"], second["result"]["action"]));
    })
}

/// The texts of both questions as the client got them, and their keys.
async fn questions(dialect: Dialect, client: &Client, id: &str) -> Vec<(String, String)> {
    if dialect == Dialect::Ext {
        loop {
            let read = reaches(client, id, "input_required").await;
            let requests = read.result()["inputRequests"].as_object().unwrap();
            if requests.len() == 2 {
                return requests.keys().map(|key| (read.raw.clone(), key.clone())).collect();
            }
        }
    }
    let mut stream = dialect.stream(client, id).await;
    let mut found = Vec::new();
    while found.len() < 2 {
        let event = stream.next().await.unwrap();
        if event.data.as_deref().is_some_and(|data| !data.is_empty()) {
            let key = event.json()["id"].as_str().unwrap().to_owned();
            found.push((event.data.unwrap(), key));
        }
    }
    found
}

#[tokio::test]
async fn b15_b83_questions_and_answers_keep_ids_and_digits() {
    for dialect in Dialect::ALL {
        let door = Latch::new();
        let upstream = Upstream::builder().tool("curious", curious(&door)).start().await;
        let gate = Gate::start(&upstream, "").await;
        let client = dialect.client(&gate, json!({"elicitation": {}})).open().await;
        let id = dialect.start(&client, "curious", json!({})).await;
        door.open();
        let asked = questions(dialect, &client, &id).await;
        let related = format!(r#""{RELATED}":{{"taskId":"{id}"}},"y/z":-0"#);
        let expected = match dialect {
            Dialect::Ext | Dialect::Job => PARAMS.to_owned(),
            Dialect::Core => PARAMS.replace(r#""y/z":-0"#, &related),
        };
        assert_ne!(asked[0].1, asked[1].1, "two questions");
        for (text, key) in &asked {
            assert!(text.contains(&format!(r#""params":{expected}"#)), "{dialect:?}: {text}");
            let answered = match dialect {
                Dialect::Ext => {
                    let params = format!(r#"{{"taskId":"{id}","inputResponses":{{"{key}":{ANSWER}}}}}"#);
                    client
                        .ask(format!(r#"{{"jsonrpc":"2.0","id":99,"method":"tasks/update","params":{params}}}"#))
                        .await
                }
                Dialect::Core | Dialect::Job => {
                    client.ask(format!(r#"{{"jsonrpc":"2.0","id":"{key}","result":{ANSWER}}}"#)).await
                }
            };
            assert!(answered.json.get("error").is_none() && answered.status < 300, "{}", answered.raw);
        }
        assert_eq!(dialect.text(&client, &id).await, r#""accept" "accept""#, "{dialect:?}");
        for question in [json!(7), json!("7")] {
            let heard = upstream.answers_to(&question);
            assert_eq!(heard.len(), 1, "{dialect:?}: {question}");
            assert!(heard[0].body.contains(&format!(r#""result":{ANSWER}"#)), "{dialect:?}: {}", heard[0].body);
            assert_eq!(heard[0].id(), question.to_string(), "{dialect:?}");
        }
    }
}

#[tokio::test]
async fn b02_the_end_of_a_session_leaves_no_upstream_waiting_for_an_answer() {
    let door = Latch::new();
    let upstream = Upstream::builder().tool("curious", curious(&door)).start().await;
    let gate = Gate::start(&upstream, "").await;
    for dialect in [Dialect::Ext, Dialect::Core] {
        let client = dialect.client(&gate, json!({"elicitation": {}})).open().await;
        let id = dialect.start(&client, "curious", json!({})).await;
        door.open();
        questions(dialect, &client, &id).await;
        let before = upstream.cancels().len();
        assert_eq!(client.delete().await.status, 200, "nobody could read it any more");
        let session = client.session.as_deref();
        let heard = |question: Value| {
            upstream.answers_to(&question).into_iter().filter(|heard| heard.session() == session).collect::<Vec<_>>()
        };
        let unblocked = || heard(json!(7)).len() == 1 && heard(json!("7")).len() == 1;
        within(ms(1_000), "both questions are declined", unblocked).await;
        assert_eq!(heard(json!(7))[0].json["result"]["action"], "decline", "{dialect:?}");
        within(ms(1_000), "the call is cancelled", || upstream.cancels().len() == before + 1).await;
    }
}
