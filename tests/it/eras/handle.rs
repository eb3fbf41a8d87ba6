//! The client's side of a cell: the handle, and what happens after it.

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::client::{RELATED, accept, their_error};
use super::table::{Act, Carried, Era};
use super::{Stage, server_info};
use crate::support::client::Answer;
use crate::support::dialect::{asked, last};
use crate::support::{Dialect, ms};

impl Stage {
    /// Calls, and returns the task's id once its handle is what this dialect wants.
    async fn handle(&self) -> String {
        let answer = self.call().await;
        let result = answer.result();
        let what = format!("{}: {}", self.what, answer.raw);
        let keys = |value: &Value| -> Vec<String> {
            let mut keys: Vec<_> = value.as_object().expect("an object").keys().cloned().collect();
            keys.retain(|key| key != "statusMessage");
            keys.sort();
            keys
        };
        let flat = ["createdAt", "lastUpdatedAt", "pollIntervalMs", "resultType", "status", "taskId", "ttlMs"];
        match (self.dialect(), self.caller.era()) {
            (Dialect::Ext, Era::Stateless) => {
                let mut own = keys(result);
                if self.is_bridged_down() {
                    assert_eq!(result["_meta"], server_info(), "{what}");
                    own.retain(|key| key != "_meta");
                }
                assert_eq!(own, flat, "{what}");
                answer.task()
            }
            (Dialect::Ext, Era::Handshake) => {
                let id = answer.task();
                assert_eq!(answer.note()["job_id"], *id, "{what}");
                let mut own = keys(result);
                assert!(own.contains(&"content".to_owned()), "{what}");
                own.retain(|key| flat.contains(&key.as_str()));
                assert_eq!(own, flat, "{what}");
                id
            }
            (Dialect::Core, _) => {
                let nested = ["createdAt", "lastUpdatedAt", "pollInterval", "status", "taskId", "ttl"];
                assert_eq!(keys(&result["task"]), nested, "{what}");
                assert!(result.get("resultType").is_none(), "{what}");
                answer.core_task()
            }
            (Dialect::Job, era) => {
                let id = answer.job();
                assert_eq!(answer.note(), result["structuredContent"], "{what}");
                assert_eq!(result["isError"], false, "{what}");
                assert!(answer.note()["message"].as_str().is_some_and(|text| text.contains(&*id)), "{what}");
                self.is_typed(result, era);
                id
            }
        }
    }

    /// Whether a result says what kind it is.
    fn is_typed(&self, result: &Value, era: Era) {
        let kind = (era == Era::Stateless).then(|| json!("complete"));
        assert_eq!(result.get("resultType"), kind.as_ref(), "{}: {result}", self.what);
    }

    pub(super) async fn ends_after_the_handle(&self, status: &str, carried: Carried) {
        let id = self.handle().await;
        if self.act == Act::Cancel {
            self.cancels(&id).await;
        }
        self.begins.open();
        self.has_ended(&id, status, carried).await;
    }

    async fn cancels(&self, id: &str) {
        let answer = self.dialect().cancel(&self.client, id).await;
        assert_eq!(answer.status, 200, "{}: {}", self.what, answer.raw);
        match self.dialect() {
            Dialect::Ext => assert_eq!(answer.result(), &json!({"resultType": "complete"}), "{}", self.what),
            Dialect::Core => {
                let told = (&answer.result()["taskId"], &answer.result()["status"]);
                assert_eq!(told, (&json!(id), &json!("cancelled")), "{}", self.what);
            }
            Dialect::Job => {
                assert_eq!(answer.state(), "cancelled", "{}: {}", self.what, answer.raw);
                self.is_typed(answer.result(), self.caller.era());
            }
        }
    }

    async fn has_ended(&self, id: &str, status: &str, carried: Carried) {
        let end = self.dialect().wait(&self.client, id).await;
        assert_eq!(end.status, 200, "{}: {}", self.what, end.raw);
        match self.dialect() {
            Dialect::Ext => self.is_ended_ext(&end, status, carried),
            Dialect::Core => {
                let task = self.client.task(id).await;
                assert_eq!(task.result()["status"], status, "{}: {}", self.what, task.raw);
                self.is_ended_core(&task, &end, carried);
            }
            Dialect::Job => self.is_ended_job(&end, status, carried),
        }
    }

    fn is_ended_ext(&self, end: &Answer, status: &str, carried: Carried) {
        let task = end.result();
        let what = format!("{}: {}", self.what, end.raw);
        assert_eq!((&task["status"], &task["resultType"]), (&json!(status), &json!("complete")), "{what}");
        assert!(!end.raw.contains(RELATED), "{what}");
        assert_eq!(task.get("result").is_some(), matches!(carried, Carried::Own), "{what}");
        assert_eq!(task.get("error").is_some(), matches!(carried, Carried::Error | Carried::Unknown), "{what}");
        match carried {
            Carried::Own => {
                assert_eq!(task["result"], self.result(), "{what}");
                self.has_every_digit(end);
            }
            Carried::Error => assert_eq!(task["error"], their_error(), "{what}"),
            Carried::Unknown => assert_eq!(task["error"]["data"]["reason"], "outcome_unknown", "{what}"),
            Carried::Nothing => {}
        }
        assert_eq!(task["statusMessage"].is_string(), task.get("error").is_some(), "{what}");
    }

    fn is_ended_core(&self, task: &Answer, end: &Answer, carried: Carried) {
        let message = task.result()["statusMessage"].as_str().unwrap_or_default();
        let what = format!("{}: {message}: {}", self.what, end.raw);
        match carried {
            Carried::Own => {
                let mut result = end.result().clone();
                let related = result["_meta"].as_object_mut().and_then(|meta| meta.remove(RELATED));
                assert_eq!(related, Some(json!({"taskId": task.result()["taskId"]})), "{what}");
                assert_eq!(result, self.result(), "{what}");
                self.has_every_digit(end);
                let told = if self.act == Act::ToolError { "no such mesh" } else { "" };
                assert!(message.contains(told), "{what}");
            }
            Carried::Error => {
                assert_eq!(end.error(), &their_error(), "{what}");
                assert!(message.contains("out of tokens"), "{what}");
            }
            Carried::Unknown => {
                self.is_unknown(end);
                assert!(message.contains("outcome unknown"), "{what}");
            }
            Carried::Nothing => {
                assert_eq!(end.code(), -32603, "{what}");
                assert!(end.error()["message"].as_str().is_some_and(|text| text.contains("cancelled")), "{what}");
            }
        }
    }

    fn is_ended_job(&self, end: &Answer, status: &str, carried: Carried) {
        let (note, mut result) = (end.note(), end.result().clone());
        let what = format!("{}: {}", self.what, end.raw);
        assert_eq!(note["status"], status, "{what}");
        self.is_typed(&result, self.caller.era());
        if matches!(carried, Carried::Own) {
            result["content"].as_array_mut().expect("blocks").remove(0);
            assert_eq!(result, self.result(), "{what}");
            return self.has_every_digit(end);
        }
        let is_error = !matches!(carried, Carried::Nothing);
        assert_eq!(result["isError"], is_error, "{what}");
        assert_eq!(result.get("structuredContent").is_none(), is_error, "text only: {what}");
        match carried {
            Carried::Error => assert_eq!(note["error"], their_error(), "{what}"),
            Carried::Unknown => assert!(note["message"].as_str().unwrap().contains("outcome unknown"), "{what}"),
            Carried::Own | Carried::Nothing => {}
        }
    }

    pub(super) async fn is_asked_in_the_task(&self) {
        let id = self.handle().await;
        self.begins.open();
        let open = asked(&self.client, &id).await;
        assert_eq!(open.len(), 1, "{}: {open:?}", self.what);
        let (key, asks) = &open[0];
        self.is_question(asks);
        let updated = self.client.update_task(&id, json!({key: accept()})).await;
        assert_eq!(updated.result(), &json!({"resultType": "complete"}), "{}", self.what);
        self.says_the_answer(Some(&self.dialect().text(&self.client, &id).await));
    }

    pub(super) async fn is_asked_where_it_waits(&self) {
        let id = self.handle().await;
        self.begins.open();
        let mut stream = self.dialect().stream(&self.client, &id).await;
        let asks = stream.message().await.expect("a question");
        self.is_question(&asks);
        let core = self.dialect() == Dialect::Core;
        let (state, related) = if core { ("input_required", json!({"taskId": id})) } else { ("running", Value::Null) };
        assert_eq!(asks["params"]["_meta"][RELATED], related, "{}: {asks}", self.what);
        assert_eq!(self.dialect().read(&self.client, &id).await.state(), state, "{}", self.what);
        self.client.answer(&asks, accept()).await;
        let end = last(&mut stream).await;
        let text = &end["result"]["content"][usize::from(!core)]["text"];
        self.says_the_answer(text.as_str());
    }

    pub(super) async fn is_asked_by_a_read(&self) {
        let id = self.handle().await;
        self.begins.open();
        let read = json!({"name": "get_job_result", "arguments": {"job_id": id, "wait_s": 9.0}});
        let asks = self.client.request("tools/call", read.clone()).await;
        let key = self.required(&asks);
        let end = self.client.retry("tools/call", read, &asks, json!({key: accept()})).await;
        assert_eq!(end.state(), "done", "{}: {}", self.what, end.raw);
        self.is_typed(end.result(), Era::Stateless);
        self.says_the_answer(Some(end.block(1)));
    }

    pub(super) async fn hears_its_token_where_it_waits(&self) {
        let id = self.handle().await;
        let mut stream = self.client.task_stream(&id).await;
        self.begins.open();
        self.is_progress(&stream.message().await.expect("progress"));
        self.has_status_text(&id).await;
        self.ends.open();
        last(&mut stream).await;
        self.has_ended(&id, "completed", Carried::Own).await;
    }

    pub(super) async fn hears_its_token_on_get(&self) {
        let mut stream = self.client.listen().await.events();
        let id = self.handle().await;
        self.begins.open();
        self.is_progress(&stream.message().await.expect("progress"));
        self.has_status_text(&id).await;
        self.ends_well(&id).await;
    }

    pub(super) async fn reads_the_text_of_the_status(&self) {
        let is_told = self.caller.era() == Era::Handshake;
        let stream = if is_told { Some(self.client.listen().await.events()) } else { None };
        let id = self.handle().await;
        self.begins.open();
        self.has_status_text(&id).await;
        self.ends_well(&id).await;
        if let Some(mut stream) = stream {
            let told = timeout(ms(50), stream.message()).await;
            assert!(told.is_err(), "{}: {told:?}", self.what);
        }
    }

    async fn ends_well(&self, id: &str) {
        self.ends.open();
        let status = if self.dialect() == Dialect::Job { "done" } else { "completed" };
        self.has_ended(id, status, Carried::Own).await;
    }

    /// Waits until the text of the status says how far it is.
    async fn has_status_text(&self, id: &str) {
        for _ in 0..500 {
            let answer = self.dialect().read(&self.client, id).await;
            let told = match self.dialect() {
                Dialect::Ext | Dialect::Core => answer.result()["statusMessage"].clone(),
                Dialect::Job => answer.note()["message"].clone(),
            };
            if told.as_str().is_some_and(|text| text.contains("half")) {
                assert_eq!(answer.before("notifications/progress").len(), 0, "{}", self.what);
                return;
            }
            sleep(ms(10)).await;
        }
        panic!("{}: the status does not say how far it is", self.what);
    }
}
