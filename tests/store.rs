//! Every engine runs the same suite; what only a file has is tested beside it.

#![allow(unreachable_pub)] // `pub` says what `home` offers to the others

#[path = "store/bounds.rs"]
mod bounds;
#[path = "store/embedded.rs"]
mod embedded;
#[path = "store/home.rs"]
mod home;
#[path = "store/odd_rows.rs"]
mod odd_rows;
#[path = "store/place.rs"]
mod place;
#[path = "store/readiness.rs"]
mod readiness;
#[path = "store/schema_1.rs"]
mod schema_1;
#[path = "store/schema_2.rs"]
mod schema_2;
#[path = "store/short_writes.rs"]
mod short_writes;

use taskgate::store::{Clock, Embedded, Memory, conformance};

#[tokio::test]
async fn memory_conforms() {
    conformance::run(async || Memory::new(conformance::options(), Clock::system())).await;
}

#[tokio::test]
async fn embedded_conforms() {
    let home = tempfile::tempdir().expect("a directory");
    let count = std::cell::Cell::new(0);
    conformance::run(async || {
        count.set(count.get() + 1);
        let path = home.path().join(format!("{}.db", count.get()));
        Embedded::open(path, conformance::options(), Clock::system()).await.expect("opened")
    })
    .await;
}
