//! Waits that end.

use std::pin::pin;
use std::time::Duration;

/// Waits for a future within a limit; `None` if it is not ready by then.
pub(super) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, pin!(future)).await.ok()
}
