//! Every engine runs the same suite.

use taskgate::store::{Clock, Memory, Options, conformance};

#[tokio::test]
async fn memory_conforms() {
    conformance::run(|| Memory::new(Options { max_retained: 1 << 20, ..Options::default() }, Clock::system())).await;
}
