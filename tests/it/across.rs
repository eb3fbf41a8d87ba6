//! One record, read in every dialect by the same owner, whichever dialect it was made in.
//!
//! A model starts a job, an editor shows it as a task: both must see the same end.

use serde_json::{Value, json};

use crate::support::client::{Answer, Client};
use crate::support::dialect::{asked, reaches, said};
use crate::support::upstream::script;
use crate::support::{Dialect, Gate, Latch, Upstream, ms, within};

const RELATED: &str = "io.modelcontextprotocol/related-task";
const DONE: &str = r#"{"content":[{"type":"text","text":"42"}],"structuredContent":{"n":9007199254740993}}"#;
const TOOL_ERROR: &str = r#"{"content":[{"type":"text","text":"no such mesh"}],"isError":true,"_meta":{"x/y":1}}"#;

/// An upstream whose tool ends as its argument says, when the latch is opened.
async fn stage() -> (Upstream, Latch, Gate) {
    let latch = Latch::new();
    let ending = script::accepted_then(&latch, |call| script::ends(call, DONE, TOOL_ERROR));
    let upstream = Upstream::builder().tool("ending", ending).start().await;
    let gate = Gate::start(&upstream, "").await;
    (upstream, latch, gate)
}

/// Sessions of one owner, each of another kind.
struct Readers {
    plain: Client,
    extension: Client,
    old: Client,
    old_extension: Client,
}

async fn readers(gate: &Gate) -> Readers {
    let client = || gate.client().bearer("U");
    Readers {
        plain: client().open().await,
        extension: client().extension().open().await,
        old: client().version("2025-06-18").open().await,
        old_extension: client().version("2025-06-18").extension().open().await,
    }
}

/// Whether a record of this dialect is told as a task of 2025-11-25 to a session of this revision.
fn is_core(made: Dialect, is_new: bool) -> bool {
    match made {
        Dialect::Core => true,
        Dialect::Ext => false,
        Dialect::Job => is_new,
    }
}

/// A task as `tasks/get` told it, against the generation and the spelling it has to be in.
fn check(answer: &Answer, made: Dialect, is_new: bool, declares: bool) {
    let (task, what) = (answer.result(), format!("{made:?}, new {is_new}, declares {declares}: {}", answer.raw));
    let core = is_core(made, is_new);
    assert_eq!(task.get("resultType").is_none(), core, "{what}");
    for (key, always) in [("ttl", core), ("pollInterval", core), ("ttlMs", !core), ("pollIntervalMs", !core)] {
        assert_eq!(task.get(key).is_some_and(Value::is_u64), always || declares, "{key}: {what}");
    }
    if declares {
        assert_eq!((&task["ttl"], &task["pollInterval"]), (&task["ttlMs"], &task["pollIntervalMs"]), "{what}");
    }
    assert!(!answer.raw.contains(RELATED), "{what}");
}

#[tokio::test]
async fn b53_every_record_is_read_in_every_dialect() {
    for made in Dialect::ALL {
        for how in ["result", "tool", "protocol"] {
            let (_upstream, latch, gate) = stage().await;
            let maker = made.client(&gate, json!({})).bearer("U").open().await;
            let id = made.start(&maker, "ending", json!({"how": how})).await;
            let readers = readers(&gate).await;
            let kinds = [
                (&readers.plain, true, false),
                (&readers.extension, true, true),
                (&readers.old, false, false),
                (&readers.old_extension, false, true),
            ];
            for (reader, is_new, declares) in kinds {
                let working = reader.task(&id).await;
                assert_eq!(working.state(), "working", "{made:?}");
                check(&working, made, is_new, declares);
                assert_eq!(reader.job(&id, 0.0).await.state(), "running", "{made:?}");
            }
            latch.open();
            made.wait(&maker, &id).await;
            for (reader, is_new, declares) in kinds {
                let end = reader.task(&id).await;
                check(&end, made, is_new, declares);
                check_end(&end, how, is_core(made, is_new));
                check_job(&reader.job(&id, 5.0).await, how);
                let result = reader.task_result(&id).await;
                if is_new {
                    check_result(&result, how, &id);
                } else {
                    assert_eq!(result.code(), -32601, "{made:?}: {}", result.raw);
                }
            }
        }
    }
}

fn check_end(answer: &Answer, how: &str, core: bool) {
    let (task, status) = (answer.result(), answer.state());
    match (how, core) {
        ("result", true) => assert!(status == "completed" && task.get("result").is_none(), "{}", answer.raw),
        ("result", false) => {
            assert_eq!(status, "completed");
            assert!(answer.raw.contains(&format!("\"result\":{DONE}")), "{}", answer.raw);
        }
        ("tool", true) => {
            assert_eq!((status.as_str(), &task["statusMessage"]), ("failed", &json!("no such mesh")), "{}", answer.raw);
            assert!(task.get("result").is_none(), "{}", answer.raw);
        }
        ("tool", false) => {
            assert_eq!(status, "completed");
            assert!(answer.raw.contains(&format!("\"result\":{TOOL_ERROR}")), "{}", answer.raw);
        }
        (_, core) => {
            assert_eq!((status.as_str(), &task["statusMessage"]), ("failed", &json!("out of tokens")));
            assert_eq!(task.get("error").is_none(), core, "{}", answer.raw);
            assert!(core || task["error"]["data"] == json!({"left": 0}), "{}", answer.raw);
        }
    }
}

fn check_job(answer: &Answer, how: &str) {
    match how {
        "result" => {
            assert_eq!((answer.state().as_str(), answer.block(1)), ("done", "42"));
            assert!(answer.raw.contains(r#""structuredContent":{"n":9007199254740993}"#), "{}", answer.raw);
        }
        "tool" => {
            assert_eq!((answer.state().as_str(), answer.block(1)), ("error", "no such mesh"));
            assert_eq!((&answer.result()["isError"], &answer.result()["_meta"]), (&json!(true), &json!({"x/y": 1})));
        }
        _ => assert_eq!(answer.note()["error"]["code"], -32042, "{}", answer.raw),
    }
}

fn check_result(answer: &Answer, how: &str, id: &str) {
    if how == "protocol" {
        let theirs = json!({"code": -32042, "message": "out of tokens", "data": {"left": 0}});
        assert_eq!(answer.error(), &theirs);
        return;
    }
    assert_eq!(answer.result()["_meta"][RELATED], json!({"taskId": id}), "{}", answer.raw);
    match how {
        "result" => assert!(answer.raw.contains(r#""structuredContent":{"n":9007199254740993}"#), "{}", answer.raw),
        _ => assert_eq!((&answer.result()["isError"], answer.text()), (&json!(true), "no such mesh")),
    }
}

#[tokio::test]
async fn a_task_is_waited_for_and_cancelled_in_any_dialect() {
    for made in Dialect::ALL {
        for by in Dialect::ALL {
            let (upstream, latch, gate) = stage().await;
            let maker = made.client(&gate, json!({})).bearer("U").open().await;
            let other = by.client(&gate, json!({})).bearer("U").open().await;
            let id = made.start(&maker, "ending", json!({"how": "result"})).await;
            let gone = made.start(&maker, "ending", json!({"how": "result"})).await;
            let cancelled = by.cancel(&other, &gone).await;
            match (by, is_core(made, true)) {
                (Dialect::Job, _) => assert_eq!(cancelled.note()["status"], "cancelled", "{made:?}"),
                (_, true) => assert_eq!(cancelled.state(), "cancelled", "{made:?}"),
                (_, false) => assert_eq!(cancelled.result(), &json!({"resultType": "complete"}), "{made:?}"),
            }
            within(ms(1_000), "the upstream is told", || upstream.cancels().len() == 1).await;
            assert_eq!(upstream.cancels()[0].session(), maker.session.as_deref(), "on the session of the call");
            assert_eq!(made.read(&maker, &gone).await.state(), "cancelled");
            let waiting = async {
                match by {
                    Dialect::Core => other.task_result(&id).await.text().to_owned(),
                    Dialect::Job => other.job_end(&id).await.block(1).to_owned(),
                    // Whatever generation it is told in, `tasks/result` has the result.
                    Dialect::Ext => {
                        other.task_end(&id).await;
                        other.task_result(&id).await.text().to_owned()
                    }
                }
            };
            let opening = async {
                tokio::time::sleep(ms(20)).await;
                latch.open();
            };
            let (text, ()) = tokio::join!(waiting, opening);
            assert_eq!(text, "42", "{made:?} by {by:?}");
        }
    }
}

#[tokio::test]
async fn a_question_is_answered_in_any_dialect() {
    for made in Dialect::ALL {
        for by in Dialect::ALL {
            let door = Latch::new();
            let upstream = Upstream::builder().tool("curious", script::curious(&door)).start().await;
            let gate = Gate::start(&upstream, "").await;
            let able = || json!({"elicitation": {}});
            let maker = made.client(&gate, able()).bearer("U").open().await;
            let other = by.client(&gate, able()).bearer("U").open().await;
            let id = made.start(&maker, "curious", json!({})).await;
            door.open();
            reaches(&other, &id, "input_required").await;
            let yes = json!({"action": "accept", "content": {"made": format!("{made:?}"), "by": format!("{by:?}")}});
            if by == Dialect::Ext && is_core(made, true) {
                // Told as a task of 2025-11-25: asked where that revision asks.
                let question = other.task_stream(&id).await.message().await.unwrap();
                other.answer(&question, yes.clone()).await;
            } else {
                by.answer_next(&other, &id, |_| yes.clone()).await;
            }
            assert_eq!(said(&made.text(&maker, &id).await), yes, "{made:?} by {by:?}");
            let heard = upstream.answers_to(&json!(0));
            assert_eq!((heard.len(), heard[0].session()), (1, maker.session.as_deref()), "{made:?} by {by:?}");
        }
    }
}

#[tokio::test]
async fn inputs_are_told_as_the_record_is_told() {
    for made in Dialect::ALL {
        let door = Latch::new();
        let upstream = Upstream::builder().tool("curious", script::curious(&door)).start().await;
        let gate = Gate::start(&upstream, "").await;
        let maker = made.client(&gate, json!({"elicitation": {}})).bearer("U").open().await;
        let id = made.start(&maker, "curious", json!({})).await;
        door.open();
        let readers = readers(&gate).await;
        reaches(&readers.plain, &id, "input_required").await;
        for (reader, is_new) in [(&readers.plain, true), (&readers.old_extension, false)] {
            let read = reader.task(&id).await;
            let told = read.result().get("inputRequests").is_some();
            assert_eq!(told, !is_core(made, is_new), "{made:?}: {}", read.raw);
        }
        if made == Dialect::Job {
            let (key, request) = asked(&readers.old_extension, &id).await.remove(0);
            assert_eq!(request["params"]["message"], "go on?");
            readers.old_extension.update_task(&id, json!({key: {"action": "cancel"}})).await.result();
            assert_eq!(maker.job_end(&id).await.block(1), r#"{"action":"cancel"}"#);
        }
    }
}
