//! Reads the answer to one MCP request, whichever of the two forms the server chose.
//!
//! Streamable HTTP lets a server answer with one JSON body or with an SSE stream that carries notifications first.

use std::error::Error;
use std::io;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use http::Response;
use http::header::CONTENT_TYPE;
use http_body::Body;
use http_body_util::{BodyDataStream, BodyExt, Limited};
use serde_json::Value;
use sse_stream::SseByteStream;

/// Most that is read of one answer, in bytes.
const MAX_ANSWER: usize = 32 << 20;
/// Most that is shown of a body that is not an answer, in characters.
const EXCERPT: usize = 200;

/// The JSON-RPC response with this `id`, and the notifications that came before it on its stream.
///
/// # Errors
/// One sentence: the HTTP status, or what was wrong with the body.
pub(in crate::cli) async fn read<B>(response: Response<B>, id: u64) -> Result<(Value, Vec<Value>), String>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let status = response.status();
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
    let body = Limited::new(response.into_body(), MAX_ANSWER);
    if status.is_success() && kind.starts_with("text/event-stream") {
        return events(body, id).await;
    }
    let body = body.collect().await.map_err(|error| format!("the answer broke off: {error}"))?.to_bytes();
    if !status.is_success() {
        return Err(format!("HTTP {status}{}", excerpt(&body)));
    }
    let message: Value =
        serde_json::from_slice(&body).map_err(|_| format!("HTTP {status}, but no JSON{}", excerpt(&body)))?;
    if is_answer(&message, id) {
        Ok((message, Vec::new()))
    } else {
        Err(format!("a JSON body that does not answer request {id}{}", excerpt(&body)))
    }
}

async fn events<B>(body: Limited<B>, id: u64) -> Result<(Value, Vec<Value>), String>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut events = Box::pin(SseByteStream::new(BodyDataStream::new(body).map_err(io::Error::other)));
    let mut before = Vec::new();
    while let Some(event) = events.next().await {
        let event = event.map_err(|error| format!("the event stream broke off: {error}"))?;
        let Some(data) = event.data.filter(|data| !data.is_empty()) else { continue };
        let message: Value =
            serde_json::from_str(&data).map_err(|_| format!("an event without JSON{}", excerpt(data.as_bytes())))?;
        if is_answer(&message, id) {
            return Ok((message, before));
        }
        before.push(message);
    }
    Err("the event stream ended without an answer".to_owned())
}

fn is_answer(message: &Value, id: u64) -> bool {
    message["id"] == id && (message.get("result").is_some() || message.get("error").is_some())
}

/// The beginning of a body, safe to print.
fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text: String = text.trim().chars().take(EXCERPT).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.is_empty() { text } else { format!(": {text}") }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use serde_json::json;

    use super::*;

    async fn reading(kind: &str, status: u16, body: &'static str) -> Result<(Value, Vec<Value>), String> {
        let response = Response::builder().status(status).header(CONTENT_TYPE, kind).body(Full::from(body)).unwrap();
        read(response, 3).await
    }

    #[tokio::test]
    async fn reads_json_and_events() {
        let json = r#"{"jsonrpc":"2.0","id":3,"result":{}}"#;
        assert_eq!(reading("application/json", 200, json).await.unwrap().0["result"], json!({}));
        let events = ": hello\n\nid: 1\ndata:\n\ndata: {\"method\":\"note\"}\n\ndata: {\"id\":3,\"error\":{}}\n\n";
        let (answer, before) = reading("text/event-stream; charset=utf-8", 200, events).await.unwrap();
        assert_eq!((answer["error"].clone(), before.len()), (json!({}), 1));
    }

    #[tokio::test]
    async fn says_what_is_wrong() {
        let cases = [
            ("text/html", 502, "<h1>Bad\ngateway</h1>", "HTTP 502 Bad Gateway: <h1>Bad gateway</h1>"),
            ("application/json", 200, "oops", "no JSON: oops"),
            ("application/json", 200, r#"{"id":4,"result":{}}"#, "does not answer request 3"),
            ("text/event-stream", 200, "data: {\"id\":\"3\",\"result\":{}}\n\n", "ended without an answer"),
            ("text/event-stream", 200, "data: oops\n\n", "without JSON: oops"),
        ];
        for (kind, status, body, want) in cases {
            let error = reading(kind, status, body).await.unwrap_err();
            assert!(error.contains(want), "{error}");
        }
    }
}
