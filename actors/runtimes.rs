//! A node's two tokio runtimes and the guard that waits for them. A Raft heartbeat must not wait
//! behind a write stall, so what the cluster agrees on runs apart from what moves bytes.

use std::future::Future;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Handle, Runtime};
use tokio::task::JoinHandle;

/// Where a node's work runs. Clones are handles; [`NodeRuntimes`] owns the runtimes.
#[derive(Debug, Clone)]
pub struct RuntimeHandles {
    /// Raft, controller, supervisors.
    pub control: Handle,
    /// Connections, partitions, fetchers.
    pub data: Handle,
}

impl RuntimeHandles {
    /// Both roles on the runtime this is called in: the simulation's single thread.
    pub fn shared_current() -> RuntimeHandles {
        RuntimeHandles { control: Handle::current(), data: Handle::current() }
    }

    /// Runs `work` on the control runtime.
    pub fn spawn_control<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.control.spawn(work)
    }

    /// Runs `work` on the data runtime.
    pub fn spawn_data<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.data.spawn(work)
    }
}

/// A task that ends with its owner.
#[derive(Debug)]
pub struct AbortOnDrop(JoinHandle<()>);

impl AbortOnDrop {
    /// Ties `task` to the returned guard.
    pub fn new(task: JoinHandle<()>) -> AbortOnDrop {
        AbortOnDrop(task)
    }

    /// Whether the task has ended by itself.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The runtimes of one node, owned. Dropping them without [`NodeRuntimes::shutdown_background`]
/// would block, which an async thread must not do, so the drop does it too.
#[derive(Debug)]
pub struct NodeRuntimes {
    handles: RuntimeHandles,
    owned: Mutex<Option<(Runtime, Runtime)>>,
}

impl NodeRuntimes {
    /// Starts two runtimes for the node called `name` (it becomes part of the thread names).
    ///
    /// # Errors
    /// The operating system's, when it gives no more threads.
    pub fn start(name: &str, data_threads: usize) -> std::io::Result<NodeRuntimes> {
        let control = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(16)
            .thread_name(format!("{name}-control"))
            .thread_keep_alive(Duration::from_secs(2))
            .enable_all()
            .build()?;
        let data = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(data_threads)
            .max_blocking_threads(32)
            .thread_name(format!("{name}-data"))
            .thread_keep_alive(Duration::from_secs(2))
            .enable_all()
            .build()?;
        let handles =
            RuntimeHandles { control: control.handle().clone(), data: data.handle().clone() };
        Ok(NodeRuntimes { handles, owned: Mutex::new(Some((control, data))) })
    }

    /// No runtimes of its own: everything runs where this is called (the simulation).
    pub fn shared_current() -> NodeRuntimes {
        NodeRuntimes { handles: RuntimeHandles::shared_current(), owned: Mutex::new(None) }
    }

    /// Handles to spawn on.
    pub fn handles(&self) -> RuntimeHandles {
        self.handles.clone()
    }

    /// Gives both runtimes up at once, as a crash does: tasks end at their next await.
    pub fn shutdown_background(&self) {
        if let Some((control, data)) = self.owned.lock().take() {
            data.shutdown_background();
            control.shutdown_background();
        }
    }
}

impl Drop for NodeRuntimes {
    fn drop(&mut self) {
        self.shutdown_background();
    }
}
