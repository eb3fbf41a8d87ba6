//! What became of the tasks that an earlier demo left running: told before anything else, as it is.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::screen::Screen;
use crate::app::App;
use crate::task::{Failure, Status, Task};

/// How long their ends are waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Tells how each of them ends.
pub(super) async fn tell(screen: &mut Screen, app: &App, store: &str) {
    let left = app.taken_over().await;
    if left.is_empty() {
        return;
    }
    let count = if left.len() == 1 { "1 task".to_owned() } else { format!("{} tasks", left.len()) };
    screen.line(&format!("\nLeft running when the last process on {store} ended: {count}"));
    let until = Instant::now() + PATIENCE;
    for task in left {
        let how = match task.status.ended() {
            None => "taken up again, waiting for its end",
            Some(_) => "cannot be taken up",
        };
        screen.line(&format!("   {}  {}  {how}", task.id.short(), task.tool));
        let (task, result) = app.outcome(&task, until).await;
        screen.line(&format!("   {}  {}  {}", task.id.short(), task.tool, fate(&task, result.as_deref())));
    }
}

/// How a task stands, in one line.
fn fate(task: &Task, result: Option<&str>) -> String {
    match &task.status {
        Status::Working { .. } | Status::InputRequired { .. } => "still running".to_owned(),
        Status::Completed { .. } => {
            let result: Value = result.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
            format!("completed: {}", result["content"][0]["text"].as_str().unwrap_or("its result is kept"))
        }
        Status::Failed { failure: Failure::Lost { text, .. }, .. } => format!("failed: {text}"),
        Status::Failed { failure: Failure::Upstream(error), .. } => format!("failed: {}", error.message),
        Status::Cancelled { .. } => "cancelled".to_owned(),
    }
}
