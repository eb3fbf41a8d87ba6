//! What the solver can do: tools that sleep, report progress, fail, and return structured output.
//!
//! Every result carries the number of its run, so that no two are alike and a mix-up shows.

use std::time::Duration;

use serde_json::{Value, json};

/// Longest any tool works, in seconds.
const LONGEST: f64 = 3600.0;
/// What `mesh` makes per second.
const CELLS_PER_SECOND: u64 = 1000;
const MOST_CELLS: u64 = 60_000;
const MOST_STEPS: u64 = 1000;

/// A tool with its arguments, understood.
#[derive(Debug, PartialEq)]
pub(super) enum Job {
    Solve { length: Duration },
    Simulate { steps: u64, length: Duration },
    Mesh { cells: u64 },
    Diverge { length: Duration },
}

/// Why a call is not a [`Job`].
#[derive(Debug, PartialEq)]
pub(super) enum Unfit {
    /// No tool of this name: a JSON-RPC error.
    UnknownTool,
    /// The arguments are wrong: a tool error, which the model can read and mend.
    Arguments(&'static str),
}

/// One step of a simulation, as told to whoever asked for progress.
pub(super) struct Progress {
    pub(super) done: u64,
    pub(super) total: u64,
}

impl Job {
    /// Reads `params` of a `tools/call`.
    pub(super) fn read(params: &Value) -> Result<Self, Unfit> {
        let arguments = &params["arguments"];
        match params["name"].as_str() {
            Some("solve") => Ok(Self::Solve { length: seconds(arguments)? }),
            Some("diverge") => Ok(Self::Diverge { length: seconds(arguments)? }),
            Some("simulate") => {
                let steps = arguments["steps"].as_u64().ok_or(Unfit::Arguments("steps must be a whole number"))?;
                Ok(Self::Simulate { steps: steps.clamp(1, MOST_STEPS), length: seconds(arguments)? })
            }
            Some("mesh") => {
                let cells = arguments["cells"].as_u64().ok_or(Unfit::Arguments("cells must be a whole number"))?;
                Ok(Self::Mesh { cells: cells.clamp(1, MOST_CELLS) })
            }
            _ => Err(Unfit::UnknownTool),
        }
    }

    /// Works, and returns the `CallToolResult` of run number `run`.
    pub(super) async fn work(self, run: usize, mut report: impl FnMut(Progress)) -> Value {
        match self {
            Self::Solve { length } => {
                tokio::time::sleep(length).await;
                text(&format!("run {run}: solved in {} s, residual 1e-9", length.as_secs_f64()))
            }
            Self::Simulate { steps, length } => {
                let each = length.div_f64(u32::try_from(steps).map_or(1.0, f64::from));
                for done in 1..=steps {
                    tokio::time::sleep(each).await;
                    report(Progress { done, total: steps });
                }
                text(&format!("run {run}: {steps} steps simulated, energy drift 0.02 %"))
            }
            Self::Mesh { cells } => {
                tokio::time::sleep(Duration::from_millis(cells * 1000 / CELLS_PER_SECOND)).await;
                let mesh = json!({"run": run, "cells": cells, "nodes": 2 * cells + 1});
                json!({"content": [{"type": "text", "text": mesh.to_string()}], "structuredContent": mesh,
                    "isError": false})
            }
            Self::Diverge { length } => {
                tokio::time::sleep(length).await;
                failed(&format!("run {run}: residual grew to 1e12, the step size is too large"))
            }
        }
    }
}

fn seconds(arguments: &Value) -> Result<Duration, Unfit> {
    let seconds = arguments["seconds"].as_f64().ok_or(Unfit::Arguments("seconds must be a number"))?;
    Ok(Duration::from_secs_f64(seconds.clamp(0.0, LONGEST)))
}

fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}], "isError": false})
}

/// A tool error.
pub(super) fn failed(why: &str) -> Value {
    json!({"content": [{"type": "text", "text": why}], "isError": true})
}

/// The `tools/list` result.
pub(super) fn catalogue() -> Value {
    let seconds = json!({"type": "number", "minimum": 0, "maximum": LONGEST, "description": "How long it takes"});
    let whole = json!({"type": "integer", "minimum": 1});
    let tool = |name: &str, description: &str, properties: Value| {
        let required: Vec<_> = properties.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
        json!({"name": name, "description": description,
            "inputSchema": {"type": "object", "properties": properties, "required": required},
            "annotations": {"readOnlyHint": true, "idempotentHint": true, "openWorldHint": false}})
    };
    let mut mesh = tool("mesh", "Makes a mesh, 1000 cells per second; structured output.", json!({"cells": whole}));
    mesh["outputSchema"] = json!({"type": "object", "required": ["run", "cells", "nodes"],
        "properties": {"run": whole, "cells": whole, "nodes": whole}});
    json!({"tools": [
        tool("solve", "Solves a system; takes as long as it is told.", json!({"seconds": seconds})),
        tool("simulate", "Steps through a simulation and reports progress.", json!({"steps": whole, "seconds": seconds})),
        mesh,
        tool("diverge", "Fails, as long runs do.", json!({"seconds": seconds})),
    ]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_can_do() {
        let read = |name: &str, arguments: Value| Job::read(&json!({"name": name, "arguments": arguments}));
        let second = Duration::from_secs(1);
        assert_eq!(read("solve", json!({"seconds": 1})), Ok(Job::Solve { length: second }));
        assert_eq!(read("solve", json!({"seconds": -1})), Ok(Job::Solve { length: Duration::ZERO }));
        assert_eq!(
            read("simulate", json!({"steps": 0, "seconds": 1e300})),
            Ok(Job::Simulate { steps: 1, length: Duration::from_secs(3600) })
        );
        assert_eq!(read("mesh", json!({"cells": 1_u64 << 40})), Ok(Job::Mesh { cells: MOST_CELLS }));
        assert!(matches!(read("mesh", json!({"cells": 1.5})), Err(Unfit::Arguments(_))));
        assert!(matches!(read("diverge", json!({})), Err(Unfit::Arguments(_))));
        assert_eq!(read("get_job_result", json!({})), Err(Unfit::UnknownTool));
    }

    #[tokio::test(start_paused = true)]
    async fn takes_the_time_it_was_told() {
        let begin = tokio::time::Instant::now();
        let mut heard = Vec::new();
        let job = Job::Simulate { steps: 4, length: Duration::from_secs(8) };
        let result = job.work(7, |progress: Progress| heard.push((progress.done, progress.total))).await;
        assert_eq!(begin.elapsed().as_secs(), 8);
        assert_eq!(heard, [(1, 4), (2, 4), (3, 4), (4, 4)]);
        assert!(result["content"][0]["text"].as_str().unwrap().starts_with("run 7:"));
    }
}
