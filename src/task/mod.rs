//! A deferred call as a record: pure rules, no I/O.
//!
//! A task is made when a call outlasts its threshold and ends exactly once. [`Task::apply`] is the only place where
//! its status changes; [`Owner::admits`] the only one that says who may see it.

mod clock;
mod id;
mod lease;
mod model;
mod owner;
mod question;
mod session;
mod status;
mod store;
mod transition;

pub use clock::Timestamp;
pub(crate) use clock::millis;
pub use id::TaskId;
pub use lease::{Execution, Lease, ReplicaId, Sealed, Way};
pub use model::{Made, Task};
pub use owner::{Access, Fingerprint, Identity, Owner, OwnerMode};
pub use question::{Question, QuestionKey};
pub use session::SessionRecord;
pub use status::{Failure, Note, Reason, Status};
pub use store::{BoxFuture, ClaimQuery, Full, ListQuery, Purged, Replaced, StoreError, TaskStore};
pub use transition::{Event, Rejected};
