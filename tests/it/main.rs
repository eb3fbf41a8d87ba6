//! Stories over real sockets: a client, taskgate, and a scripted upstream.
//!
//! One binary, one file per story, each test named after what goes wrong in the field otherwise.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // tests may fail, and have no work to drain
#![allow(unreachable_pub)] // `pub` says what the support offers to the stories

mod across;
mod after_handle;
mod answers;
mod batch;
mod binary;
mod bridge;
mod cancel;
mod coalesce;
mod core;
mod core_reads;
mod credentials;
mod demo;
mod drain;
mod durable_first;
mod eras;
mod ext;
mod facts;
mod fidelity;
mod first_answer;
mod http;
mod ids;
mod intruders;
mod jobs;
mod limits;
mod listening;
mod liveness;
mod matrix;
mod memory;
mod native;
mod native_input;
mod native_owners;
mod ownership;
mod pitfalls;
mod polls;
mod progress;
mod questions;
mod questions_kept;
mod questions_move;
mod races;
mod replicas;
mod restart;
mod restart_owners;
mod restart_refused;
mod resume;
mod retries;
mod rmcp;
mod schemas;
mod sessions;
mod slow_readers;
mod store;
mod store_place;
mod store_secrets;
mod store_trouble;
mod store_trouble_tasks;
mod store_unread;
mod strangers;
mod streams;
mod subscriptions;
mod support;
mod threshold;
mod unread;
mod upstream_itself;
mod upstream_tasks;
mod upwards;
mod upwards_bounds;
mod upwards_input;
mod upwards_later;
mod upwards_owners;
mod without_credential;
