//! The built program in a process of its own: its flags, exit statuses, log lines, signals and memory.
//!
//! What only a process has cannot be told by an embedded taskgate.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tempfile::TempDir;

use super::client::{Client, Http};
use super::{LIMIT, Upstream, eventually, within};

/// The program, without what the surroundings of the tests would tell it.
fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_taskgate"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TASKGATE_") {
            command.env_remove(name);
        }
    }
    command.env_remove("RUST_LOG");
    command
}

/// Runs a command of the program to its end.
pub async fn run(arguments: &[&str]) -> Output {
    run_in(Path::new("."), &[], arguments).await
}

/// The same in another directory, with more environment variables.
pub async fn run_in(directory: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = program();
    command.current_dir(directory).envs(variables.iter().copied()).args(arguments);
    let ran = tokio::task::spawn_blocking(move || command.output().expect("it can be started"));
    tokio::time::timeout(LIMIT, ran).await.expect("it ends").expect("it was waited for")
}

/// A running command whose output is read as it comes; killed when dropped.
pub struct Talker {
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
}

impl Talker {
    /// Starts it.
    pub fn start(arguments: &[&str]) -> Self {
        let mut command = program();
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it can be started");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = said.clone();
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| kept.lock().unwrap().push(line)));
        Self { child, said }
    }

    /// Waits for a line with these words in it.
    pub async fn says(&self, words: &str) -> String {
        let mut found = None;
        eventually(words, || {
            found = self.said.lock().unwrap().iter().find(|line| line.contains(words)).cloned();
            found.is_some()
        })
        .await;
        found.expect("just seen")
    }

    /// All that it has said so far.
    pub fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is our child");
    }
}

impl Drop for Talker {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A running `taskgate run`; killed when dropped.
pub struct Process {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    /// Where clients connect.
    pub addr: SocketAddr,
    admin: SocketAddr,
    _home: TempDir,
}

impl Process {
    /// Starts in front of `upstream` at `/mcp`, on free ports and with a JSON log. Rules in `config` come last.
    pub async fn start(upstream: &Upstream, config: &str) -> Self {
        let (config, rules) = config.split_at(config.find("[[upstream.rule]]").unwrap_or(config.len()));
        let home = tempfile::tempdir().expect("a directory");
        let file = home.path().join("taskgate.toml");
        let text = format!("{config}\n[[upstream]]\nname = \"it\"\nurl = \"{}\"\n{rules}", upstream.url());
        std::fs::write(&file, text).expect("a file can be written");
        let mut command = program();
        command.arg("run").arg("--config").arg(file).args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
        command.args(["--log-format", "json", "--store", "memory"]);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it can be started");
        let lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = log.clone();
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| kept.lock().unwrap().push(line)));
        let mut listening = None;
        within(LIMIT, "it listens", || {
            listening = log.lock().unwrap().iter().find_map(|line| addresses(line));
            listening.is_some() || child.try_wait().expect("it is our child").is_some()
        })
        .await;
        let Some((addr, admin)) = listening else { panic!("it does not start: {:?}", log.lock().unwrap()) };
        Self { child, log, addr, admin, _home: home }
    }

    /// An MCP client of `/mcp` that has not said hello yet.
    pub fn client(&self) -> Client {
        Client::new(self.addr)
    }

    /// Status and body of a page of the admin listener.
    pub async fn admin(&self, path: &str) -> (u16, String) {
        let reply = Http::new(self.admin).send("GET", path, &[], "").await;
        (reply.status, reply.text().await)
    }

    /// The value of a metric without labels.
    pub async fn metric(&self, name: &str) -> u64 {
        let (_, page) = self.admin("/metrics").await;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().expect("a whole number")
    }

    /// Sends a signal by name: `TERM`, `INT`.
    pub fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success(), "{kill}");
    }

    /// Waits until it has ended; its exit status.
    pub async fn ended(&mut self) -> i32 {
        let mut status = None;
        eventually("it ends", || {
            status = self.child.try_wait().expect("it is our child");
            status.is_some()
        })
        .await;
        status.expect("just seen").code().expect("it ended by itself")
    }

    /// What it has logged so far.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// Bytes of memory it has now.
    pub fn memory(&self) -> u64 {
        self.status("VmRSS")
    }

    /// The most bytes of memory it ever had.
    pub fn most_memory(&self) -> u64 {
        self.status("VmHWM")
    }

    fn status(&self, key: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let page = std::fs::read_to_string(path).expect("it is alive");
        let line = page.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).expect("Linux tells");
        let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kibibytes << 10
    }

    /// How many files and sockets it has open.
    pub fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("it is alive").count()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The addresses in the log line that says it is ready.
fn addresses(line: &str) -> Option<(SocketAddr, SocketAddr)> {
    let line: Value = serde_json::from_str(line).ok()?;
    if line["message"] != "listening" {
        return None;
    }
    Some((line["addr"].as_str()?.parse().ok()?, line["admin"].as_str()?.parse().ok()?))
}
