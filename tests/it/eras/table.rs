//! The table: what the client sees, and what of it reaches the server.
//!
//! Its type has a place for each cell, so that none can be left out.

use serde_json::json;

use crate::support::upstream::{Builder, Get};
use crate::support::{Client, Dialect, Gate, Upstream};

/// 2025-11-25 with its sessions, or 2026-07-28 without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Era {
    Handshake,
    Stateless,
}

/// A client: its era, and the dialect in which it reads slow calls. The stateless era has no core tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Caller {
    HandshakeExt,
    HandshakeCore,
    HandshakeJob,
    StatelessExt,
    StatelessJob,
}

impl Caller {
    pub(super) fn era(self) -> Era {
        match self {
            Self::HandshakeExt | Self::HandshakeCore | Self::HandshakeJob => Era::Handshake,
            Self::StatelessExt | Self::StatelessJob => Era::Stateless,
        }
    }

    pub(super) fn dialect(self) -> Dialect {
        match self {
            Self::HandshakeExt | Self::StatelessExt => Dialect::Ext,
            Self::HandshakeCore => Dialect::Core,
            Self::HandshakeJob | Self::StatelessJob => Dialect::Job,
        }
    }

    /// Such a client, that can be asked things.
    pub(super) async fn client(self, gate: &Gate) -> Client {
        let able = json!({"elicitation": {"form": {}}});
        match self.era() {
            Era::Handshake => self.dialect().client(gate, able).open().await,
            Era::Stateless if self.dialect() == Dialect::Ext => gate.client().stateless_with_tasks(able),
            Era::Stateless => gate.client().stateless(able),
        }
    }
}

/// The eras that a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    Handshake,
    Stateless,
    Both,
}

impl Server {
    /// In the order of the table's columns.
    pub(super) const ALL: [Self; 3] = [Self::Handshake, Self::Stateless, Self::Both];

    /// Such a server. One that is stateless refuses words of tasks unless they are a stateless client's own.
    pub(super) fn builder(self, caller: Era) -> Builder {
        let builder = Upstream::builder().get(Get::Stream);
        match (self, caller) {
            (Self::Handshake, _) => builder,
            (Self::Stateless, Era::Handshake) => builder.modern(),
            (Self::Stateless, Era::Stateless) => builder.native(),
            (Self::Both, _) => builder.both(),
        }
    }
}

/// What the tool does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Act {
    /// Ends well: fast before the handle, slow after it.
    Result,
    /// Fails by a result with `isError`.
    ToolError,
    /// Fails by a JSON-RPC error.
    RpcError,
    /// Fails by a connection that is cut.
    Lost,
    /// Asks its client something.
    Question,
    /// Works until it is cancelled.
    Cancel,
    /// Tells how far it is.
    Progress,
}

/// Whether it does so before its client has a handle or after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Before,
    After,
}

/// One place of the table.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cell {
    /// What the client sees, and what of it reaches the server.
    At(Sees, Reaches),
    /// Nothing can happen here, and why.
    Empty(&'static str),
}

/// What the client sees.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sees {
    /// The result itself.
    Inline,
    /// The server's JSON-RPC error itself.
    TheirError,
    /// The error that says that nobody knows what became of it.
    OutcomeUnknown,
    /// A server's request on the stream of the call.
    AskedOnTheStream,
    /// A result that asks, for a retry that answers.
    AskedByAnswer,
    /// A stream that ends without a message, after `notifications/cancelled`.
    Silence,
    /// Nothing: it has left, which is the signal.
    Left,
    /// Its own progress token on the stream of the call.
    OwnToken,
    /// A handle; when it has ended: its status in the dialect, and what comes with it.
    Ends(&'static str, Carried),
    /// A handle; `inputRequests` in the task, for `tasks/update`.
    AskedInTheTask,
    /// A handle; a server's request on the stream that waits: `tasks/result`, or a read of the job.
    AskedWhereItWaits,
    /// A handle; a read of the job that asks, for a retry that answers.
    AskedByARead,
    /// A handle; the text of its status, and its own token on the stream of `tasks/result`.
    OwnTokenWhereItWaits,
    /// A handle; the text of its status, and its own token on the session's GET stream.
    OwnTokenOnGet,
    /// A handle; the text of its status and no notification anywhere: a job's handle is an answer, and its progress token
    /// dies with it; a stateless task is polled.
    StatusText,
}

/// What comes with the last status of a deferred call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Carried {
    /// The server's result.
    Own,
    /// The server's JSON-RPC error.
    Error,
    /// That nobody knows what became of it.
    Unknown,
    /// Nothing: it was cancelled.
    Nothing,
}

/// What reaches the server, and in which era.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reaches {
    /// The call, in a session.
    InSession,
    /// The call by itself, with all that there is to know in it.
    Alone,
    /// The answer to its question, as a response in the same session.
    Response,
    /// The answer to its question, by the call sent again.
    Retry,
    /// `notifications/cancelled` with the id that the call has there, in its session; then the exchange is closed.
    Notification,
    /// The exchange is closed, and no more is said.
    Closed,
}

use Caller::{HandshakeCore, HandshakeExt, HandshakeJob, StatelessExt, StatelessJob};
use Carried::{Error, Nothing, Own, Unknown};
use Reaches::{Alone, Closed, InSession, Notification, Response, Retry};
use Sees::*;

/// For each play: what happens before the handle, and after it.
type Row = (Act, [Cell; 3], [Cell; 3]);

// What reaches a server of the handshake era, of the stateless one, of both: the last is spoken to as its client speaks.
const CALL: [[Reaches; 3]; 2] = [[InSession, Alone, InSession], [InSession, Alone, Alone]];
const ANSWER: [[Reaches; 3]; 2] = [[Response, Retry, Response], [Response, Retry, Retry]];
const CANCEL: [[Reaches; 3]; 2] = [[Notification, Closed, Notification], [Notification, Closed, Closed]];
const HANDSHAKE: usize = 0;
const STATELESS: usize = 1;

/// The same for the client, whatever the server speaks.
const fn all(sees: Sees, [handshake, stateless, both]: [Reaches; 3]) -> [Cell; 3] {
    [Cell::At(sees, handshake), Cell::At(sees, stateless), Cell::At(sees, both)]
}

/// A core client asks for a task, and gets one at once: there is nothing before the handle (contract, sections 3 and 4).
const AT_ONCE: [Cell; 3] = [Cell::Empty("a core call is a task from its first moment"); 3];

pub(super) const TABLE: [(Caller, [Row; 7]); 5] = [
    (
        HandshakeExt,
        [
            (Act::Result, all(Inline, CALL[HANDSHAKE]), all(Ends("completed", Own), CALL[HANDSHAKE])),
            (Act::ToolError, all(Inline, CALL[HANDSHAKE]), all(Ends("completed", Own), CALL[HANDSHAKE])),
            (Act::RpcError, all(TheirError, CALL[HANDSHAKE]), all(Ends("failed", Error), CALL[HANDSHAKE])),
            (Act::Lost, all(OutcomeUnknown, CALL[HANDSHAKE]), all(Ends("failed", Unknown), CALL[HANDSHAKE])),
            (Act::Question, all(AskedOnTheStream, ANSWER[HANDSHAKE]), all(AskedInTheTask, ANSWER[HANDSHAKE])),
            (Act::Cancel, all(Silence, CANCEL[HANDSHAKE]), all(Ends("cancelled", Nothing), CANCEL[HANDSHAKE])),
            (Act::Progress, all(OwnToken, CALL[HANDSHAKE]), all(OwnTokenOnGet, CALL[HANDSHAKE])),
        ],
    ),
    (
        HandshakeCore,
        [
            (Act::Result, all(Ends("completed", Own), CALL[HANDSHAKE]), all(Ends("completed", Own), CALL[HANDSHAKE])),
            (Act::ToolError, all(Ends("failed", Own), CALL[HANDSHAKE]), all(Ends("failed", Own), CALL[HANDSHAKE])),
            (Act::RpcError, all(Ends("failed", Error), CALL[HANDSHAKE]), all(Ends("failed", Error), CALL[HANDSHAKE])),
            (Act::Lost, AT_ONCE, all(Ends("failed", Unknown), CALL[HANDSHAKE])),
            (Act::Question, AT_ONCE, all(AskedWhereItWaits, ANSWER[HANDSHAKE])),
            (Act::Cancel, AT_ONCE, all(Ends("cancelled", Nothing), CANCEL[HANDSHAKE])),
            (Act::Progress, AT_ONCE, all(OwnTokenWhereItWaits, CALL[HANDSHAKE])),
        ],
    ),
    (
        HandshakeJob,
        [
            (Act::Result, all(Inline, CALL[HANDSHAKE]), all(Ends("done", Own), CALL[HANDSHAKE])),
            (Act::ToolError, all(Inline, CALL[HANDSHAKE]), all(Ends("error", Own), CALL[HANDSHAKE])),
            (Act::RpcError, all(TheirError, CALL[HANDSHAKE]), all(Ends("error", Error), CALL[HANDSHAKE])),
            (Act::Lost, all(OutcomeUnknown, CALL[HANDSHAKE]), all(Ends("error", Unknown), CALL[HANDSHAKE])),
            (Act::Question, all(AskedOnTheStream, ANSWER[HANDSHAKE]), all(AskedWhereItWaits, ANSWER[HANDSHAKE])),
            (Act::Cancel, all(Silence, CANCEL[HANDSHAKE]), all(Ends("cancelled", Nothing), CANCEL[HANDSHAKE])),
            (Act::Progress, all(OwnToken, CALL[HANDSHAKE]), all(StatusText, CALL[HANDSHAKE])),
        ],
    ),
    (
        StatelessExt,
        [
            (Act::Result, all(Inline, CALL[STATELESS]), all(Ends("completed", Own), CALL[STATELESS])),
            (Act::ToolError, all(Inline, CALL[STATELESS]), all(Ends("completed", Own), CALL[STATELESS])),
            (Act::RpcError, all(TheirError, CALL[STATELESS]), all(Ends("failed", Error), CALL[STATELESS])),
            (Act::Lost, all(OutcomeUnknown, CALL[STATELESS]), all(Ends("failed", Unknown), CALL[STATELESS])),
            (Act::Question, all(AskedByAnswer, ANSWER[STATELESS]), all(AskedInTheTask, ANSWER[STATELESS])),
            (Act::Cancel, all(Left, CANCEL[STATELESS]), all(Ends("cancelled", Nothing), CANCEL[STATELESS])),
            (Act::Progress, all(OwnToken, CALL[STATELESS]), all(StatusText, CALL[STATELESS])),
        ],
    ),
    (
        StatelessJob,
        [
            (Act::Result, all(Inline, CALL[STATELESS]), all(Ends("done", Own), CALL[STATELESS])),
            (Act::ToolError, all(Inline, CALL[STATELESS]), all(Ends("error", Own), CALL[STATELESS])),
            (Act::RpcError, all(TheirError, CALL[STATELESS]), all(Ends("error", Error), CALL[STATELESS])),
            (Act::Lost, all(OutcomeUnknown, CALL[STATELESS]), all(Ends("error", Unknown), CALL[STATELESS])),
            (Act::Question, all(AskedByAnswer, ANSWER[STATELESS]), all(AskedByARead, ANSWER[STATELESS])),
            (Act::Cancel, all(Left, CANCEL[STATELESS]), all(Ends("cancelled", Nothing), CANCEL[STATELESS])),
            (Act::Progress, all(OwnToken, CALL[STATELESS]), all(StatusText, CALL[STATELESS])),
        ],
    ),
];
