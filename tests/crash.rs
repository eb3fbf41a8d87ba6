//! Kills a loaded taskgate again and again, and starts it on the same file: whoever has a handle gets the truth.
//!
//! `TASKGATE_CRASH_ROUNDS` says how often, 5 times by default; `TASKGATE_CRASH_SEED` repeats a run's choices.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout)] // tests may fail, and say how they went
#![allow(dead_code, unreachable_pub, unused_imports)] // the support serves other tests, too

use std::collections::HashMap;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

#[path = "it/support/mod.rs"]
mod support;

use support::gate::address_to_keep;
use support::upstream::script::{self, Script};
use support::{Upstream, ms};

/// Clients that call side by side.
const CLIENTS: u64 = 8;
/// How long everything may take to come to its end after the last crash.
const SETTLES: Duration = Duration::from_secs(30);
const CONFIG: &str = "[tasks]\nthreshold = \"50ms\"\n[server]\nkeepalive = \"2s\"\n[log]\nlevel = \"info\"\n";

/// Choices that can be repeated.
#[derive(Clone)]
struct Dice(u64);

impl Dice {
    /// A number below `limit` (xorshift64*).
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }
}

/// The taskgate that is killed.
struct Victim {
    home: TempDir,
    addr: SocketAddr,
    upstream: String,
    child: Option<Child>,
}

impl Victim {
    fn new(upstream: &Upstream) -> Self {
        let home = tempfile::tempdir().unwrap();
        let config = format!("{CONFIG}[[upstream]]\nname = \"solver\"\nurl = \"{}\"\n", upstream.url());
        std::fs::write(home.path().join("taskgate.toml"), config).unwrap();
        Self { home, addr: address_to_keep(), upstream: upstream.url(), child: None }
    }

    fn log(&self) -> PathBuf {
        self.home.path().join("log")
    }

    async fn start(&mut self) {
        let log = std::fs::File::options().append(true).create(true).open(self.log()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_taskgate"));
        command.args(["run", "--config"]).arg(self.home.path().join("taskgate.toml"));
        command.args(["--listen", &self.addr.to_string(), "--admin-listen", ""]);
        command.arg("--store").arg(self.home.path().join("tasks.db"));
        let mut child = command.stdin(Stdio::null()).stderr(log).spawn().unwrap();
        let began = Instant::now();
        while TcpStream::connect(self.addr).is_err() {
            let gone = child.try_wait().unwrap();
            assert!(gone.is_none() && began.elapsed() < ms(20_000), "it does not start: {gone:?}");
            sleep(ms(5)).await;
        }
        self.child = Some(child);
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.log()).unwrap_or_default();
            let lines: Vec<_> = log.lines().filter(|line| !line.contains("taskgate::access")).collect();
            println!("{}\nin front of {}", lines[lines.len().saturating_sub(60)..].join("\n"), self.upstream);
        }
    }
}

/// Works that long and says so, on one JSON body.
fn plain() -> Script {
    script::script(|mut call| async move {
        sleep(ms(call.arg("ms").as_u64().unwrap())).await;
        let text = format!("plain {}", call.arg("n"));
        call.say(&text);
    })
}

/// The same on an event stream that can be taken up, with progress half way; the id of an event says all that is to
/// be known of the call.
fn solve(epoch: Instant) -> Script {
    script::script(move |mut call| async move {
        let wait = ms(call.arg("ms").as_u64().unwrap());
        let due = (epoch.elapsed() + wait).as_millis();
        let place = format!("{}|{}|{due}", call.request.id(), call.arg("n"));
        let token = call.token().cloned().unwrap_or_default();
        call.bytes(format!("id: {place}|0\nretry: 20\ndata:\n\n"));
        sleep(wait / 2).await;
        let told = json!({"jsonrpc": "2.0", "method": "notifications/progress",
            "params": {"progressToken": token, "progress": 1, "total": 2, "message": "half way"}});
        call.bytes(format!("id: {place}|1\ndata: {told}\n\n"));
        sleep(wait / 2).await;
        let text = format!("solve {}", call.arg("n"));
        call.say(&text);
    })
}

fn solve_on(epoch: Instant) -> Script {
    script::script(move |mut call| async move {
        let cursor = call.request.header("last-event-id").unwrap_or_default().to_owned();
        let parts: Vec<&str> = cursor.split('|').collect();
        let [id, n, due, _] = parts[..] else { return call.raw(400, &[], "no such event") };
        call.open();
        tokio::time::sleep_until(epoch + ms(due.parse().unwrap())).await;
        call.say_to(id, &format!("solve {n}"));
    })
}

fn fast() -> Script {
    script::script(|mut call| async move {
        let text = format!("fast {}", call.arg("n"));
        call.say(&text);
    })
}

/// What a client was promised.
#[derive(Debug)]
struct Handle {
    id: String,
    session: String,
    is_core: bool,
    /// What the result has to say.
    text: String,
    /// Progress was read: then its place in the upstream's stream was written down before.
    has_progress: bool,
    /// What was read at the end.
    end: Option<Value>,
}

/// How a handle stands.
#[derive(Debug)]
enum Read {
    /// Nobody answered.
    Nothing,
    Runs {
        has_progress: bool,
    },
    Done(Value),
    Unknown(Value),
    /// Anything else.
    Wrong(String),
}

/// What all clients share.
struct World {
    http: reqwest::Client,
    url: String,
    ids: AtomicU64,
    over: AtomicBool,
    handles: Mutex<Vec<Handle>>,
    unanswered: AtomicUsize,
    inline: AtomicUsize,
    wrong: Mutex<Vec<String>>,
}

impl World {
    /// Sends a request; `None` if there was no complete answer.
    async fn ask(&self, session: Option<&str>, method: &str, params: Value) -> Option<(u16, Option<String>, Value)> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
        let mut request = self.http.post(&self.url).body(body).header("content-type", "application/json");
        request = request.header("accept", "application/json, text/event-stream");
        request = request.header("mcp-protocol-version", "2025-11-25");
        if let Some(session) = session {
            request = request.header("mcp-session-id", session);
        }
        let answer = request.send().await.ok()?;
        let status = answer.status().as_u16();
        let session = answer.headers().get("mcp-session-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
        let text = answer.text().await.ok()?;
        let messages = text.lines().filter_map(|line| line.strip_prefix("data:")).chain([text.as_str()]);
        let mut messages = messages.filter_map(|text| serde_json::from_str::<Value>(text).ok());
        let answer = messages.find(|message| message["id"] == id && message.get("method").is_none())?;
        Some((status, session, answer))
    }

    async fn open(&self) -> Option<String> {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "crash", "version": "1"}});
        self.ask(None, "initialize", params).await?.1
    }

    fn wrong(&self, what: String) {
        self.wrong.lock().unwrap().push(what);
    }

    /// One tool call; a new handle if it came to that.
    async fn call(&self, session: &str, is_core: bool, (tool, took): (&str, u64)) -> Option<Handle> {
        let n = self.ids.fetch_add(1, Ordering::Relaxed);
        let mut params = json!({"name": tool, "arguments": {"n": n, "ms": took}});
        if is_core {
            params["task"] = json!({});
        }
        let Some((_, _, answer)) = self.ask(Some(session), "tools/call", params).await else {
            self.unanswered.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let text = format!("{tool} {n}");
        let said = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
        let id = match answer["result"]["task"]["taskId"].as_str() {
            Some(id) => Some(id.to_owned()),
            None => serde_json::from_str::<Value>(said).ok().and_then(|note| Some(note["job_id"].as_str()?.to_owned())),
        };
        match id {
            Some(id) => {
                let session = session.to_owned();
                Some(Handle { id, session, is_core, text, has_progress: false, end: None })
            }
            None if said == text => {
                self.inline.fetch_add(1, Ordering::Relaxed);
                None
            }
            None => {
                self.wrong(format!("{text} was answered with {answer}"));
                None
            }
        }
    }

    async fn read(&self, handle: &Handle) -> Read {
        let session = Some(&*handle.session);
        if !handle.is_core {
            let params = json!({"name": "get_job_result", "arguments": {"job_id": handle.id, "wait_s": 0}});
            let Some((_, _, answer)) = self.ask(session, "tools/call", params).await else { return Read::Nothing };
            let note = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
            let note: Value = serde_json::from_str(note).unwrap_or_default();
            return match note["status"].as_str() {
                Some("running") => Read::Runs { has_progress: note.get("progress").is_some() },
                Some("done") if answer["result"]["content"][1]["text"] == *handle.text => {
                    Read::Done(answer["result"].clone())
                }
                Some("error") if note["reason"] == "outcome_unknown" => Read::Unknown(answer["result"].clone()),
                _ => Read::Wrong(answer.to_string()),
            };
        }
        let params = json!({"taskId": handle.id});
        let Some((_, _, task)) = self.ask(session, "tasks/get", params.clone()).await else { return Read::Nothing };
        if task["result"]["status"] == "working" {
            return Read::Runs { has_progress: task["result"].get("statusMessage").is_some() };
        }
        let Some((_, _, end)) = self.ask(session, "tasks/result", params).await else { return Read::Nothing };
        match task["result"]["status"].as_str() {
            Some("completed") if end["result"]["content"][0]["text"] == *handle.text => {
                Read::Done(json!([end["result"], task["result"]["lastUpdatedAt"]]))
            }
            Some("failed") if end["error"]["data"]["reason"] == "outcome_unknown" => {
                Read::Unknown(json!([end["error"], task["result"]["lastUpdatedAt"]]))
            }
            _ => Read::Wrong(format!("{task} {end}")),
        }
    }

    /// Reads a handle and notes what is new; whether it has ended.
    async fn look(&self, handle: &mut Handle) -> bool {
        let end = match self.read(handle).await {
            Read::Nothing => return false,
            Read::Runs { has_progress } => {
                handle.has_progress |= has_progress;
                if let Some(end) = &handle.end {
                    self.wrong(format!("{} runs again after {end}", handle.text));
                }
                return false;
            }
            Read::Wrong(answer) => {
                self.wrong(format!("{} reads {answer}", handle.text));
                return true;
            }
            Read::Unknown(end) if handle.has_progress => {
                self.wrong(format!("{} could have been resumed: {end}", handle.text));
                return true;
            }
            Read::Done(end) | Read::Unknown(end) => end,
        };
        match &handle.end {
            Some(before) if *before != end => self.wrong(format!("{} was {before} and is {end}", handle.text)),
            Some(_) => {}
            None => handle.end = Some(end),
        }
        true
    }

    /// Calls and polls until it is over.
    async fn client(self: Arc<Self>, mut dice: Dice, is_core: bool) {
        let mut mine: Vec<Handle> = Vec::new();
        let mut session = None;
        while !self.over.load(Ordering::SeqCst) {
            let Some(known) = &session else {
                session = self.open().await;
                sleep(ms(5)).await;
                continue;
            };
            let call = match dice.below(5) {
                0 => ("fast", 0),
                1 | 2 => ("plain", 60 + dice.below(500)),
                _ => ("solve", 80 + dice.below(900)),
            };
            mine.extend(self.call(known, is_core, call).await);
            for _ in 0..3 {
                let at = usize::try_from(dice.below(mine.len().max(1) as u64)).unwrap();
                if let Some(handle) = mine.get_mut(at).filter(|_| dice.below(3) > 0) {
                    self.look(handle).await;
                }
                sleep(ms(dice.below(20))).await;
            }
        }
        self.handles.lock().unwrap().append(&mut mine);
    }

    /// Reads a handle until it has ended, and once more.
    async fn settle(self: Arc<Self>, mut handle: Handle, until: Instant) -> Handle {
        while !self.look(&mut handle).await {
            if Instant::now() > until {
                self.wrong(format!("{} never ends", handle.text));
                return handle;
            }
            sleep(ms(25)).await;
        }
        self.look(&mut handle).await;
        handle
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_and_nothing_is_done_twice() {
    let rounds = number("TASKGATE_CRASH_ROUNDS").unwrap_or(5);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seed = number("TASKGATE_CRASH_SEED").unwrap_or(u64::from(now.subsec_nanos()) | 1);
    let (mut dice, epoch) = (Dice(seed), Instant::now());
    let builder = Upstream::builder().tool("plain", plain()).tool("solve", solve(epoch)).tool("fast", fast());
    let upstream = builder.resume(solve_on(epoch)).start().await;
    let mut victim = Victim::new(&upstream);
    victim.start().await;
    let world = Arc::new(World {
        http: reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap(),
        url: format!("http://{}/mcp", victim.addr),
        ids: AtomicU64::new(1),
        over: AtomicBool::new(false),
        handles: Mutex::default(),
        unanswered: AtomicUsize::new(0),
        inline: AtomicUsize::new(0),
        wrong: Mutex::default(),
    });
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| tokio::spawn(world.clone().client(Dice(seed.wrapping_mul(2 * n + 3) | 1), n % 2 == 1)))
        .collect();
    for _ in 0..rounds {
        sleep(ms(150 + dice.below(450))).await;
        victim.kill();
        victim.start().await;
    }
    sleep(ms(200)).await;
    world.over.store(true, Ordering::SeqCst);
    for client in clients {
        client.await.unwrap();
    }
    let handles = std::mem::take(&mut *world.handles.lock().unwrap());
    let until = Instant::now() + SETTLES;
    let settling: Vec<_> =
        handles.into_iter().map(|handle| tokio::spawn(world.clone().settle(handle, until))).collect();
    let mut ended = Vec::new();
    for handle in settling {
        ended.push(handle.await.unwrap());
    }
    judge(&world, &upstream, &ended, (rounds, seed));
}

fn judge(world: &World, upstream: &Upstream, handles: &[Handle], (rounds, seed): (u64, u64)) {
    let mut calls: HashMap<String, usize> = HashMap::new();
    for call in upstream.of("tools/call") {
        *calls.entry(call.json["params"]["arguments"]["n"].to_string()).or_default() += 1;
    }
    let doubled = calls.values().filter(|count| **count > 1).count();
    let unknown = handles.iter().filter(|handle| handle.end.as_ref().is_some_and(is_unknown)).count();
    let resumed = upstream.resumes().len();
    let wrong = world.wrong.lock().unwrap();
    println!(
        "crash: {rounds} rounds, {} handles, lost {}, doubled {doubled} ({} done, {unknown} unknown, {resumed} streams \
         resumed, {} inline, {} calls without an answer, seed {seed})",
        handles.len(),
        wrong.len(),
        handles.len() - unknown,
        world.inline.load(Ordering::SeqCst),
        world.unanswered.load(Ordering::SeqCst),
    );
    assert!(wrong.is_empty(), "lost: {wrong:#?}");
    assert_eq!(doubled, 0, "called more than once");
    assert!(handles.len() as u64 >= 4 * rounds && resumed > 0 && unknown < handles.len(), "there was no load");
}

fn is_unknown(end: &Value) -> bool {
    end.to_string().contains("outcome_unknown")
}
