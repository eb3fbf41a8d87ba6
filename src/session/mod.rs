//! What `initialize` told us, by session, and what of a session must be known while its calls run.

mod calls;
mod catalog;
mod cookies;
mod credentials;
mod hub;
mod model;
mod options;
mod patience;
mod repeated;
mod seal;
mod sessions;
mod subscribers;

pub use calls::{Calls, InFlight, Named, Phase, Ticket};
pub use catalog::{Catalog, Tool};
pub use credentials::{Credentials, Fingerprints};
pub use hub::{Asking, Hub, Need, ROOM, Start, Turn};
pub use model::{Hello, Kept, Session};
pub use options::Options;
pub use patience::{Habit, Patience};
pub use repeated::{Repeated, TooMuch};
pub use seal::Seal;
pub use sessions::Sessions;
pub use subscribers::{News, Place, Subscribed, Subscribers};
