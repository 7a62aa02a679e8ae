//! Locks for programs without asynchronous code. They wait for those of the crate, which run on a
//! thread of their own.

use std::sync::{Arc, LazyLock, mpsc};
use std::time::Duration;

use redis::Client;
use tokio::runtime::{Builder, Runtime};

use crate::{LockError, Options};

/// As [`crate::Lock`], for threads.
#[derive(Clone, Debug)]
pub struct Lock(crate::Lock);

/// As [`crate::Guard`], for threads. To drop it releases the lock, and waits for that.
#[derive(Debug)]
#[must_use = "the lock is released when its guard is dropped"]
pub struct Guard(crate::Guard);

impl Lock {
    /// A lock that is not held yet.
    #[must_use]
    pub fn new(client: &Client, key: impl Into<String>, options: Options) -> Self {
        Lock(crate::Lock::new(client, key, options))
    }

    /// As [`crate::Lock::of_cluster`].
    #[must_use]
    pub fn of_cluster(
        nodes: impl IntoIterator<Item = Client>,
        key: impl Into<String>,
        options: Options,
    ) -> Self {
        Lock(crate::Lock::of_cluster(nodes, key, options))
    }

    /// The owner in the commands.
    #[must_use]
    pub fn owner(&self) -> &str {
        self.0.owner()
    }

    /// Acquires the lock; may wait for it, as its options say.
    ///
    /// # Errors
    ///
    /// As those of [`crate::Lock::acquire`].
    pub fn acquire(&self) -> Result<Guard, LockError> {
        let lock = self.0.clone();
        wait(async move { lock.acquire().await }).map(Guard)
    }

    /// As [`acquire`](Self::acquire), with another time to wait.
    ///
    /// # Errors
    ///
    /// As those of [`crate::Lock::acquire`].
    pub fn acquire_within(&self, time: Duration) -> Result<Guard, LockError> {
        let lock = self.0.clone();
        wait(async move { lock.acquire_within(time).await }).map(Guard)
    }
}

impl Guard {
    /// The fencing token: later grants have greater ones.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.0.token()
    }

    /// Whether the lock is held, as far as is known.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// Renews the lease now.
    ///
    /// # Errors
    ///
    /// As those of [`crate::Guard::renew`].
    pub fn renew(&self) -> Result<(), LockError> {
        let grant = Arc::clone(&self.0.0);
        wait(async move { grant.renew().await })
    }

    /// Releases the lock.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if it was not held any more.
    pub fn release(self) -> Result<(), LockError> {
        self.end()
    }

    fn end(&self) -> Result<(), LockError> {
        let grant = Arc::clone(&self.0.0);
        wait(async move { grant.release().await })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.is_held() {
            let _ = self.end();
        }
    }
}

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).thread_name("lockwheel-locks").enable_all();
    builder.build().expect("the system has threads")
});

/// Waits for a future; also on a thread of another runtime, where that may be slow but no error.
fn wait<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    let (sender, receiver) = mpsc::sync_channel(1);
    RUNTIME.spawn(async move {
        let _ = sender.send(future.await);
    });
    receiver.recv().expect("the runtime ends with the process")
}
