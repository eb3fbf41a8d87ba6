//! `taskgate demo`: a solver that blocks, taskgate in front of it, and the flows played step by step.
//!
//! Somebody who has just built taskgate sees in ten seconds what it does, and has something to point a client at.

pub(in crate::cli) mod answer;
pub(in crate::cli) mod client;
mod flows;
mod left;
mod screen;
mod solver;
mod witness;

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tokio::time::Instant;

use self::client::Client;
use self::flows::{Stage, THRESHOLD};
use self::screen::Screen;
use self::solver::Solver;
use self::witness::Witness;
use crate::app::App;
use crate::config::{Config, MEMORY, Overrides};
use crate::shutdown::Work;

const DEFAULT_PORT: u16 = 8080;

/// Show what taskgate does, with a built-in slow server behind it
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// End after the steps, with status 1 if one went wrong, instead of serving until Ctrl-C
    #[arg(long)]
    once: bool,
    /// Where taskgate listens [default: 127.0.0.1:8080; with --once a free port]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Where tasks are kept: a file, or memory [default: a file that is removed at the end]. With a file, tasks survive:
    /// what an earlier demo left running there is told first
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// Run only the built-in slow server, on this address, for a demo in another process
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["once", "listen", "store", "upstream"])]
    solver: Option<SocketAddr>,
    /// Use the slow server that `--solver` started, instead of one of its own
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
}

/// Runs the demo. Status 0 if every step went as it should.
#[must_use]
pub(super) fn run(args: Args) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("no runtime: {error}")),
    };
    runtime.block_on(demo(args)).unwrap_or_else(|error| fail(&error))
}

fn fail(why: &str) -> ExitCode {
    // Without a reader there is nobody to tell; the status says it too.
    let _ = writeln!(std::io::stderr(), "taskgate demo: {why}");
    ExitCode::FAILURE
}

async fn demo(args: Args) -> Result<ExitCode, String> {
    let work = Work::new();
    let mut screen = Screen::stdout();
    let solver = match &args.upstream {
        Some(url) => url.clone(),
        None => {
            let solver = Solver::start(&work, args.solver).await;
            solver.map_err(|error| format!("the solver cannot listen: {error}"))?.url()
        }
    };
    if args.solver.is_some() {
        screen.line(&format!("solver at {solver}; use it with: taskgate demo --upstream {solver} --store demo.db"));
        asked_to_end().await;
        work.cut();
        return Ok(ExitCode::SUCCESS);
    }
    let witness = Witness::new(&solver)?;
    witness.seen().await?;
    let place = Place::new(args.store.as_deref(), &std::env::temp_dir(), &mut screen);
    let app = start(&args, &place.store, &solver).await?;
    let url = format!("http://{}/mcp", reachable(app.addr()));
    introduce(&mut screen, &solver, &url);
    left::tell(&mut screen, &app, &place.store).await;
    let began = Instant::now();
    let client = flows::play(&mut Stage { screen: &mut screen, solver: &witness, url: &url }).await;
    conclude(&mut screen, began);
    if !args.once && !screen.is_gone() {
        invite(&mut screen, &url, app.admin_addr(), client.as_ref());
        asked_to_end().await;
    }
    app.stop();
    app.closed().await;
    work.cut();
    Ok(if screen.failed() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Where tasks are kept, and the directory that is taken away at the end.
struct Place {
    store: String,
    made: Option<PathBuf>,
}

impl Place {
    /// A file in a directory of its own under `temporary`, unless another is given; memory where none can be made, as in
    /// an image that has no such place.
    fn new(given: Option<&str>, temporary: &Path, screen: &mut Screen) -> Self {
        if let Some(store) = given {
            return Self { store: store.to_owned(), made: None };
        }
        let directory = temporary.join(format!("taskgate-demo-{}", uuid::Uuid::new_v4().simple()));
        match std::fs::DirBuilder::new().mode(0o700).create(&directory) {
            Ok(()) => Self { store: directory.join("demo.db").display().to_string(), made: Some(directory) },
            Err(error) => {
                let temporary = temporary.display();
                screen.line(&format!("(Nothing can be put into {temporary}: {error}. Tasks are kept in memory.)\n"));
                Self { store: MEMORY.to_owned(), made: None }
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(directory) = &self.made {
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

/// Starts taskgate in front of `solver`.
async fn start(args: &Args, store: &str, solver: &str) -> Result<App, String> {
    let port = if args.once { 0 } else { DEFAULT_PORT };
    let listen = args.listen.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    is_free(listen)?;
    let overrides = Overrides { store: Some(store.to_owned()), ..Overrides::default() };
    let config = Config::parse(&configuration(listen, solver), &overrides);
    App::start(config.map_err(|problems| problems.to_string())?)
        .await
        .map_err(|error| format!("taskgate did not start on {listen}: {error}"))
}

/// The demo's `taskgate.toml`.
fn configuration(listen: SocketAddr, solver: &str) -> String {
    let threshold = THRESHOLD.as_millis();
    format!(
        r#"
        [server]
        listen = "{listen}"
        [admin]
        listen = "127.0.0.1:0"
        [tasks]
        threshold = "{threshold}ms"
        [[upstream]]
        name = "solver"
        url = "{solver}"
        "#
    )
}

/// Looks whether the address can be bound, for a hint that names the way out.
fn is_free(listen: SocketAddr) -> Result<(), String> {
    match std::net::TcpListener::bind(listen) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Err(format!(
            "{listen} is taken by another program. End that, or choose another port: \
             taskgate demo --listen 127.0.0.1:{}",
            listen.port().checked_add(1).unwrap_or(DEFAULT_PORT)
        )),
        Err(error) => Err(format!("cannot listen on {listen}: {error}")),
    }
}

/// Where a client on this machine finds a listener: a wildcard address means loopback.
fn reachable(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, addr.port())
}

fn introduce(screen: &mut Screen, solver: &str, url: &str) {
    screen.line("taskgate demo: a server that blocks, and taskgate in front of it");
    screen.line("");
    screen.line(&format!("   solver    {solver}   an ordinary MCP server; it knows nothing of tasks"));
    let threshold = THRESHOLD.as_millis();
    screen.line(&format!("   taskgate  {url}   calls that outlast {threshold} ms get a handle"));
}

fn conclude(screen: &mut Screen, began: Instant) {
    let took = began.elapsed().as_secs_f64();
    let text = match screen.failed() {
        0 => format!("\nAll {} steps went as they should, in {took:.1} s.", screen.steps()),
        1 => format!("\n1 check did not hold, in {took:.1} s."),
        failed => format!("\n{failed} checks did not hold, in {took:.1} s."),
    };
    screen.line(&text);
}

/// What to try while the demo keeps serving.
fn invite(screen: &mut Screen, url: &str, admin: Option<SocketAddr>, client: Option<&Client>) {
    screen.line("\nStill serving. Point an MCP client (Streamable HTTP) at");
    screen.line(&format!("   {url}"));
    if let Some(admin) = admin {
        screen.line(&format!("Health and metrics:\n   http://{admin}/healthz   http://{admin}/metrics"));
    }
    if let Some(session) = client.and_then(Client::session) {
        screen.line("Or, in a session that is open already, ask for 5 seconds of work:");
        screen.line(&format!("   {}", curl(url, session)));
        screen.line("The answer is a handle; call get_job_result with its job_id in the same way.");
    }
    screen.line("Ctrl-C ends the demo.");
}

fn curl(url: &str, session: &str) -> String {
    format!(
        "curl -sS {url} -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \
         -H 'Mcp-Session-Id: {session}' -d '{{\"jsonrpc\":\"2.0\",\"id\":\"curl\",\"method\":\"tools/call\",\
         \"params\":{{\"name\":\"solve\",\"arguments\":{{\"seconds\":5}}}}}}'"
    )
}

/// Resolves at Ctrl-C or SIGTERM.
async fn asked_to_end() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    // Without signal handlers the process ends by the signal's own doing.
    let _ = tokio::signal::ctrl_c().await;
}

#[cfg(test)]
mod tests {
    use super::screen::Paint;
    use super::*;

    #[test]
    fn a_taken_port_comes_with_a_hint() {
        let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let error = is_free(held.local_addr().unwrap()).unwrap_err();
        assert!(error.contains("is taken") && error.contains("--listen 127.0.0.1:"), "{error}");
        assert!(is_free("127.0.0.1:0".parse().unwrap()).is_ok());
    }

    #[test]
    fn without_a_place_for_files_tasks_are_kept_in_memory() {
        let home = tempfile::tempdir().unwrap();
        let mut screen = Screen::new(Box::new(std::io::sink()), Paint::Plain);
        let nowhere = Place::new(None, &home.path().join("none"), &mut screen);
        assert_eq!((&*nowhere.store, &nowhere.made), ("memory", &None));
        let place = Place::new(None, home.path(), &mut screen);
        let made = place.made.clone().unwrap();
        assert!(made.is_dir() && Path::new(&place.store).starts_with(&made), "{}", place.store);
        drop(place);
        assert!(!made.exists(), "it is taken away");
        assert_eq!(Place::new(Some("f.db"), home.path(), &mut screen).store, "f.db");
    }

    #[test]
    fn a_wildcard_listener_is_reached_by_loopback() {
        for (listens, reached) in
            [("0.0.0.0:80", "127.0.0.1:80"), ("[::]:80", "[::1]:80"), ("127.0.0.2:9", "127.0.0.2:9")]
        {
            assert_eq!(reachable(listens.parse().unwrap()), reached.parse().unwrap());
        }
    }

    #[test]
    fn the_configuration_is_accepted() {
        for listen in ["127.0.0.1:0", "0.0.0.0:8080"] {
            let text = configuration(listen.parse().unwrap(), "http://127.0.0.1:9/mcp");
            let config = Config::parse(&text, &Overrides::default()).unwrap();
            assert_eq!(config.server.listen, listen.parse().unwrap());
            assert_eq!(config.upstreams[0].rules.defaults().threshold, THRESHOLD);
        }
    }

    #[test]
    fn the_curl_line_carries_json() {
        let line = curl("http://h/mcp", "s");
        let body = line.split('\'').nth(7).unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["params"]["name"], "solve");
    }
}
