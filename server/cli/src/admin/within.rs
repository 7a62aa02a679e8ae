//! Time limits of waits.

use std::pin::pin;
use std::time::Duration;

/// The result of a future; `None` if the limit ends before it is ready.
pub(super) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, pin!(future)).await.ok()
}
