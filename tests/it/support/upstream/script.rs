//! Scripts in one word, for the tools that most stories need.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::super::{Latch, ms};
use super::Call;

/// How a request is answered.
pub type Script = Arc<dyn Fn(Call) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// A script from an async closure.
pub fn script<F, A>(run: F) -> Script
where
    F: Fn(Call) -> A + Send + Sync + 'static,
    A: Future<Output = ()> + Send + 'static,
{
    Arc::new(move |call| Box::pin(run(call)))
}

/// Says `text` at once.
pub fn says(text: &'static str) -> Script {
    script(move |mut call| async move { call.say(text) })
}

/// Says `text` after a while.
pub fn after(wait: Duration, text: &'static str) -> Script {
    script(move |mut call| async move {
        tokio::time::sleep(wait).await;
        call.say(text);
    })
}

/// Goes on as `run` says when the test opens the latch; until then nothing is heard of it.
pub fn held_then<F, A>(latch: &Latch, run: F) -> Script
where
    F: Fn(Call) -> A + Send + Sync + 'static,
    A: Future<Output = ()> + Send + 'static,
{
    let (latch, run) = (latch.clone(), script(run));
    script(move |call| {
        let (latch, run) = (latch.clone(), run.clone());
        async move {
            latch.passed().await;
            run(call).await;
        }
    })
}

/// Accepts the call at once, and goes on as `run` says when the test opens the latch.
pub fn accepted_then<F, A>(latch: &Latch, run: F) -> Script
where
    F: Fn(Call) -> A + Send + Sync + 'static,
    A: Future<Output = ()> + Send + 'static,
{
    let rest = held_then(latch, run);
    script(move |mut call| {
        call.open();
        rest(call)
    })
}

/// Says `text` when the test opens the latch.
pub fn held(latch: &Latch, text: &'static str) -> Script {
    held_then(latch, move |mut call| async move { call.say(text) })
}

/// Accepts the call at once, and says `text` when the test opens the latch.
pub fn accepted(latch: &Latch, text: &'static str) -> Script {
    accepted_then(latch, move |mut call| async move { call.say(text) })
}

/// Says what its argument `text` says, when the test opens the latch.
pub fn echo_held(latch: &Latch) -> Script {
    let echo = echo();
    held_then(latch, move |call| echo(call))
}

/// Says what its argument `text` says.
pub fn echo() -> Script {
    script(|mut call| async move {
        let text = call.arg("text").as_str().unwrap_or_default().to_owned();
        call.say(&text);
    })
}

/// Accepts the call at once, asks "go on?" under the id 0 when the test opens the latch, and says the result that it
/// was answered with, as JSON.
pub fn curious(latch: &Latch) -> Script {
    accepted_then(latch, |mut call| async move {
        let answer = call.ask(&json!(0), "elicitation/create", &json!({"message": "go on?"})).await;
        call.say(&answer["result"].to_string());
    })
}

/// Ends a call as its argument `how` says: with a result, by an error of the tool or of the protocol, or lost.
pub async fn ends(mut call: Call, result: &'static str, failure: &'static str) {
    match call.arg("how").as_str() {
        None | Some("result") => call.result_text(result),
        Some("tool") => call.result_text(failure),
        Some("protocol") => call.error(-32042, "out of tokens", &json!({"left": 0})),
        Some("lost") => call.cut().await,
        Some(other) => panic!("no such end: {other}"),
    }
}

/// Says the credential that it was called with, after as many milliseconds as its argument `ms` says.
pub fn who() -> Script {
    script(|mut call| async move {
        tokio::time::sleep(ms(call.arg("ms").as_u64().unwrap())).await;
        let credential = call.request.header("authorization").unwrap_or("none").to_owned();
        call.say(&credential);
    })
}

/// Answers `ping` for every credential but those that end like this.
pub fn picky(refused: &'static str) -> Script {
    script(move |mut call| async move {
        if call.request.header("authorization").is_some_and(|credential| credential.ends_with(refused)) {
            call.raw(401, &[("www-authenticate", "Bearer")], "");
        } else {
            call.result(&json!({}));
        }
    })
}

/// Answers with this result, digit for digit.
pub fn answers(result: &'static str) -> Script {
    script(move |mut call| async move { call.result_text(result) })
}

/// Answers with any HTTP response.
pub fn responds(status: u16, headers: &'static [(&'static str, &'static str)], body: &'static [u8]) -> Script {
    script(move |mut call| async move { call.raw(status, headers, body) })
}

/// Works until it is cancelled by name or its exchange is closed.
pub fn until_cancelled() -> Script {
    script(|call| async move { call.cancelled().await })
}

/// Accepts the call with an event that has an id, and says what its argument `text` says when the test opens the
/// latch; who lost the stream finds the answer by [`resumed`].
pub fn resumable(latch: &Latch) -> Script {
    let latch = latch.clone();
    script(move |mut call| {
        let latch = latch.clone();
        async move {
            let text = call.arg("text").as_str().unwrap_or("done").to_owned();
            call.bytes(format!("id: {}|{text}\nretry: 10\ndata:\n\n", call.request.id()));
            let is_there = tokio::select! {
                () = latch.passed() => true,
                () = call.gone() => false,
            };
            if is_there {
                call.say(&text);
            }
        }
    })
}

/// Answers a GET for the rest of a stream of [`resumable`].
pub fn resumed(latch: &Latch) -> Script {
    let latch = latch.clone();
    script(move |mut call| {
        let latch = latch.clone();
        async move {
            let cursor = call.request.header("last-event-id").unwrap_or_default().to_owned();
            let Some((id, text)) = cursor.split_once('|') else { return call.raw(400, &[], "no such event") };
            call.open();
            latch.passed().await;
            call.say_to(id, text);
        }
    })
}

/// Works until its exchange is closed.
pub fn until_gone() -> Script {
    script(|mut call| async move { call.gone().await })
}
