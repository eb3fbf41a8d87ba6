//! taskgate: a reverse proxy that turns slow MCP tool calls into tasks.
//!
//! A request travels a road through the rooms below, in this order; a side road, the worker, carries the calls
//! that outlast their threshold. Rules live in pure rooms that both roads consult.
//!
//! ```text
//!  client                                                                        upstream
//!    │ 1 accept      server::listener           connection, limits, drain
//!    │ 2 guard       server::stack              request id, origin, host, CORS
//!    │ 3 read        server::endpoint           bytes → envelope, sealed
//!    │ 4 understand  dialect::select            envelope → caller, operation
//!    │ 5 do          gateway                    policy::plan → inline | race | task | forward  ─► 6 upstream
//!    │ 7 phrase      dialect                    outcome or error → JSON-RPC
//!    ▼ 8 write       server::reply              JSON or SSE, HTTP status
//!  side road: worker = follow the exchange → task::apply → store → wake whoever waits
//! ```
//!
//! A room imports only rooms on lower floors; `tests/architecture.rs` holds the table.
//!
//! # Cancel safety
//!
//! hyper drops a handler when its client leaves. Every upstream call therefore runs in a tracked task of its own
//! ([`shutdown::Work`]), and the handler only waits for it: dropping a handler loses nothing.

pub mod jsonrpc;
pub mod shutdown;
pub mod telemetry;

pub mod mcp;
pub mod task;

pub mod call;

pub mod policy;
pub mod session;
pub mod store;

pub mod upstream;

pub mod dialect;
pub mod worker;

pub mod gateway;

pub mod admin;
pub mod server;

pub mod config;

pub mod app;
pub mod cli;
