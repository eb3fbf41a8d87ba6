//! Every era of a client, in front of every era of a server, in every dialect, at every play: one table, and a story
//! that walks it.

mod client;
mod handle;
mod server;
mod table;

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::upstream::Recorded;
use crate::support::{Client, Dialect, Gate, Latch, Upstream, soon};
use table::{Act, Caller, Cell, Era, Server, TABLE, When};

const RESULT: &str = r#"{"content":[{"type":"text","text":"42"}],"structuredContent":{"n":9007199254740993},"_meta":{"x/y":1.0},"isError":false}"#;
const TOOL_ERROR: &str = r#"{"content":[{"type":"text","text":"no such mesh"}],"structuredContent":{"n":9007199254740993},"_meta":{"x/y":1.0},"isError":true}"#;

const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// The tool of every play.
const TOOL: &str = "play";

/// One cell on its stage.
struct Stage {
    caller: Caller,
    server: Server,
    act: Act,
    upstream: Upstream,
    gate: Gate,
    client: Client,
    /// Opens the play, where it comes after the handle.
    begins: Latch,
    /// Opens its end, where there is something to see before.
    ends: Latch,
    /// Says which cell it is.
    what: String,
}

impl Stage {
    async fn set(caller: Caller, server: Server, (act, when): (Act, When)) -> Self {
        let what = format!("{caller:?}, {server:?}, {act:?} {when:?}");
        let latch = || if when == When::Before { Latch::opened() } else { Latch::new() };
        let (begins, ends) = (latch(), latch());
        let script = server::plays(act, when, [begins.clone(), ends.clone()]);
        let upstream = server.builder(caller.era()).tool(TOOL, script).start().await;
        let threshold = if when == When::Before { "30s" } else { "60ms" };
        let settings = format!("[tasks]\nthreshold = \"{threshold}\"\n[upstream]\nbridge = \"always\"\n");
        let gate = Gate::start(&upstream, &settings).await;
        let client = caller.client(&gate).await;
        Self { caller, server, act, upstream, gate, client, begins, ends, what }
    }

    fn dialect(&self) -> Dialect {
        self.caller.dialect()
    }

    /// What was sent to the server.
    fn calls(&self) -> Vec<Recorded> {
        self.upstream.calls(TOOL)
    }

    /// The server's result as this client has to read it from a task: in the words of the client's era.
    fn result(&self) -> Value {
        let text = if self.act == Act::ToolError { TOOL_ERROR } else { RESULT };
        let mut result: Value = serde_json::from_str(text).expect("JSON");
        if self.caller.era() == Era::Stateless {
            result["resultType"] = json!("complete");
        }
        result
    }

    /// Whether a client without sessions is in front of a server that wants one.
    fn is_bridged_down(&self) -> bool {
        self.server == Server::Handshake && self.caller.era() == Era::Stateless
    }
}

/// What results gain for a stateless client if they come straight from a server of the handshake era.
fn server_info() -> Value {
    json!({SERVER_INFO: {"name": "scripted", "version": "1"}})
}

#[tokio::test]
async fn every_cell_of_the_table() {
    let callers: HashSet<_> = TABLE.iter().map(|(caller, _)| *caller).collect();
    assert_eq!(callers.len(), TABLE.len(), "each client once: {callers:?}");
    for (caller, rows) in &TABLE {
        let acts: HashSet<_> = rows.iter().map(|(act, ..)| *act).collect();
        assert_eq!(acts.len(), rows.len(), "each play once for {caller:?}: {acts:?}");
    }
    let rows = TABLE.iter().flat_map(|(caller, rows)| {
        rows.iter().flat_map(|(act, before, after)| {
            [(*caller, (*act, When::Before), *before), (*caller, (*act, When::After), *after)]
        })
    });
    let walks = rows.flat_map(|(caller, play, cells)| {
        Server::ALL.into_iter().zip(cells).map(move |(server, cell)| walk(caller, server, play, cell))
    });
    // All are walked, so that a failure says whether it is one cell's or a row's.
    let walked = join_all(walks.map(|walk| AssertUnwindSafe(walk).catch_unwind())).await;
    let failed: Vec<_> = walked.iter().filter(|walked| walked.is_err()).collect();
    assert!(failed.is_empty(), "{} of {} cells", failed.len(), walked.len());
}

async fn walk(caller: Caller, server: Server, play: (Act, When), cell: Cell) {
    match cell {
        Cell::Empty(reason) => assert!(!reason.is_empty(), "{caller:?}, {server:?}, {play:?}: it needs a reason"),
        Cell::At(sees, reaches) => {
            let stage = Stage::set(caller, server, play).await;
            // Streams that are kept alive never end by themselves.
            soon(&stage.what, stage.sees(sees)).await;
            stage.reached(reaches).await;
            stage.gate.gauge("held_calls", 0).await;
            stage.gate.gauge("running_tasks", 0).await;
        }
    }
}
