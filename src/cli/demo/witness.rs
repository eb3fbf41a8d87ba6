//! What the solver saw, asked of it over HTTP: it may run in a process of its own.

use serde_json::Value;

use super::client::explain;
use super::solver::{End, Seen};

/// Asks one solver.
pub(super) struct Witness {
    http: reqwest::Client,
    url: String,
}

impl Witness {
    /// The solver whose endpoint is `url`.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub(super) fn new(url: &str) -> Result<Self, String> {
        let http = reqwest::Client::builder().no_proxy().build().map_err(|error| explain(&error))?;
        Ok(Self { http, url: format!("{}/seen", url.trim_end_matches('/')) })
    }

    /// Every call so far, oldest first.
    ///
    /// # Errors
    /// One sentence, when it does not say.
    pub(super) async fn seen(&self) -> Result<Vec<Seen>, String> {
        let wrong = |why: String| format!("{} is no demo solver, or does not answer: {why}", self.url);
        let answer = self.http.get(&self.url).send().await.map_err(|error| wrong(explain(&error)))?;
        let text = answer.text().await.map_err(|error| wrong(explain(&error)))?;
        let calls: Vec<Value> = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        Ok(calls.iter().map(read).collect())
    }
}

/// A call as the solver writes it down.
pub(super) fn written(call: &Seen) -> Value {
    let (end, result) = match &call.end {
        End::Running => ("running", Value::Null),
        End::Done(result) => ("done", result.clone()),
        End::Cancelled => ("cancelled", Value::Null),
    };
    serde_json::json!({"tool": call.tool, "end": end, "result": result})
}

fn read(call: &Value) -> Seen {
    let end = match call["end"].as_str() {
        Some("done") => End::Done(call["result"].clone()),
        Some("cancelled") => End::Cancelled,
        _ => End::Running,
    };
    Seen { tool: call["tool"].as_str().unwrap_or_default().to_owned(), end }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for end in [End::Running, End::Done(json!({"content": [], "isError": false})), End::Cancelled] {
            let seen = read(&written(&Seen { tool: "solve".into(), end: end.clone() }));
            assert_eq!((seen.tool.as_str(), seen.end), ("solve", end));
        }
    }
}
