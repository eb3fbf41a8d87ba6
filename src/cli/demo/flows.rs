//! The flows, one function each: what a client does, and what must come of it.
//!
//! Every claim is checked against what the solver itself saw, so that a demo that ends well proves something.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::client::{Ability, Answer, Client};
use super::screen::{Screen, between, equal, that};
use super::solver::{End, Seen};
use super::witness::Witness;

/// taskgate's threshold in the demo.
pub(super) const THRESHOLD: Duration = Duration::from_millis(400);
/// How much earlier than the threshold a handle may come: the clocks start a little apart.
const EARLY: Duration = Duration::from_millis(50);
/// How much later things may come on a busy machine.
const LATE: Duration = Duration::from_secs(1);
/// Polls before a flow gives up.
const MOST_POLLS: usize = 30;

/// What the flows play on.
pub(super) struct Stage<'a> {
    pub(super) screen: &'a mut Screen,
    pub(super) solver: &'a Witness,
    /// Where taskgate listens.
    pub(super) url: &'a str,
}

/// A flow that cannot go on says why.
type Flow<T = ()> = Result<T, String>;

/// Plays every flow. Returns the session of the client without tasks, still open.
pub(super) async fn play(stage: &mut Stage<'_>) -> Option<Client> {
    let mut plain = open(stage, Ability::Plain).await?;
    let outcome = list(stage, &mut plain).await;
    stage.finish(outcome);
    let outcome = fast(stage, &mut plain).await;
    stage.finish(outcome);
    let outcome = progress(stage, &mut plain).await;
    stage.finish(outcome);
    let outcome = job(stage, &mut plain).await;
    stage.finish(outcome);
    if let Some(mut tasks) = open(stage, Ability::Tasks).await {
        let outcome = task(stage, &mut tasks).await;
        stage.finish(outcome);
        let outcome = tasks.close().await;
        stage.finish(outcome);
    }
    let outcome = structured(stage, &mut plain).await;
    stage.finish(outcome);
    let outcome = failing(stage, &mut plain).await;
    stage.finish(outcome);
    let outcome = cancel(stage, &mut plain).await;
    stage.finish(outcome);
    Some(plain)
}

impl Stage<'_> {
    fn finish(&mut self, outcome: Flow) {
        if outcome.is_err() {
            self.screen.check("the step could go on", outcome);
        }
    }

    /// Calls a tool, showing what is sent.
    async fn call(&mut self, client: &mut Client, tool: &str, arguments: Value) -> Flow<Answer> {
        self.screen.sent(&format!("tools/call {tool} {arguments}"));
        client.call(tool, arguments).await
    }

    /// The calls that the solver saw since there were `before`: it must be exactly one.
    async fn only_call(&mut self, before: usize) -> Flow<Seen> {
        let mut seen = self.solver.seen().await?.split_off(before);
        let tools: Vec<_> = seen.iter().map(|call| call.tool.as_str()).collect();
        self.screen.check("the solver saw one call", that(tools.len() == 1, || format!("it saw {tools:?}")));
        seen.pop().ok_or_else(|| "the solver saw no call".to_owned())
    }

    /// Whether `got` is, to the last field, what the solver sent for its only call since `before`.
    async fn same_as_sent(&mut self, before: usize, got: &Value) -> Flow {
        let seen = self.only_call(before).await?;
        self.screen.check("the result is the solver's own, unchanged", equal(&End::Done(got.clone()), &seen.end));
        Ok(())
    }
}

async fn open(stage: &mut Stage<'_>, ability: Ability) -> Option<Client> {
    match Client::connect(stage.url, ability).await {
        Ok(client) => Some(client),
        Err(error) => {
            stage.screen.check("a client can open a session", Err(error));
            None
        }
    }
}

async fn list(stage: &mut Stage<'_>, client: &mut Client) -> Flow {
    stage.screen.step("A client that knows nothing of tasks lists the tools");
    stage.screen.sent("tools/list");
    let answer = client.request("tools/list", json!({})).await?;
    let tools = answer.result()?["tools"].as_array().ok_or("no list of tools")?;
    let names: Vec<_> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    stage.screen.got(&names.join(", "), answer.took);
    let (theirs, ours) = names.split_at(names.len().min(4));
    stage.screen.check("the solver's four tools come first", equal(theirs, &["solve", "simulate", "mesh", "diverge"]));
    stage.screen.check("then those that read and cancel jobs", equal(ours, &["get_job_result", "cancel_job"]));
    let kept: Vec<_> = tools.iter().filter(|tool| tool.get("outputSchema").is_some()).collect();
    stage.screen.check("no outputSchema stays that a job handle would break", equal(&kept, &Vec::new()));
    Ok(())
}

async fn fast(stage: &mut Stage<'_>, client: &mut Client) -> Flow {
    stage.screen.step("A fast call is answered as if taskgate were not there");
    let before = stage.solver.seen().await?.len();
    let answer = stage.call(client, "solve", json!({"seconds": 0.05})).await?;
    let result = answer.result()?;
    stage.screen.got(&text(result, 0), answer.took);
    stage.screen.check("before the threshold", between(answer.took, Duration::from_millis(50), THRESHOLD));
    stage.same_as_sent(before, result).await
}

async fn progress(stage: &mut Stage<'_>, client: &mut Client) -> Flow {
    stage.screen.step("Progress reaches a client that asked for it, with its own token");
    let before = stage.solver.seen().await?.len();
    let params = json!({"name": "simulate", "arguments": {"steps": 3, "seconds": 0.15},
        "_meta": {"progressToken": "my-token"}});
    stage.screen.sent(&format!("tools/call {params}"));
    let answer = client.request("tools/call", params).await?;
    let told: Vec<_> = answer.notifications.iter().map(|note| &note["params"]).collect();
    for params in &told {
        stage.screen.note(&format!("notifications/progress {params}"));
    }
    let result = answer.result()?;
    stage.screen.got(&text(result, 0), answer.took);
    let told: Vec<_> = told.iter().map(|told| (told["progressToken"].as_str(), told["progress"].as_u64())).collect();
    let want: Vec<_> = (1..=3).map(|step| (Some("my-token"), Some(step))).collect();
    stage.screen.check("each step was told before the answer", equal(&told, &want));
    stage.same_as_sent(before, result).await
}

async fn job(stage: &mut Stage<'_>, client: &mut Client) -> Flow {
    stage.screen.step("A slow call becomes a job, and the client polls it with a tool");
    let before = stage.solver.seen().await?.len();
    let answer = stage.call(client, "simulate", json!({"steps": 12, "seconds": 2.4})).await?;
    let job = handle(stage, &answer)?;
    let (polls, last) = poll(stage, client, &job).await?;
    let told = polls.iter().any(|poll| poll.get("progress").is_some_and(|progress| !progress.is_null()));
    stage.screen.check("polls tell the progress", that(told, || "none did".to_owned()));
    let repeated = polls.windows(2).any(|two| two[0] == two[1]);
    stage.screen.check("no two polls are alike", that(polls.len() > 1 && !repeated, || format!("{polls:?}")));
    stage.screen.check("it ends as done", equal(last.status.as_str(), "done"));
    stage.same_as_sent(before, &last.rest).await
}

async fn structured(stage: &mut Stage<'_>, client: &mut Client) -> Flow {
    stage.screen.step("Structured output survives the detour");
    let before = stage.solver.seen().await?.len();
    let answer = stage.call(client, "mesh", json!({"cells": 1000})).await?;
    let job = handle(stage, &answer)?;
    let (_, last) = poll(stage, client, &job).await?;
    stage.screen.note(&format!("structuredContent {}", last.rest["structuredContent"]));
    stage.screen.check("it ends as done", equal(last.status.as_str(), "done"));
    stage.screen.check("structuredContent is there", equal(&last.rest["structuredContent"]["cells"], &json!(1000)));
    stage.same_as_sent(before, &last.rest).await
}

async fn failing(stage: &mut Stage<'_>, client: &mut Client) -> Flow {
    stage.screen.step("A tool that fails late");
    let before = stage.solver.seen().await?.len();
    let answer = stage.call(client, "diverge", json!({"seconds": 0.7})).await?;
    let job = handle(stage, &answer)?;
    let (_, last) = poll(stage, client, &job).await?;
    stage.screen.note(&text(&last.rest, 0));
    stage.screen.check("it ends as an error", equal(last.status.as_str(), "error"));
    stage.screen.check("and is marked as one", equal(&last.rest["isError"], &json!(true)));
    stage.same_as_sent(before, &last.rest).await
}

async fn task(stage: &mut Stage<'_>, client: &mut Client) -> Flow {
    stage.screen.step("A client that declared the tasks extension gets a task");
    let before = stage.solver.seen().await?.len();
    let answer = stage.call(client, "simulate", json!({"steps": 10, "seconds": 1.5})).await?;
    let created = answer.result()?.clone();
    stage.screen.got(&brief(&created, &["resultType", "taskId", "status", "pollIntervalMs", "ttlMs"]), answer.took);
    let shape = (created["resultType"].as_str(), created["status"].as_str());
    stage.screen.check("the handle is a working task", equal(&shape, &(Some("task"), Some("working"))));
    stage.screen.check("at the threshold", between(answer.took, THRESHOLD - EARLY, THRESHOLD + LATE));
    let id = created["taskId"].as_str().ok_or("no taskId")?;
    let (mut polls, last) = follow(stage, client, id).await?;
    stage.screen.check("tasks/get finds it working first", that(!polls.is_empty(), || "it did not".to_owned()));
    polls.push(created.clone());
    let stands: std::collections::BTreeSet<_> = polls.iter().map(|poll| poll["statusMessage"].to_string()).collect();
    stage.screen.check("statusMessage tells the progress", that(stands.len() > 1, || format!("only {stands:?}")));
    let end = (last["resultType"].as_str(), last["taskId"].as_str(), last["status"].as_str());
    stage.screen.check("then completed", equal(&end, &(Some("complete"), Some(id), Some("completed"))));
    stage.same_as_sent(before, &last["result"]).await
}

async fn cancel(stage: &mut Stage<'_>, client: &mut Client) -> Flow {
    stage.screen.step("A cancelled job is cancelled in the solver too");
    let before = stage.solver.seen().await?.len();
    let answer = stage.call(client, "solve", json!({"seconds": 60})).await?;
    let job = handle(stage, &answer)?;
    let seen = stage.only_call(before).await?;
    stage.screen.check("the solver is at it", equal(&seen.end, &End::Running));
    let began = Instant::now();
    let answer = stage.call(client, "cancel_job", json!({"job_id": job})).await?;
    let result = answer.result()?;
    stage.screen.got(&text(result, 0), answer.took);
    stage.screen.check("the cancellation is accepted", that(result["isError"] != true, || result.to_string()));
    let mut end = End::Running;
    while end == End::Running && began.elapsed() < LATE {
        sleep(Duration::from_millis(5)).await;
        end = stage.solver.seen().await?.swap_remove(before).end;
    }
    stage.screen.note(&format!("the solver heard of it after {} ms", began.elapsed().as_millis()));
    stage.screen.check("the solver saw notifications/cancelled and stopped", equal(&end, &End::Cancelled));
    let (_, last) = poll(stage, client, &job).await?;
    stage.screen.check("the job says cancelled", equal(last.status.as_str(), "cancelled"));
    Ok(())
}

/// Checks that the answer is a job handle that came at the threshold. Returns the job's id.
fn handle(stage: &mut Stage<'_>, answer: &Answer) -> Flow<String> {
    let result = answer.result()?;
    stage.screen.got(&text(result, 0), answer.took);
    let handle = first_block(result)?;
    let id = handle["job_id"].as_str().ok_or("not a job handle: it has no job_id")?;
    stage.screen.check("a handle comes at the threshold", between(answer.took, THRESHOLD - EARLY, THRESHOLD + LATE));
    let next = format!("get_job_result(job_id=\"{id}\")");
    let message = handle["message"].as_str().unwrap_or_default();
    let holds = handle["status"] == "running" && message.contains(&next) && result["structuredContent"] == handle;
    stage.screen.check("it is running and names the next call", that(holds, || result.to_string()));
    Ok(id.to_owned())
}

/// The end of a job: its status, and the solver's result without the block that taskgate put first.
struct Last {
    status: String,
    rest: Value,
}

/// Polls a job to its end. Returns what the polls while it ran said, and the end.
async fn poll(stage: &mut Stage<'_>, client: &mut Client, job: &str) -> Flow<(Vec<Value>, Last)> {
    let mut running = Vec::new();
    for _ in 0..MOST_POLLS {
        stage.screen.sent("tools/call get_job_result");
        let answer = client.call("get_job_result", json!({"job_id": job})).await?;
        let result = answer.result()?;
        let said = first_block(result)?;
        stage.screen.got(&brief(&said, &["status", "elapsed_s", "progress", "error"]), answer.took);
        if said["job_id"] != job {
            return Err(format!("the answer is about another job: {said}"));
        }
        let status = said["status"].as_str().unwrap_or_default();
        if status != "running" {
            let mut rest = result.clone();
            if let Some(blocks) = rest["content"].as_array_mut() {
                blocks.remove(0);
            }
            return Ok((running, Last { status: status.to_owned(), rest }));
        }
        running.push(said);
    }
    Err(format!("still running after {MOST_POLLS} polls"))
}

/// Asks for a task until it is final. Returns what was said while it worked, and the end.
async fn follow(stage: &mut Stage<'_>, client: &mut Client, id: &str) -> Flow<(Vec<Value>, Value)> {
    let mut working = Vec::new();
    for _ in 0..MOST_POLLS {
        stage.screen.sent("tasks/get");
        let answer = client.request("tasks/get", json!({"taskId": id})).await?;
        let task = answer.result()?.clone();
        stage.screen.got(&brief(&task, &["status", "statusMessage", "result", "error"]), answer.took);
        if task["status"] != "working" {
            return Ok((working, task));
        }
        let interval = task["pollIntervalMs"].as_u64().ok_or("no pollIntervalMs")?;
        working.push(task);
        sleep(Duration::from_millis(interval.min(1000))).await;
    }
    Err(format!("still working after {MOST_POLLS} polls"))
}

/// The JSON object in the first text block.
fn first_block(result: &Value) -> Flow<Value> {
    serde_json::from_str(&text(result, 0)).map_err(|_| format!("the first block is not a JSON object: {result}"))
}

fn text(result: &Value, block: usize) -> String {
    result["content"][block]["text"].as_str().unwrap_or_default().to_owned()
}

/// The named fields of an object, those that are there.
fn brief(object: &Value, fields: &[&str]) -> String {
    let fields = fields.iter().filter_map(|name| Some(format!("{name} {}", object.get(*name)?)));
    fields.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::screen::Paint;
    use super::super::solver::Solver;
    use super::*;
    use crate::shutdown::Work;

    /// Without taskgate in between only the fast call is as it should be: the checks are worth something.
    #[tokio::test]
    async fn the_checks_fail_without_taskgate() {
        let work = Work::new();
        let started = Solver::start(&work, None).await.unwrap();
        let solver = Witness::new(&started.url()).unwrap();
        let mut screen = Screen::new(Box::new(std::io::sink()), Paint::Plain);
        let url = started.url();
        let mut stage = Stage { screen: &mut screen, solver: &solver, url: &url };
        let mut client = Client::connect(&url, Ability::Plain).await.unwrap();
        fast(&mut stage, &mut client).await.unwrap();
        progress(&mut stage, &mut client).await.unwrap();
        assert_eq!(stage.screen.failed(), 0);
        list(&mut stage, &mut client).await.unwrap();
        assert_eq!(stage.screen.failed(), 2);
        assert!(failing(&mut stage, &mut client).await.is_err());
    }

    #[tokio::test]
    async fn an_address_nobody_listens_on_is_a_failed_check() {
        let work = Work::new();
        let started = Solver::start(&work, None).await.unwrap();
        let solver = Witness::new(&started.url()).unwrap();
        let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let mut screen = Screen::new(Box::new(std::io::sink()), Paint::Plain);
        let url = format!("http://{free}/mcp");
        let mut stage = Stage { screen: &mut screen, solver: &solver, url: &url };
        assert!(play(&mut stage).await.is_none());
        assert_eq!(screen.failed(), 1);
    }
}
