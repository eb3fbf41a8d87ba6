//! Every end of a call, in every dialect, by every operation: one table, and a story that walks it.
//!
//! The table's type has a place for each cell, so that none can be left out.

use std::collections::HashSet;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::client::{Answer, Client};
use crate::support::upstream::script;
use crate::support::{Dialect, Gate, Latch, Upstream, ms};

const RELATED: &str = "io.modelcontextprotocol/related-task";
const RESULT: &str = r#"{"content":[{"type":"text","text":"42"}],"structuredContent":{"n":9007199254740993},"_meta":{"x/y":1.0},"isError":false}"#;
const TOOL_ERROR: &str = r#"{"content":[{"type":"text","text":"no such mesh"}],"structuredContent":{"n":9007199254740993},"_meta":{"x/y":1.0},"isError":true}"#;

/// How the upstream's call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Outcome {
    Result,
    ToolError,
    RpcError,
    Cancelled,
    Lost,
    Expired,
}

impl Outcome {
    /// How the tool has to end for it.
    fn how(self) -> &'static str {
        match self {
            Self::Result | Self::Cancelled | Self::Expired => "result",
            Self::ToolError => "tool",
            Self::RpcError => "protocol",
            Self::Lost => "lost",
        }
    }
}

/// What is expected of one operation.
#[derive(Clone, Copy, Debug)]
enum Cell {
    /// A task of the extension: its status, and what it carries.
    Ext(&'static str, Carried),
    /// A task of 2025-11-25 and nothing else: its status, and what its message says.
    Core(&'static str, Option<&'static str>),
    /// A tool result of this text, with the task's id among its metadata.
    Returned(&'static str),
    /// A JSON-RPC error: its code, and what its message says.
    Refused(i64, &'static str),
    /// The upstream's own JSON-RPC error, data and all.
    TheirError,
    /// `{"resultType":"complete"}`.
    Acknowledged,
    /// A job's status, and what comes with it.
    Job(&'static str, Carried),
    /// An unknown job.
    NotFound,
    /// A row of a list with this status.
    Row(&'static str),
    /// No row.
    Absent,
}
use Cell::{Absent, Acknowledged, Core, Ext, Job, NotFound, Refused, Returned, Row, TheirError};

/// What comes with a status.
#[derive(Clone, Copy, Debug)]
enum Carried {
    Nothing,
    /// The upstream's result of this text.
    Own(&'static str),
    /// The upstream's JSON-RPC error.
    Error,
    /// That nobody knows what became of it.
    Unknown,
    /// That it had ended already.
    Late,
}
use Carried::{Error, Late, Nothing, Own, Unknown};

const EXPIRED: Cell = Refused(-32602, "Task has expired");
const ENDED: Cell = Refused(-32602, "has ended");

/// For each outcome: read, wait, cancel once it has ended, list.
type Rows = [(Outcome, [Cell; 4]); 6];

const TABLE: [(Dialect, Rows); 3] = [
    (
        Dialect::Ext,
        [
            (
                Outcome::Result,
                [Ext("completed", Own(RESULT)), Ext("completed", Own(RESULT)), Acknowledged, Row("completed")],
            ),
            (
                Outcome::ToolError,
                [Ext("completed", Own(TOOL_ERROR)), Ext("completed", Own(TOOL_ERROR)), Acknowledged, Row("failed")],
            ),
            (Outcome::RpcError, [Ext("failed", Error), Ext("failed", Error), Acknowledged, Row("failed")]),
            (
                Outcome::Cancelled,
                [Ext("cancelled", Nothing), Ext("cancelled", Nothing), Acknowledged, Row("cancelled")],
            ),
            (Outcome::Lost, [Ext("failed", Unknown), Ext("failed", Unknown), Acknowledged, Row("failed")]),
            (Outcome::Expired, [EXPIRED, EXPIRED, EXPIRED, Absent]),
        ],
    ),
    (
        Dialect::Core,
        [
            (Outcome::Result, [Core("completed", None), Returned(RESULT), ENDED, Row("completed")]),
            (Outcome::ToolError, [Core("failed", Some("no such mesh")), Returned(TOOL_ERROR), ENDED, Row("failed")]),
            (Outcome::RpcError, [Core("failed", Some("out of tokens")), TheirError, ENDED, Row("failed")]),
            (Outcome::Cancelled, [Core("cancelled", None), Refused(-32603, "cancelled"), ENDED, Row("cancelled")]),
            (
                Outcome::Lost,
                [Core("failed", Some("outcome unknown")), Refused(-32603, "outcome unknown"), ENDED, Row("failed")],
            ),
            (Outcome::Expired, [EXPIRED, EXPIRED, EXPIRED, Absent]),
        ],
    ),
    (
        Dialect::Job,
        [
            (Outcome::Result, [Job("done", Own(RESULT)), Job("done", Own(RESULT)), Job("done", Late), Row("done")]),
            (
                Outcome::ToolError,
                [Job("error", Own(TOOL_ERROR)), Job("error", Own(TOOL_ERROR)), Job("error", Late), Row("error")],
            ),
            (Outcome::RpcError, [Job("error", Error), Job("error", Error), Job("error", Late), Row("error")]),
            (
                Outcome::Cancelled,
                [Job("cancelled", Nothing), Job("cancelled", Nothing), Job("cancelled", Nothing), Row("cancelled")],
            ),
            (Outcome::Lost, [Job("error", Unknown), Job("error", Unknown), Job("error", Late), Row("error")]),
            (Outcome::Expired, [NotFound, NotFound, NotFound, Absent]),
        ],
    ),
];

/// An upstream whose tool ends as its argument says, when the latch is opened.
async fn stage() -> (Upstream, Latch) {
    let latch = Latch::new();
    let ending = script::accepted_then(&latch, |call| script::ends(call, RESULT, TOOL_ERROR));
    (Upstream::builder().tool("ending", ending).start().await, latch)
}

#[tokio::test]
async fn b53_every_cell_of_the_table() {
    let named: HashSet<_> =
        TABLE.iter().flat_map(|(dialect, rows)| rows.iter().map(move |(outcome, _)| (*dialect, *outcome))).collect();
    assert_eq!(named.len(), 18, "each outcome once in each dialect: {named:?}");
    let rows = TABLE.iter().flat_map(|(dialect, rows)| rows.iter().map(|row| walk(*dialect, *row)));
    join_all(rows).await;
}

async fn walk(dialect: Dialect, (outcome, [read, wait, cancel, list]): (Outcome, [Cell; 4])) {
    let (upstream, latch) = stage().await;
    let ttl = if outcome == Outcome::Expired { "1s" } else { "1h" };
    let gate = Gate::start(&upstream, &format!("[tasks]\nowner = \"session\"\nttl = \"{ttl}\"")).await;
    let client = dialect.client(&gate, json!({})).open().await;
    let id = dialect.start(&client, "ending", json!({"how": outcome.how()})).await;
    let check = |operation: &str, cell: Cell, answer: &Answer| {
        Checked { what: format!("{dialect:?}, {outcome:?}, {operation}: {}", answer.raw), answer, id: &id }.is(cell);
    };
    match outcome {
        Outcome::Expired => {
            latch.open();
            dialect.wait(&client, &id).await;
            sleep(ms(1_020)).await;
            check("wait", wait, &wait_once(dialect, &client, &id).await);
        }
        _ => {
            let ending = async {
                sleep(ms(40)).await; // so that the wait is under way
                match outcome {
                    Outcome::Cancelled => drop(dialect.cancel(&client, &id).await),
                    _ => latch.open(),
                }
            };
            let (waited, ()) = tokio::join!(dialect.wait(&client, &id), ending);
            check("wait", wait, &waited);
            check("wait again", wait, &wait_once(dialect, &client, &id).await);
        }
    }
    check("read", read, &dialect.read(&client, &id).await);
    check("cancel", cancel, &dialect.cancel(&client, &id).await);
    check("read after cancel", read, &dialect.read(&client, &id).await);
    let listed = match dialect {
        Dialect::Ext | Dialect::Core => client.list_tasks(None).await,
        Dialect::Job => client.call("list_jobs", json!({})).await,
    };
    check("list", list, &listed);
}

/// The same wait for a task that has ended.
async fn wait_once(dialect: Dialect, client: &Client, id: &str) -> Answer {
    match dialect {
        Dialect::Ext => client.task(id).await,
        Dialect::Core => client.task_result(id).await,
        Dialect::Job => client.job(id, 5.0).await,
    }
}

struct Checked<'a> {
    what: String,
    answer: &'a Answer,
    id: &'a str,
}

impl Checked<'_> {
    fn is(&self, cell: Cell) {
        assert_eq!(self.answer.status, 200, "{}", self.what);
        match cell {
            Ext(status, carried) => self.is_ext(status, carried),
            Core(status, message) => self.is_core(status, message),
            Returned(text) => self.is_returned(text),
            Refused(code, message) => self.is_refused(code, message),
            TheirError => self.is_their_error(self.answer.error()),
            Acknowledged => assert_eq!(self.answer.result(), &json!({"resultType": "complete"}), "{}", self.what),
            Job(status, carried) => self.is_job(status, carried),
            NotFound => {
                assert_eq!(self.answer.note()["status"], "not_found", "{}", self.what);
                assert_eq!(self.answer.result()["isError"], true, "{}", self.what);
                assert!(self.answer.result().get("structuredContent").is_none(), "{}", self.what);
            }
            Row(status) => {
                let rows = self.rows();
                assert_eq!((rows.len(), &rows[0]["status"]), (1, &json!(status)), "{}", self.what);
                let id = rows[0].get("taskId").or(rows[0].get("job_id"));
                assert_eq!(id, Some(&json!(self.id)), "{}", self.what);
            }
            Absent => assert!(self.rows().is_empty(), "{}", self.what),
        }
    }

    fn rows(&self) -> Vec<Value> {
        let result = self.answer.result();
        let rows = match result.get("tasks") {
            Some(tasks) => tasks.clone(),
            None => self.answer.note()["jobs"].clone(),
        };
        rows.as_array().unwrap_or_else(|| panic!("no list: {}", self.what)).clone()
    }

    /// A task whose members are these beside those that every task has.
    fn is_task(&self, times: [&str; 4], status: &str, more: &[&str]) {
        let task = self.answer.result();
        assert_eq!((&task["taskId"], &task["status"]), (&json!(self.id), &json!(status)), "{}", self.what);
        let always = ["taskId", "status", "createdAt", "lastUpdatedAt"];
        for key in task.as_object().unwrap().keys().map(String::as_str) {
            assert!(always.contains(&key) || times.contains(&key) || more.contains(&key), "{key} in {}", self.what);
        }
        for key in always.iter().chain(more) {
            assert!(task.get(*key).is_some(), "no {key}: {}", self.what);
        }
    }

    fn is_ext(&self, status: &str, carried: Carried) {
        let task = self.answer.result();
        let both = ["ttlMs", "pollIntervalMs", "ttl", "pollInterval"];
        assert!(both.iter().all(|key| task[*key].is_u64()), "both spellings: {}", self.what);
        let more: &[&str] = match carried {
            Nothing => &["resultType"],
            Own(_) => &["resultType", "result"],
            Error | Unknown => &["resultType", "statusMessage", "error"],
            Late => panic!("no such cell"),
        };
        self.is_task(both, status, more);
        assert_eq!(task["resultType"], "complete", "{}", self.what);
        assert!(!self.answer.raw.contains(RELATED), "{}", self.what);
        match carried {
            Own(text) => assert!(self.answer.raw.contains(&format!("\"result\":{text}")), "{}", self.what),
            Error => self.is_their_error(&task["error"]),
            Unknown => assert_eq!(task["error"]["data"]["reason"], "outcome_unknown", "{}", self.what),
            Nothing | Late => {}
        }
    }

    fn is_core(&self, status: &str, message: Option<&str>) {
        let own = ["ttl", "pollInterval", "", ""];
        let more: &[&str] = if message.is_some() { &["statusMessage"] } else { &[] };
        self.is_task(own, status, more);
        let told = self.answer.result()["statusMessage"].as_str().unwrap_or_default();
        assert!(told.contains(message.unwrap_or_default()), "{}", self.what);
    }

    fn is_returned(&self, text: &str) {
        let mut result = self.answer.result().clone();
        let related = result["_meta"].as_object_mut().and_then(|meta| meta.remove(RELATED));
        assert_eq!(related, Some(json!({"taskId": self.id})), "{}", self.what);
        assert_eq!(result, serde_json::from_str::<Value>(text).unwrap(), "{}", self.what);
        assert!(self.answer.raw.contains(r#"{"n":9007199254740993}"#), "{}", self.what);
        assert!(self.answer.raw.contains(r#""x/y":1.0"#), "{}", self.what);
    }

    fn is_refused(&self, code: i64, message: &str) {
        assert_eq!(self.answer.code(), code, "{}", self.what);
        let told = self.answer.error()["message"].as_str().unwrap_or_default();
        assert!(told.contains(message), "{}", self.what);
        if message == "outcome unknown" {
            assert_eq!(self.answer.reason(), "outcome_unknown", "{}", self.what);
        }
    }

    fn is_their_error(&self, error: &Value) {
        let theirs = json!({"code": -32042, "message": "out of tokens", "data": {"left": 0}});
        assert_eq!(error, &theirs, "{}", self.what);
    }

    fn is_job(&self, status: &str, carried: Carried) {
        let (note, result) = (self.answer.note(), self.answer.result());
        assert_eq!((&note["status"], &note["job_id"]), (&json!(status), &json!(self.id)), "{}", self.what);
        let is_error = match carried {
            Own(text) => {
                let mut result = result.clone();
                result["content"].as_array_mut().unwrap().remove(0);
                assert_eq!(result, serde_json::from_str::<Value>(text).unwrap(), "{}", self.what);
                assert!(self.answer.raw.contains(r#"{"n":9007199254740993}"#), "{}", self.what);
                return;
            }
            Error => {
                self.is_their_error(&note["error"]);
                true
            }
            Unknown => {
                assert!(note["message"].as_str().unwrap().contains("outcome unknown"), "{}", self.what);
                true
            }
            Late => {
                assert!(note["message"].as_str().unwrap().contains("ended already"), "{}", self.what);
                false
            }
            Nothing => false,
        };
        assert_eq!(result["isError"], is_error, "{}", self.what);
        assert_eq!(result.get("structuredContent").is_none(), is_error, "text only: {}", self.what);
        assert_eq!(result["content"].as_array().unwrap().len(), 1, "{}", self.what);
    }
}

#[tokio::test]
async fn b05_nobody_lists_where_callers_cannot_be_told_apart() {
    for dialect in Dialect::ALL {
        let (upstream, _latch) = stage().await;
        let gate = Gate::start(&upstream, "").await;
        let mut client = dialect.client(&gate, json!({})).bearer("shared");
        let hello = client.hello().await;
        let tasks = &hello.result()["capabilities"]["tasks"];
        assert_eq!(tasks, &json!({"cancel": {}, "requests": {"tools": {"call": {}}}}), "{dialect:?}");
        dialect.start(&client, "ending", json!({"how": "result"})).await;
        assert_eq!(client.list_tasks(None).await.code(), -32601, "{dialect:?}");
        assert!(!client.tool_names().await.contains(&"list_jobs".to_owned()), "{dialect:?}");
        assert_eq!(client.call("list_jobs", json!({})).await.error()["message"], "Unknown tool: list_jobs");
        let gate = Gate::start(&upstream, "[tasks]\nowner = \"session\"").await;
        let hello = dialect.client(&gate, json!({})).hello().await;
        assert_eq!(hello.result()["capabilities"]["tasks"]["list"], json!({}), "{dialect:?}");
    }
}
